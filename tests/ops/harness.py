"""Runs single ONNX ops through the real path: render, build, run as a custom op in ONNX Runtime.

The cases of a module are merged into one model per opset and compiled into one library, so a module costs one build.
Each case is compared with the numpy reference of the op graph and with ONNX Runtime's own kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import ortisan
from ortisan.registry.dtypes import DType
from tests.models.sessions import open_session
from tests.tolerances import Tolerance, assert_close

ort.set_default_logger_severity(4)


@dataclass(frozen=True, eq=False)
class Case:
    """One op. Inputs named in `constants` become initializers; `dynamic` makes the other inputs' dims symbolic.

    `dims` overrides the symbols: a name or None (anonymous) or a number per dim of an input.
    """

    name: str
    op_type: str
    inputs: Mapping[str, np.ndarray[Any, Any] | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    outputs: int = 1
    opset: int = 20
    domain: str = ""
    dynamic: bool = True
    dims: Mapping[str, Sequence[str | int | None]] = field(default_factory=dict)
    tolerance: Tolerance | None = None
    ort: bool = True
    measured: Mapping[str, str] = field(default_factory=dict)
    """Inputs of the op that are not the given tensor but its Shape or Size."""

    def __str__(self) -> str:
        return self.name

    def shape(self, name: str) -> list[str | int | None]:
        array = self.inputs[name]
        assert array is not None
        if name in self.dims:
            return [f"{self.name}_{d}" if isinstance(d, str) else d for d in self.dims[name]]
        return [f"{self.name}_d{n}" if self.dynamic and n != 1 else n for n in array.shape]

    def parts(self, prefix: str) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """(inputs, initializers, nodes, outputs) with every name prefixed."""
        infos, initializers = [], []
        for name, array in self.inputs.items():
            if array is None:
                continue
            if name in self.constants:
                initializers.append(numpy_helper.from_array(array, prefix + name))
            else:
                number = helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(helper.make_tensor_value_info(prefix + name, number, self.shape(name)))
        nodes = [helper.make_node(op, [prefix + name], [f"{prefix}{name}_{op}"]) for name, op in self.measured.items()]
        names = [
            f"{prefix}{name}_{self.measured[name]}"
            if name in self.measured
            else prefix + name
            if array is not None
            else ""
            for name, array in self.inputs.items()
        ]
        outputs = [f"{prefix}y{i}" for i in range(self.outputs)]
        node = helper.make_node(
            self.op_type, names, outputs, name=self.name, domain=self.domain, **dict(self.attributes)
        )
        return infos, initializers, [*nodes, node], [onnx.ValueInfoProto(name=name) for name in outputs]

    def model(self, opset: int | None = None) -> onnx.ModelProto:
        return merge([self], [""], opset or self.opset)

    def feeds(self, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
        return {
            prefix + name: array
            for name, array in self.inputs.items()
            if array is not None and name not in self.constants
        }


def merge(cases: Sequence[Case], prefixes: Sequence[str], opset: int) -> onnx.ModelProto:
    parts = [case.parts(prefix) for case, prefix in zip(cases, prefixes, strict=True)]
    infos, initializers, nodes, outputs = ([item for part in parts for item in part[i]] for i in range(4))
    graph = helper.make_graph(nodes, "ops", infos, outputs, initializers)
    domains = {case.domain for case in cases} - {""}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


class Batch:
    """The cases of one module, compiled together."""

    def __init__(self, cases: Sequence[Case], folder: Path, target: str = "cpu") -> None:
        self.cases = list(cases)
        self.folder, self.target = folder, target

    @cached_property
    def results(self) -> dict[Case, list[np.ndarray[Any, Any]]]:
        results: dict[Case, list[np.ndarray[Any, Any]]] = {}
        for opset in sorted({case.opset for case in self.cases}):
            group = [case for case in self.cases if case.opset == opset and compiles(case)]
            if group:
                results.update(self._run(group, opset))
        return results

    def _run(self, cases: Sequence[Case], opset: int) -> dict[Case, list[np.ndarray[Any, Any]]]:
        prefixes = [f"c{i}_" for i in range(len(cases))]
        model = merge(cases, prefixes, opset)
        compiled = ortisan.compile(model, whole_graph=True, target=self.target, name=f"ops_{opset}")
        library = ortisan.generate(compiled, self.folder / str(opset))
        converted = ortisan.convert_graph(model, compiled)
        assert [node.op_type for node in converted.graph.node] == list(library.ops), "ONNX Runtime ran something itself"
        session = open_session(converted, library.path)
        feeds = {
            name: array
            for case, prefix in zip(cases, prefixes, strict=True)
            for name, array in case.feeds(prefix).items()
        }
        outputs = iter(run_session(session, feeds))
        return {case: [next(outputs) for _ in range(case.outputs)] for case in cases}

    def check(self, case: Case) -> None:
        compiled = ortisan.compile(case.model(), whole_graph=True, target="reference")
        reference = compiled.run(case.feeds())
        got = self.results[case]
        for index, (have, want) in enumerate(zip(got, reference, strict=True)):
            assert_close(have, want, f"{case.name} output {index} against the numpy reference", case.tolerance)
        if case.ort:
            stock = ort.InferenceSession(case.model().SerializeToString())
            for index, (have, want) in enumerate(zip(got, run_session(stock, case.feeds()), strict=True)):
                assert_close(have, want, f"{case.name} output {index} against ONNX Runtime", case.tolerance)


def run_session(session: ort.InferenceSession, feeds: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Like session.run, and bfloat16 works too."""
    values = {name: _ort_value(array) for name, array in feeds.items()}
    results = session.run_with_ort_values(None, values)
    return [_numpy(value) for value in results]


def _ort_value(array: np.ndarray[Any, Any]) -> ort.OrtValue:
    if array.dtype == DType.BFLOAT16.numpy:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), DType.BFLOAT16.onnx)
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _numpy(value: ort.OrtValue) -> np.ndarray[Any, Any]:
    if value.element_type() == DType.BFLOAT16.onnx:
        count = int(np.prod(value.shape(), dtype=np.int64))
        raw = ctypes.string_at(value.data_ptr(), 2 * count)
        return np.frombuffer(raw, np.uint16).view(DType.BFLOAT16.numpy).reshape(value.shape())
    return np.asarray(value.numpy())


def compiles(case: Case) -> bool:
    try:
        ortisan.compile(case.model(), whole_graph=True, target="reference")
    except ortisan.OrtisanError:
        return False
    return True


def refused(case: Case, reason: str) -> None:
    """Asserts that a case can't be compiled, and that the reason says why."""
    with pytest.raises((ortisan.UnsupportedError, ortisan.ModelError), match=reason):
        ortisan.compile(case.model(), whole_graph=True, target="reference")
