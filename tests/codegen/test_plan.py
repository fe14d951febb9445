"""Fusion groups, views, the memory plan, and what the generated source looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.cpu.packing import pack, packed_bytes
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from ortisan.codegen.render import cpp_string
from ortisan.codegen.strides import reshaped_strides
from ortisan.models import BertSize, bert
from ortisan.pipeline.generate import render_sources
from ortisan.registry.dtypes import DType
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import APPROXIMATE, SAME

XY = "(float[B,4] x) => (float[B,4] y)"


def plan(model: onnx.ModelProto, **options: object) -> GraphPlan:
    return ortisan.compile(model, whole_graph=True, **options).plans[0]  # type: ignore[arg-type]


def groups(model: onnx.ModelProto) -> list[str]:
    return [group.name for group in plan(model).groups]


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_an_elementwise_chain_is_one_kernel() -> None:
    assert groups(text_model(XY, "a = Relu(x) b = Exp(a) c = Mul(a, b) y = Tanh(c)")) == [
        "elementwise.relu_exp_mul_tanh"
    ]


def test_bias_activation_and_residual_join_the_product() -> None:
    model = text_model(
        XY, "a = MatMul(x, w) b = Add(a, v) c = Gelu(b) y = Add(c, x)", opset=20, constants=weights(w=(4, 4), v=(4,))
    )
    assert groups(model) == ["gemm_rcr_add_gelu_add"]


def test_a_batch_broadcast_does_not_join_the_product() -> None:
    model = text_model(
        "(float[B,S,4] x, float[B,1,4] m) => (float[B,S,4] y)",
        "a = MatMul(x, w) y = Add(a, m)",
        constants=weights(w=(4, 4)),
    )
    assert groups(model) == ["gemm_rcr", "elementwise.add"]


def test_an_intermediate_that_others_read_is_written_too() -> None:
    model = text_model("(float[B,4] x) => (float[B,4] y, float[4] z)", "a = Relu(x) y = Exp(a) z = ReduceMax<keepdims = 0>(a, axes)",
                       opset=18, constants={"axes": np.array([0])})  # fmt: skip
    first = plan(model).groups[0]
    assert [node.op.name for node in first.nodes] == ["elementwise.relu", "elementwise.exp"]
    assert len(first.outputs) == 2


def test_an_operand_made_later_keeps_its_reader_out() -> None:
    """Add needs the second product, which runs after the first: it joins the second, not the first."""
    model = text_model(XY, "a = MatMul(x, w) b = MatMul(x, v) y = Add(a, b)", constants=weights(w=(4, 4), v=(4, 4)))
    assert groups(model) == ["gemm_rcr", "gemm_rcr_add"]


def test_products_of_one_input_run_together() -> None:
    model = text_model(
        "(float[B,4] x) => (float[B,6] y, float[B,5] z)",
        "a = MatMul(x, w) y = Relu(a) b = MatMul(x, v) z = Add(b, u)",
        constants=weights(w=(4, 6), v=(4, 5), u=(5,)),
    )
    assert groups(model) == ["gemm_rcr_relu_and_gemm_rcr_add"]


SPLIT = "q0, k0, v0 = Split<axis = 2>(qkv, thirds)"
HEADS = "q1 = Reshape(q0, h) k1 = Reshape(k0, h) v1 = Reshape(v0, h)"
PERMUTES = "q = Transpose<perm=[0,2,1,3]>(q1) k = Transpose<perm=[0,2,3,1]>(k1) v = Transpose<perm=[0,2,1,3]>(v1)"
SELECT = """five = Reshape(qkv, hh) moved = Transpose<perm=[2,0,3,1,4]>(five)
    q = Gather<axis = 0>(moved, i0) kk = Gather<axis = 0>(moved, i1) v = Gather<axis = 0>(moved, i2)
    k = Transpose<perm=[0,1,3,2]>(kk)"""
ATTEND = """l = MatMul(q, k) s = Div(l, two) p = Softmax<axis = -1>(s) o = MatMul(p, v)
    t = Transpose<perm=[0,2,1,3]>(o) y = Reshape(t, joined)"""
PACKED = {"split": f"{SPLIT} {HEADS} {PERMUTES}", "selected": SELECT}


def packed_attention(form: str) -> onnx.ModelProto:
    """Queries, keys and values as one product, two heads of 4."""
    constants = weights(w=(8, 24)) | {
        "thirds": np.array([8, 8, 8]), "h": np.array([0, 0, 2, 4]), "hh": np.array([0, 0, 3, 2, 4]), "joined": np.array([0, 0, 8]),
        "two": np.float32(2), "i0": np.array(0), "i1": np.array(1), "i2": np.array(-1),
    }  # fmt: skip
    signature = "(float[B,S,8] x) => (float[B,S,8] y)"
    return text_model(signature, f"qkv = MatMul(x, w) {PACKED[form]} {ATTEND}", constants=constants)


@pytest.mark.parametrize("form", PACKED)
def test_attention_reads_a_packed_projection_where_it_is(form: str) -> None:
    assert groups(packed_attention(form)) == ["gemm_rcr", "attention"]


@pytest.mark.build
@pytest.mark.parametrize("form", PACKED)
def test_a_packed_projection_gives_the_right_numbers(form: str, tmp_path: Path) -> None:
    model = packed_attention(form)
    feeds = random_feeds(model, B=2, S=5)
    ortisan.build(model, tmp_path / form, keep="all", verify=False)
    session = ortisan.load(tmp_path / form)
    np.testing.assert_allclose(session.run(None, feeds)[0], run_ort(model, feeds)[0], rtol=APPROXIMATE, atol=SAME)


def test_a_mask_is_not_expanded_for_attention() -> None:
    body = """e = Expand(m, s) t = Transpose<perm=[0,1,3,2]>(k) p = MatMul(q, t) l = Add(p, e) a = Softmax<axis = -1>(l) y = MatMul(a, v)"""
    model = text_model(
        "(float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,1,1,7] m) => (float[2,3,5,4] y)",
        body,
        constants={"s": np.array([2, 1, 5, 7])},
    )
    assert groups(model) == ["attention"]


def test_a_part_that_something_else_reads_is_split_off() -> None:
    model = packed_attention("split")
    model.graph.node.append(onnx.helper.make_node("Softmax", ["v0"], ["z"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["B", "S", 8]))
    assert groups(model) == ["gemm_rcr", "split", "attention", "softmax"]


@pytest.mark.parametrize(
    ("shape", "strides", "target", "expected"),
    [
        ((2, 12), (36, 1), (2, 3, 4), (36, 4, 1)),
        ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
        ((2, 3, 4), (36, 4, 1), (6, 4), None),
        ((2, 1, 4), (36, 7, 1), (2, 4, 1), (36, 1, 0)),
        ((4, 6), (6, 1), (8, 3), None),
    ],
)
def test_strides_after_a_reshape(shape: Any, strides: Any, target: Any, expected: Any) -> None:
    assert reshaped_strides(shape, strides, target) == expected


def test_reshapes_run_no_kernel() -> None:
    model = text_model(
        "(float[B,4] x) => (float[B,2,2] y)", "a = Relu(x) y = Reshape(a, s)", constants={"s": np.array([0, 2, 2])}
    )
    assert groups(model) == ["elementwise.relu"]


def test_one_value_is_read_as_a_row_and_as_a_column() -> None:
    """Both are views of one memory, and one loop reads both."""
    model = text_model(
        "(float[S] x) => (bool[S,S] y)",
        "a = Unsqueeze(x, first) b = Unsqueeze(x, second) y = Less(a, b)",
        constants={"first": np.array([0]), "second": np.array([1])},
    )
    assert "fn::lt(x0, x1)" in render_sources(ortisan.compile(model, name="t"))["kernels_0.cpp"]


def test_attention_reads_and_writes_through_permutes() -> None:
    import onnx_ir as ir

    model = ir.to_proto(bert(BertSize(layers=1, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)))
    names = groups(model)
    assert names.count("attention") == 1
    assert not [name for name in names if "permute" in name]


@pytest.mark.parametrize(("total", "shared"), [("T", 2), ("P", 2), ("P + S", 0)])
def test_a_cache_that_may_be_as_long_as_the_past_may_be_its_memory(total: str, shared: int) -> None:
    model = text_model(
        f"(float[B,S,16] q, float[B,S,16] k, float[B,S,16] v, float[B,2,P,8] pk, float[B,2,P,8] pv, int32[B] last,"
        f' bool["{total}"] total) => (float[B,S,16] y, float[B,2,?,8] nk, float[B,2,?,8] nv)',
        "n = Shape(total) count = Cast<to = 6>(n) y, nk, nv ="
        " com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 2>(q, k, v, pk, pv, last, count)",
    )
    assert len(plan(model).memory.shared) == shared


def test_scratch_is_shared_by_liveness() -> None:
    body = " ".join(f"a{i + 1} = Softmax(a{i})" for i in range(20)).replace("a0", "x") + " y = Relu(a20)"
    memory = plan(text_model(XY, body)).memory
    assert len(memory.slots) == 2


def test_a_residual_is_replaced_by_the_sum() -> None:
    body = "r = Softmax(x) a = Softmax(r) b = MatMul(a, w) c = Add(b, r) y = Softmax(c)"
    built = plan(text_model(XY, body, constants=weights(w=(4, 4))))
    residual, _, joined, _ = (group.outputs[0] for group in built.groups)
    assert built.memory.places[joined] == built.memory.places[residual]


@pytest.mark.parametrize("last", ["y = Add(c, r)", "d = Softmax(c) y = Mul(d, r)"])
def test_a_residual_that_is_read_again_stays(last: str) -> None:
    body = f"r = Softmax(x) a = Softmax(r) b = MatMul(a, w) e = Add(b, r) c = Softmax(e) {last}"
    built = plan(text_model(XY, body, constants=weights(w=(4, 4))))
    places = built.memory.places
    assert places[built.groups[0].outputs[0]] != places[built.groups[2].outputs[0]]


def places_of(body: str) -> list[object]:
    """Where the outputs of the groups live."""
    built = plan(text_model(XY, body, constants=weights(w=(4, 4))))
    return [built.memory.places[value] for group in built.groups for value in group.outputs]


def test_a_loop_replaces_what_it_reads_last() -> None:
    first, second, _ = places_of("a = Softmax(x) b = Exp(a) y = Softmax(b)")
    assert first == second


def test_a_loop_with_two_outputs_replaces_each_input_once() -> None:
    body = "a = Softmax(x) b = LogSoftmax(x) c = Add(a, b) d = Mul(c, c) e = Softmax(c) f = Softmax(d) y = Add(e, f)"
    a, b, c, d, *_ = places_of(body)
    assert {c, d} == {a, b}


@pytest.mark.parametrize(
    "body",
    [
        "a = Softmax(x) b = Exp(a) c = Softmax(b) y = Add(a, c)",
        "a = Softmax(x) b = Log(a) y = Softmax(b)",
        "a = Softmax(x) p = Transpose<perm = [1, 0]>(a) t = MatMul(a, p) b = Softmax(t) y = Exp(b)",
    ],
    ids=["read again", "may run twice", "an output"],
)
def test_a_loop_replaces_nothing_else(body: str) -> None:
    places = places_of(body)
    assert places[0] != places[1]
    assert places[-2] != places[-1]


def test_keep_all_shares_nothing() -> None:
    body = " ".join(f"a{i + 1} = Softmax(a{i})" for i in range(5)).replace("a0", "x") + " y = Relu(a5)"
    graph = plan(text_model(XY, body)).graph
    assert len(plan_graph(graph, keep_all=True).memory.slots) == 5


def test_live_values_never_share_a_slot() -> None:
    import onnx_ir as ir

    built = plan(
        ir.to_proto(bert(BertSize(layers=2, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)))
    )
    views, places = built.views, built.memory.places
    last = {views.root(value): now for now, group in enumerate(built.groups) for value in group.inputs}
    tenants: dict[int, list[tuple[int, int]]] = {}
    for now, group in enumerate(built.groups):
        for value in group.outputs:
            place = places[views.root(value)]
            if place.kind == "scratch":
                tenants.setdefault(place.index, []).append((now, last.get(views.root(value), now)))
    for stays in tenants.values():
        for (_, end), (start, _) in zip(sorted(stays), sorted(stays)[1:], strict=False):
            # A product with a residual takes its place over, and so does a loop.
            name = built.groups[start].name
            assert start > end or (start == end and (name == "gemm_rcr_add_add" or name.startswith("elementwise")))


def test_equal_layers_share_their_kernels() -> None:
    one, three = (
        ortisan.compile(
            bert(BertSize(layers=n, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)), name="b"
        )
        for n in (1, 3)
    )
    count = [render_sources(compiled)["kernels_0.cpp"].count("\nvoid ") for compiled in (one, three)]
    assert count[0] == count[1]


def test_outputs_that_are_inputs_constants_or_each_other_are_copied() -> None:
    model = text_model("(float[B,4] x) => (float[B,4] p, float[B,4] q, float[4] w)", "a = Relu(x) p = Identity(a) q = Identity(a) w = Identity(c)",
                       constants=weights(c=(4,)))  # fmt: skip
    assert len(plan(model).memory.copies) >= 1


@pytest.mark.parametrize(
    "layout, shape", [("panels_rcr", (19, 5)), ("panels_rrr", (5, 19)), ("panels_rcr", (16, 3)), ("panels_rrr", (4, 1))]
)
def test_panels(layout: str, shape: tuple[int, int]) -> None:
    data = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape) + 1
    b = data.T if layout == "panels_rcr" else data
    packed = pack(data, layout)  # type: ignore[arg-type]
    assert packed.nbytes == packed_bytes(shape, DType.FLOAT32, layout)  # type: ignore[arg-type]
    panels = packed.reshape(-1, b.shape[0], 16)
    for k in range(b.shape[0]):
        for n in range(panels.shape[0] * 16):
            assert panels[n // 16, k, n % 16] == (b[k, n] if n < b.shape[1] else 0)


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "??/", "*/", "ü漢", "\x00\x01", "0123", "%"])
def test_strings_are_escaped(text: str) -> None:
    literal = cpp_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    assert literal[1:-1].replace('\\"', "").count('"') == 0
    assert literal[1:-1].encode().decode("unicode_escape").encode("latin-1") == text.encode()


def test_generated_source_names_its_templates_and_nothing_else() -> None:
    source = render_sources(ortisan.compile(text_model(XY, "y = Tanh(x)"), name="t"))["kernels_0.cpp"]
    assert "// From templates/cpu/elementwise/elementwise.cpp.j2" in source
    assert "/home" not in source
    assert "/tmp" not in source


CACHE = "(float[B,C,4] past, float[B,S,4] x, int64[B] at) => (float[B,C,4] present{more})"
WRITE = "k = Mul(x, x) present = TensorScatter<axis=1>({past}, k, at) "


def shared(more: str = "", body: str = "", past: str = "past") -> list[tuple[str, str]]:
    """The names of inputs and outputs that may be the same memory."""
    model = text_model(CACHE.format(more=more), body + WRITE.format(past=past), opset=24, ir_version=10)
    made = plan(model)
    return [(made.graph.inputs[i].name, made.graph.output_names[o]) for i, o in made.memory.shared]


def test_a_written_cache_may_be_the_output() -> None:
    assert shared() == [("past", "present")]
    assert shared(", float[B,C,4] y", "shape = Shape(past) ones = ConstantOfShape(shape) y = Cast<to=1>(ones) ") == [
        ("past", "present")
    ]


@pytest.mark.parametrize(
    "more, body, past",
    [
        (", float[B,C,4] y", "y = Relu(past) ", "past"),
        (", float[B,C,4] y", "y = Identity(past) ", "past"),
        (", float[N] y", "m = Constant<value_ints=[-1]>() r = Reshape(past, m) y = Relu(r) ", "past"),
        ("", "p = Neg(past) ", "p"),
        (", float[B,C,4] y", "y = TensorScatter<axis=1>(past, x, at) ", "past"),
    ],
)
def test_a_cache_that_others_read_may_not(more: str, body: str, past: str) -> None:
    assert shared(more, body, past) == []


def test_a_written_cache_that_is_no_output_has_memory_of_its_own() -> None:
    outputs = "(float[B,C,4] past, float[B,S,4] x, int64[B] at) => (float[B,C,4] y)"
    body = "k = Mul(x, x) present = TensorScatter<axis=1>(past, k, at) y = Relu(present)"
    assert plan(text_model(outputs, body, opset=24, ir_version=10)).memory.shared == ()
