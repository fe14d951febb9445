"""The official node tests of ONNX, each through canonical form: ONNX Runtime gives the same before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from ortisan.converter.fuse import expand_private
from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from ortisan.errors import OrtisanError
from tests.tolerances import HALF, SAME

pytestmark = pytest.mark.slow

ORT_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
NEWEST_OPSET, NEWEST_IR = 26, 13
# Reaches a bug of onnxscript's folder, which is reported and survived.
UNFOLDABLE = "test_split_to_sequence_1"


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    """A session of the model, stamped with the newest versions that ORT takes."""
    stamped = onnx.ModelProto()
    stamped.CopyFrom(model)
    stamped.ir_version = min(stamped.ir_version, NEWEST_IR)
    for opset in stamped.opset_import:
        if opset.domain == "":
            opset.version = min(opset.version, NEWEST_OPSET)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(stamped.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _array(value: Any) -> Any:
    """What ORT takes: the cases also hold TensorProto and numpy scalars."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _fits_numpy(graph: onnx.GraphProto) -> bool:
    """Whether ORT's Python API can pass all inputs and outputs: types that numpy itself has."""
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)]
    return all(onnx.helper.tensor_dtype_to_np_dtype(number).isbuiltin == 1 for number in types if number)


def _check(case: Any) -> bool:
    """Whether the original could be run for comparison; asserts the rest."""
    canonical = canonicalize(load_model(case.model))
    failures = [miss for miss in canonical.near_misses if miss.pattern == "fold constants"]
    assert bool(failures) == (case.name == UNFOLDABLE), failures
    expand_private(canonical.model)
    graph = canonical.model.graph
    assert [value.name for value in graph.inputs] == [value.name for value in case.model.graph.input]
    assert [value.name for value in graph.outputs] == [value.name for value in case.model.graph.output]
    if not _fits_numpy(case.model.graph):
        return False
    try:
        session = _session(case.model)
        feeds = {value.name: array for value, array in zip(session.get_inputs(), case.data_sets[0][0], strict=False)}
        feeds = {name: _array(value) for name, value in feeds.items()}
        expected = session.run(None, feeds)
    except ORT_ERRORS:
        return False
    _compare(_session(ir.to_proto(canonical.model)).run(None, feeds), expected)
    return True


def test_all_node_tests() -> None:
    """In one test, because making the cases takes seconds that a run without slow tests should not spend."""
    from onnx.backend.test.loader import load_model_tests

    ran, failed = 0, []
    for case in load_model_tests(kind="node"):
        try:
            ran += _check(case)
        except (AssertionError, OrtisanError, *ORT_ERRORS) as error:
            failed.append(f"{case.name}: {str(error).strip()[:200]}")
    assert not failed, "\n".join(failed)
    assert ran > 1500


def _compare(actual: list[Any], expected: list[Any]) -> None:
    for a, b in zip(actual, expected, strict=True):
        if isinstance(b, np.ndarray) and b.dtype.kind == "f":
            # Folding computes float16 in numpy, one step of which may differ from ORT's.
            tolerance = HALF if b.dtype == np.float16 else SAME
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        else:
            assert repr(a) == repr(b)
