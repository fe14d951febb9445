"""Partitioning: the largest convex subgraphs, and a reason for every node left out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.converter.partition import Partition
from tests.models.text import text_model

XY = "(float[B,4] x) => (float[B,4] y)"
# An op of ONNX Runtime's that has no lowering and keeps the shape.
FOREIGN = {"i": np.zeros((1, 4), np.int64), "u": np.zeros((1, 4), np.float32)}


def parts(model: onnx.ModelProto, **options: object) -> Partition:
    return ortisan.compile(model, target="reference", **options).partition  # type: ignore[arg-type]


def ops(partition: Partition) -> list[list[str]]:
    return [sorted(node.op_type for node in subgraph.nodes) for subgraph in partition.subgraphs]


def test_everything_that_lowers_is_one_subgraph() -> None:
    assert ops(parts(text_model(XY, "a = Relu(x) b = Exp(a) y = Tanh(b)"))) == [["Exp", "Relu", "Tanh"]]


def test_a_foreign_node_splits() -> None:
    found = parts(text_model(XY, "a = Relu(x) b = ScatterElements(a, i, u) y = Tanh(b)", constants=FOREIGN))
    assert ops(found) == [["Relu"], ["Tanh"]]
    assert [left.reason for left in found.left_out] == ["no lowering for op ScatterElements"]


def test_what_follows_an_op_of_unknown_type_is_left_out_with_it() -> None:
    found = parts(text_model(XY, "a = Relu(x) b = custom.Mystery(a) y = Tanh(b)"))
    assert ops(found) == [["Relu"]]
    assert [left.reason for left in found.left_out] == [
        "no lowering for op Mystery of domain 'custom'",
        "the type of 'b' is not known, because Mystery 'Mystery' has no rule of shape inference",
    ]


def test_a_path_around_a_foreign_node_keeps_the_subgraph_convex() -> None:
    """x -> Relu -> Scatter -> Add, and Relu -> Add: Relu and Add must not become one op."""
    found = parts(text_model(XY, "a = Relu(x) b = ScatterElements(a, i, u) y = Add(a, b)", constants=FOREIGN))
    assert ops(found) == [["Relu"], ["Add"]]


def test_a_node_that_only_feeds_a_later_subgraph_joins_it() -> None:
    """Exp does not depend on Scatter, but only Add reads it."""
    found = parts(text_model(XY, "m = ScatterElements(x, i, u) a = Exp(x) y = Add(a, m)", constants=FOREIGN))
    assert ops(found) == [["Add", "Exp"]]


def test_separate_branches_are_separate_subgraphs() -> None:
    found = parts(text_model("(float[B,4] x, float[4] z) => (float[B,4] y, float[4] w)", "y = Relu(x) w = Tanh(z)"))
    assert sorted(ops(found)) == [["Relu"], ["Tanh"]]


def test_nodes_that_only_move_data_stay_in_onnxruntime() -> None:
    found = parts(text_model("(float[B,4] x) => (float[4,B] y)", "y = Transpose(x)"))
    assert not found.subgraphs
    assert "nothing to compute" in found.left_out[0].reason


def test_exclude_by_op_type_and_by_name() -> None:
    model = text_model(XY, "a = Relu(x) b = Exp(a) y = Tanh(b)")
    assert ops(parts(model, exclude="Exp")) == [["Relu"], ["Tanh"]]
    model.graph.node[1].name = "middle"
    assert ops(parts(model, exclude=["middle"])) == [["Relu"], ["Tanh"]]
    assert parts(model, exclude="middle").left_out[0].reason == "excluded"


def test_include_by_predicate() -> None:
    found = parts(text_model(XY, "a = Relu(x) b = Exp(a) y = Tanh(b)"), include=lambda node: node.op_type != "Relu")
    assert ops(found) == [["Exp", "Tanh"]]


def test_an_excluded_node_is_not_fused() -> None:
    body = "a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)"
    constants = {"r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = text_model(XY, body, constants=constants)
    assert ortisan.compile(model, target="reference").op_counts() == {"elementwise.gelu": 1}
    assert ops(parts(model, exclude="Erf")) == [["Div"], ["Add", "Mul", "Mul"]]


@pytest.mark.parametrize("pattern, expected", [("layer_ann:enc", ["Exp", "Relu"]), ("layer_ann:=enc.0", ["Relu"])])
def test_layer_annotations_select(pattern: str, expected: list[str]) -> None:
    model = text_model(XY, "a = Relu(x) b = Exp(a) y = Tanh(b)")
    for node, layer in zip(model.graph.node, ("enc.0", "enc.1", "dec.0"), strict=True):
        node.metadata_props.add(key="layer_ann", value=layer)
    assert ops(parts(model, include=pattern)) == [expected]


def test_between_takes_the_paths_and_the_rest_comes_in_as_inputs() -> None:
    model = text_model(
        "(float[B,4] x, float[B,4] m) => (float[B,4] y)", "a = Relu(x) k = Exp(m) b = Add(a, k) c = Tanh(b) y = Neg(c)"
    )
    found = parts(model, between=("a", "c"))
    assert ops(found) == [["Add", "Tanh"]]
    assert sorted(value.name for value in found.subgraphs[0].inputs) == ["a", "k"]


def test_shape_arithmetic_from_outside_is_recomputed_inside() -> None:
    """The shape for Reshape is computed before the cut; the subgraph knows the dims, so it needs no input for it."""
    body = "s = Shape(x) d = Gather(s, zero) u = Unsqueeze(d, zeros) n = Concat<axis = 0>(u, rest) a = Relu(x) b = Reshape(a, n) y = Tanh(b)"
    constants = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([2, 2])}
    model = text_model("(float[B,4] x) => (float[B,2,2] y)", body, constants=constants)
    found = parts(model, between=("a", "y"))
    assert [value.name for value in found.subgraphs[0].inputs] == ["a"]


def test_a_value_read_inside_control_flow_stays_available() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (bool c, float[4] x) => (float[4] y) {
        a = Relu(x)
        b = Exp(a)
        t = If (c) <
            then_branch = g1 () => (float[4] p) { p = Neg(b) },
            else_branch = g2 () => (float[4] q) { q = Identity(a) }
        >
        y = Tanh(t)
    }"""
    found = parts(onnx.parser.parse_model(text))
    assert ops(found) == [["Exp", "Relu"], ["Tanh"]]
    assert sorted(value.name for value in found.subgraphs[0].outputs) == ["a", "b"]
    assert [left.op_type for left in found.left_out] == ["If", "Neg", "Identity"]


