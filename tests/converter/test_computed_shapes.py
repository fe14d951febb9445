"""Shapes that are computed: what is not known of their elements is not assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ortisan
from tests.models.text import run_ort, text_model

BODY = """s = Shape(x) n = Gather(s, zero) t = Concat<axis = 0>(n, k) p = Reshape(x, t) q = Reshape(z, t)
    c = Concat<axis = 1>(p, q) y = Exp(c)"""
MODEL = text_model(
    "(float[n,4] x, float[n,6] z, int64[1] k) => (float[n,a] y)", BODY, constants={"zero": np.array([0])}
)


def test_two_reshapes_to_one_computed_shape_need_not_agree() -> None:
    """The element may be -1, and stands for another size each time."""
    compiled = ortisan.compile(MODEL, tune="off")
    (graph,) = compiled.graphs
    first, second = (value.shape[1] for value in graph.inputs)
    assert first != second
    assert graph.outputs[0].shape[1] == first + second


def test_dims_that_are_read_off_shapes_are_still_known() -> None:
    body = "s = Shape(x) n = Gather(s, zero) t = Concat<axis = 0>(n, rest) p = Reshape(x, t) y = Exp(p)"
    constants = {"zero": np.array([0]), "rest": np.array([2, -1])}
    model = text_model("(float[n,4] x) => (float[n,2,2] y)", body, constants=constants)
    (graph,) = ortisan.compile(model, tune="off", whole_graph=True).graphs
    assert str(graph.outputs[0].type) == "float32[n, 2, 2]"


@pytest.mark.build
def test_the_artifact_takes_minus_one(tmp_path: Path) -> None:
    inputs = {"x": np.ones((3, 4), np.float32), "z": np.ones((3, 6), np.float32), "k": np.array([-1])}
    artifact = ortisan.build(MODEL, tmp_path / "out", keep="all", tune="off", quick=True, inputs=inputs)
    assert artifact.manifest["departures"] == []
    np.testing.assert_allclose(ortisan.load(artifact.folder).run(None, inputs)[0], run_ort(MODEL, inputs)[0], rtol=1e-6)


def test_keepdims_is_one_or_nothing() -> None:
    """For any other number ONNX Runtime drops the dims, so what follows has one dim less."""
    body = "s = ReduceSum<keepdims = 100>(x, one) t = custom.Thing(s) y = Exp(t) z = Neg(s)"
    model = text_model("(float[n,4] x) => (float y, float[n] z)", body, constants={"one": np.array([1])})
    (value,) = [v for node in ortisan.compile(model, tune="off").model.graph for v in node.outputs if v.name == "s"]
    assert value.shape is not None
    assert value.shape.rank() == 1


def test_pieces_of_a_sequence_are_written_in_the_models_opset() -> None:
    """`num_outputs` is of opset 18. The index is not known, so that the sequence and its Split stay."""
    body = "l = SplitToSequence<axis = 1>(x, two) a = SequenceAt(l, i) y = Exp(a)"
    model = text_model("(float[n,6] x, int64 i) => (float[n,2] y)", body, constants={"two": np.array(2)})
    converted = ortisan.convert_graph(model, ortisan.compile(model, tune="off"))
    feeds = {"x": np.ones((2, 6), np.float32), "i": np.array(1)}
    kept = [node for node in converted.graph.node if node.op_type == "Split"]
    assert kept
    assert not [attribute for node in kept for attribute in node.attribute if attribute.name == "num_outputs"]
    assert run_ort(model, feeds)[0].shape == (2, 2)


def test_an_empty_input_of_concat_with_other_dims_is_for_onnx_runtime() -> None:
    model = text_model("(float[n,2] x, float[0,3] z) => (float[n,m] y)", "a = Concat<axis = 1>(x, z) y = Exp(a)")
    reasons = [left.reason for left in ortisan.compile(model, tune="off").left_out if left.op_type == "Concat"]
    assert reasons == ["an input has no elements and other dims, which ONNX Runtime skips"]


def test_a_scale_that_is_no_row_of_what_is_normalized_is_for_onnx_runtime() -> None:
    """ONNX Runtime spreads it over the dims before."""
    model = text_model(
        "(float[n,8,8] x) => (float[n,8,8] y)",
        "a = LayerNormalization(x, g) y = Exp(a)",
        constants={"g": np.ones((8, 1), np.float32)},
    )
    left = [each.reason for each in ortisan.compile(model, tune="off").left_out if each.op_type == "LayerNormalization"]
    assert left == ["a scale or bias of float32[8, 1] is not of the shape that is normalized"]
