"""ONNX's own node tests: whatever compiles must give the expected outputs, in numpy and as built kernels.

What does not compile is refused with a reason, so a test here is either right or refused, never wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import ortisan
from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.library import render_library
from ortisan.codegen.tools.binding import import_binding
from ortisan.registry.dtypes import DType
from tests.tolerances import APPROXIMATE_BY_DTYPE

# ONNX Runtime gives other results too: it divides by the whole size, the expected outputs by 0.6 times the old one.
NOT_ONNX_RUNTIMES = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
# One rounding of the type, a few times over: the expected outputs of expanded functions are rounded at every step.
EXPECTED_TO_COMPILE = 1100


@dataclass(frozen=True, eq=False)
class NodeTest:
    name: str
    compiled: ortisan.Compilation
    feeds: dict[str, Any]
    outputs: list[Any]
    rtol: float


@cache
def node_tests() -> tuple[NodeTest, ...]:
    found = []
    for test in load_model_tests(kind="node"):
        inputs, outputs = test.data_sets[0]
        if test.name in NOT_ONNX_RUNTIMES or not all(isinstance(x, np.ndarray) for x in (*inputs, *outputs)):
            continue
        feeds = {value.name: x for value, x in zip(test.model.graph.input, inputs, strict=False)}
        for model in (test.model, with_constants(test.model, feeds)):
            try:
                compiled = ortisan.compile(model, whole_graph=True, name="node")
            except ortisan.OrtisanError:
                continue
            if len(compiled.graphs) == 1:
                used = {value.name for value in compiled.graphs[0].inputs}
                given = {name: x for name, x in feeds.items() if name in used}
                found.append(NodeTest(test.name, compiled, given, list(outputs), test.rtol))
            break
    return tuple(found)


CONSTANTS = {"Resize": ("roi", "scales"), "Upsample": ("scales",), "ConvTranspose": ("W",)}
"""Floats that real models have as initializers, too."""


def with_constants(model: onnx.ModelProto, feeds: dict[str, Any]) -> onnx.ModelProto:
    """Small integer inputs (axes, shapes, ranges) as initializers, as real models have them."""
    floats = {name for node in model.graph.node for name in CONSTANTS.get(node.op_type, ())}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in model.graph.input:
        x = feeds.get(value.name)
        whole = x is not None and x.dtype.kind in "iub" and x.ndim == 1 and x.size <= 16
        if x is not None and (x.ndim == 0 or whole or value.name in floats):
            result.graph.initializer.append(numpy_helper.from_array(x, value.name))
            result.graph.input.remove(next(v for v in result.graph.input if v.name == value.name))
    return result


def difference(test: NodeTest, results: Any, expected: Any = None) -> str | None:
    for have, want in zip(results, test.outputs if expected is None else expected, strict=True):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{test.name}: {have.dtype}{have.shape}, expected {want.dtype}{want.shape}"
        if not DType.from_numpy(want.dtype).is_float:
            if not np.array_equal(have, want):
                return f"{test.name}: integers differ"
            continue
        tolerance = APPROXIMATE_BY_DTYPE[str(want.dtype)]
        close = np.allclose(
            have.astype(float), want.astype(float), rtol=max(test.rtol, tolerance), atol=tolerance, equal_nan=True
        )
        if not close:
            return f"{test.name}: off by {np.nanmax(np.abs(have.astype(float) - want.astype(float)))}"
    return None


def test_the_reference_is_right_or_refuses() -> None:
    with np.errstate(all="ignore"):
        wrong = [text for test in node_tests() if (text := difference(test, test.compiled.run(test.feeds)))]
    assert not wrong, "\n".join(wrong)
    assert len(node_tests()) >= EXPECTED_TO_COMPILE, Counter(test.name.split("_")[1] for test in node_tests())


def check_built(tests: tuple[NodeTest, ...], library: str) -> None:
    """Builds all graphs into one library and runs them. Its name must be its own: Python has one module of a name."""
    isa = find_isa("native")
    plans = [test.compiled.plans[0] for test in tests]
    ops = [f"op_{index}" for index in range(len(tests))]
    sources = render_library(plans, name=library, domain=f"ortisan.{library}", ops=ops, isa=isa)
    built = build_library(sources, name=library, isa=isa, bindings=True)
    module = import_binding(built.binding)
    wrong = []
    for index, (test, plan) in enumerate(zip(tests, plans, strict=True)):
        graph = module.Graph(index, threads=2)
        graph.set_weights([_raw(array) for array in plan.packed_weights()])
        arrays = [
            _raw(np.ascontiguousarray(test.feeds[value.name]).reshape(test.feeds[value.name].shape))
            for value in plan.graph.inputs
        ]
        results = dict(zip(plan.graph.output_names, graph.run(arrays), strict=True))
        names = [value.name for value in test.compiled.model.graph.outputs]
        # An output that was folded to a constant, or that is an input, is no output of the compiled graph.
        pairs = [(results[name], want) for name, want in zip(names, test.outputs, strict=True) if name in results]
        typed = [_typed(have, want.dtype) for have, want in pairs]
        if text := difference(test, typed, [want for _, want in pairs]):
            wrong.append(text)
    assert not wrong, "\n".join(wrong)


def _raw(array: Any) -> Any:
    return array.view(np.uint16) if array.dtype == DType.BFLOAT16.numpy else array


def _typed(array: Any, dtype: Any) -> Any:
    return array.view(dtype) if dtype == DType.BFLOAT16.numpy else array


@pytest.mark.build
def test_a_sample_of_built_kernels_is_right() -> None:
    check_built(node_tests()[::9], "node_tests")


@pytest.mark.build
@pytest.mark.slow
def test_all_built_kernels_are_right() -> None:
    check_built(node_tests(), "all_node_tests")