def test_whole_graph_names_every_node_that_cant() -> None:
    model = text_model(XY, "a = ScatterElements(x, i, u) b = Relu(a) y = custom.Two(b)", constants=FOREIGN)
    with pytest.raises(ortisan.UnsupportedError, match=r"2 nodes[\s\S]*ScatterElements[\s\S]*Two"):
        ortisan.compile(model, whole_graph=True)


def test_a_dim_that_no_input_gives_becomes_a_symbol_of_its_own() -> None:
    """The boundary has only T = P + S: neither P nor S can be told from it."""
    model = text_model(
        "(float[P,4] p, float[S,4] s) => (float[T,4] y)",
        "a = Concat<axis = 0>(p, s) m = custom.Mystery(a) b = Relu(a) y = Tanh(b)",
    )
    found = parts(model, between=("a", "y"))
    (subgraph,) = found.subgraphs
    assert len(subgraph.graph.symbols) == 1


def test_converting_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    model = text_model(
        "(float[B,4] x, float[4] w) => (float[B,4] y)", "y = Mul(x, w)", constants={"w": np.ones(4, "f")}
    )
    compiled = ortisan.compile(model, target="cpu:x86-64-v3")
    caplog.clear()
    ortisan.convert_graph(model, compiled)
    assert not caplog.records
