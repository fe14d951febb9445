"""Bodies of If, Loop and Scan are partitioned like graphs of their own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.converter.partition import Subgraph
from ortisan.pipeline.inspect import inspect
from tests.models.control_flow import PARTS, WIDTH, control_flow_model
from tests.models.text import text_model


def subgraphs(*names: str, **options: object) -> tuple[Subgraph, ...]:
    return ortisan.compile(control_flow_model(*names), target="reference", **options).subgraphs  # type: ignore[arg-type]


def reasons(model: onnx.ModelProto, **options: object) -> dict[str, str]:
    compiled = ortisan.compile(model, target="reference", **options)  # type: ignore[arg-type]
    return {left.op_type: left.reason for left in compiled.left_out}


@pytest.mark.parametrize("name", PARTS)
def test_each_part_becomes_its_ops_and_the_rest_has_reasons(name: str) -> None:
    compiled = ortisan.compile(control_flow_model(name), target="reference")
    assert len(compiled.ops) == PARTS[name].ops
    inside = {node.name for subgraph in compiled.subgraphs for node in subgraph.nodes}
    left = {left.node for left in compiled.left_out}
    assert inside | left == {node.name for node in compiled.model.graph.all_nodes()}
    assert not inside & left


def test_a_subgraph_knows_its_graph() -> None:
    scopes = [subgraph.scope for subgraph in subgraphs("nested")]
    assert scopes == [
        (),
        (("If", "then_branch"),),
        (("If", "then_branch"), ("If_1", "then_branch")),
    ]


def test_values_of_outer_graphs_are_inputs_and_their_constants_weights() -> None:
    *_, body = subgraphs("loop")
    assert [value.name for value in body.inputs] == ["state", "loop_r", "loop_most"]
    assert "loop_w" in {value.name for value in body.graph.constants}


def test_what_a_loop_only_carries_along_is_taken_out_of_it() -> None:
    compiled = ortisan.compile(control_flow_model("carrying"), target="reference")
    (loop,) = (node for node in compiled.model.graph if node.op_type == "Loop")
    assert [value.name for value in loop.inputs] == ["carry_m", "carry_go", "carry_x"]
    (body,) = (subgraph for subgraph in compiled.subgraphs if subgraph.scope)
    assert [value.name for value in body.inputs] == ["state", "carry_r"]
    assert "carry_w" in {value.name for value in body.graph.constants}


@pytest.mark.parametrize("last", ["next = MatMul(state, w) v = Neg(w)", "next = MatMul(w, state) v = Identity(state)"])
def test_what_a_loop_changes_stays_in_it(last: str) -> None:
    body = f"""go = Constant <value = bool {{1}}> ()
        y, z = Loop <body = turn (int64 i, bool on, float[] state, float[] w) => (bool more, float[] next, float[] v)
            {{ {last} more = Identity(on) }}> (m, go, x, u)"""
    model = text_model("(int64 m, float[9,9] x, float[9,9] u) => (float[9,9] y, float[9,9] z)", body)
    (loop,) = (node for node in ortisan.compile(model, target="reference", include="MatMul").model.graph)
    assert len(loop.inputs) == 4


def test_shape_arithmetic_of_an_outer_graph_is_recomputed_inside() -> None:
    body = f"""s = Shape(x) flat = Concat <axis = 0> (minus, s)
        y = If (c) <
            then_branch = yes () => (float[1,n,{WIDTH}] p) {{ m = MatMul(x, w) p = Reshape(m, flat) }},
            else_branch = no () => (float[1,n,{WIDTH}] p) {{ p = Reshape(x, flat) }}
        >"""
    constants = {"w": np.ones((WIDTH, WIDTH), np.float32), "minus": np.array([1])}
    model = text_model(f"(bool c, float[n,{WIDTH}] x) => (float[1,n,{WIDTH}] y)", body, constants=constants)
    (subgraph,) = ortisan.compile(model, target="reference").subgraphs
    assert [value.name for value in subgraph.inputs] == ["x"]
    assert str(subgraph.graph.outputs[0].shape) == f"(1, n, {WIDTH})"


def test_a_requirement_of_a_branch_is_none_of_the_model() -> None:
    """Only where the branch is taken is n even, and two halves of it the whole."""
    body = """pair = Constant <value_ints = [-1, 2]> ()
        t = If (c) <
            then_branch = yes () => (float[] p) { q = Reshape(x, pair) p = ReduceSum <keepdims = 0> (q) },
            else_branch = no () => (float[] p) { p = ReduceSum <keepdims = 0> (x) }
        >
        half = MaxPool <kernel_shape = [2], strides = [2]> (x)
        both = Concat <axis = 2> (half, half)
        scattered = ScatterElements <axis = 2> (both, i, u) y = Exp(scattered)"""
    constants = {"i": np.zeros((1, 1, 1), np.int64), "u": np.zeros((1, 1, 1), np.float32)}
    model = text_model("(bool c, float[1,1,n] x) => (float[1,1,m] y, float[] t)", body, constants=constants)
    compiled = ortisan.compile(model, target="reference", include="Exp")
    (value,) = compiled.subgraphs[0].inputs
    assert str(value.shape[2]) != "n"


def test_declared_shapes_of_a_body_are_hints() -> None:
    """Two scans call different dims by the same name, and one has a wrong number."""
    body = f"""a = Scan <num_scan_inputs = 1, body = one (float[q,{WIDTH}] s) => (float[q,{WIDTH}] o) {{ o = Relu(s) }}> (x)
        b = Scan <num_scan_inputs = 1, body = two (float[q,7] s) => (float[q,{WIDTH}] o) {{ o = Tanh(s) }}> (z)
        y = Exp(a) v = Exp(b)"""
    kind = f"float[i,j,{WIDTH}]"
    model = text_model(f"(float[k,m,{WIDTH}] x, float[l,n,{WIDTH}] z) => ({kind} y, {kind} v)", body)
    found = ortisan.compile(model, target="reference").subgraphs
    shapes = [str(value.shape) for each in found if each.scope for value in each.graph.inputs]
    assert shapes == [f"(m, {WIDTH})", f"(n, {WIDTH})"]


def test_what_differs_between_branches_is_not_known_after_them() -> None:
    for name, known in (("same", True), ("custom.Mystery", False)):
        operation = "Relu" if name == "same" else name
        body = f"""t = If (c) < then_branch = yes () => (float[] p) {{ p = Exp(x) }},
            else_branch = no () => (float[] p) {{ p = {operation}(x) }} > y = Tanh(t)"""
        left = reasons(text_model("(bool c, float[n,64] x) => (float[n,64] y)", body))
        assert ("Tanh" not in left) == known


def test_few_operations_on_a_counter_stay() -> None:
    left = reasons(control_flow_model("left"))
    assert left["Mul"] == "too small to pay for a call: about 3 operations"
    assert left["Loop"].startswith("control flow stays in ONNX Runtime")


def test_small_bodies_are_compiled_when_asked_for() -> None:
    (subgraph,) = subgraphs("left", include=["Mul", "Sub"])
    assert [node.op_type for node in subgraph.nodes] == ["Mul", "Sub"]


def test_control_flow_is_excluded_with_what_is_inside() -> None:
    left = reasons(control_flow_model("branches", "scan"), exclude="If")
    assert left["If"] == left["Relu"] == "excluded"
    assert [subgraph.scope[0][0] for subgraph in subgraphs("branches", "scan", exclude="If")] == ["Scan"]


def test_between_leads_through_what_a_body_reads() -> None:
    found = subgraphs("nested", between=("nested_e", "nested_y"))
    assert found
    assert {subgraph.scope[0][0] for subgraph in found if subgraph.scope} == {"If"}
    assert all(subgraph.scope for subgraph in found)


def test_the_whole_graph_has_no_control_flow() -> None:
    with pytest.raises(ortisan.UnsupportedError, match=r"1 node:\n  Scan 'Scan': control flow"):
        subgraphs("scan", whole_graph=True)


def test_other_ops_with_graphs_keep_them() -> None:
    body = """s = SequenceConstruct(x, x)
        t = SequenceMap <body = each (float[n,64] a) => (float[n,64] b) { b = Exp(a) }> (s)
        y = ConcatFromSequence <axis = 0> (t)"""
    left = reasons(text_model("(float[n,64] x) => (float[m,64] y)", body, opset=18))
    assert left["Exp"] == "it is inside of SequenceMap 'SequenceMap', whose graphs stay in ONNX Runtime"


def test_inspect_counts_what_is_inside() -> None:
    rows = {row.op_type: row for row in inspect(control_flow_model("branches")).rows}
    assert (rows["MatMul"].nodes, rows["MatMul"].compiled) == (4, 4)
    assert rows["If"].left == 1


def test_work_inside_counts() -> None:
    assert ortisan.compile(control_flow_model("scan"), target="reference").flops_share() == 1
    assert ortisan.compile(control_flow_model("scan"), target="reference", exclude="MatMul").flops_share() < 0.1
