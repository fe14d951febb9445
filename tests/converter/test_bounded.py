"""What a small file can stand for is bounded: functions, long dims, and what has no shape."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import sympy
from onnx import helper

import ortisan
from ortisan.converter.flops import node_flops
from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from ortisan.errors import UnsupportedError
from ortisan.registry.dims import broadcast_dim, evaluate, floor_div, is_long, maximum, minimum, symbol, total
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import SAME


def doubling(levels: int) -> onnx.ModelProto:
    """Each function calls the next one twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(levels):
        nodes = [helper.make_node("Neg", ["x"], ["y"])]
        if level < levels - 1:
            nodes = [
                helper.make_node(f"f{level + 1}", ["x"], ["a"], domain="local"),
                helper.make_node(f"f{level + 1}", ["a"], ["y"], domain="local"),
            ]
        functions.append(helper.make_function("local", f"f{level}", ["x"], ["y"], nodes, opsets))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="local")], "g", ends[:1], ends[1:])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def test_functions_that_amount_to_too_much_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"amount to 1610612734 nodes .* more than 200000"):
        canonicalize(load_model(doubling(30)))


def test_functions_are_inlined_under_names_of_their_own() -> None:
    graph = canonicalize(load_model(doubling(8))).model.graph
    assert len({node.name for node in graph}) == len(graph) == 128


def test_a_function_that_calls_itself_is_refused() -> None:
    model = doubling(2)
    model.functions[1].node[0].op_type, model.functions[1].node[0].domain = "f0", "local"
    with pytest.raises(UnsupportedError, match="calls itself"):
        canonicalize(load_model(model))


def test_a_long_dim_gets_a_name_of_its_own() -> None:
    inputs = ", ".join(f"float[d{index},4] x{index}" for index in range(40))
    body = "y0 = Relu(x0) " + " ".join(f"y{i + 1} = Concat<axis = 0>(y{i}, x{i})" for i in range(39))
    model = text_model(f"({inputs}) => (float[?,4] y39)", body)
    graph = canonicalize(load_model(model)).model.graph
    shapes = [value.shape for node in graph for value in node.outputs]
    assert all(isinstance(dim, int) or len(dim.free_symbols()) <= 32 for shape in shapes for dim in shape or ())
    left = ortisan.compile(model, target="reference").left_out
    assert left[0].reason == "a dim that is made of more than 32 dims and numbers is not supported"


def test_dims_are_evaluated_as_sympy_does() -> None:
    a, b = symbol("a"), symbol("b")
    dims = [
        a * b + 3,
        floor_div(a * 3 + 1, 4),
        minimum(a, b + 1),
        maximum(a - 7, 0),
        a**2 - b,
        sympy.Mod(a, 4) + sympy.ceiling(b / 3),
        broadcast_dim(a, b),
        total([a, 2, b, a]),
    ]
    for values in ({"a": 9, "b": 4}, {"a": 1, "b": 5}):
        for dim in dims:
            assert evaluate(dim, values) == int(dim.subs({a: values["a"], b: values["b"]}))


def test_quotients_by_numbers_are_exact_or_rounded_down() -> None:
    a = symbol("a")
    assert floor_div(6 * a + 4, 2) == 3 * a + 2
    assert floor_div(6 * a + 3, 2) == sympy.floor((6 * a + 3) / 2)
    assert not is_long(sympy.Add(*(symbol(f"s{index}") for index in range(32))))
    assert is_long(sympy.Add(*(symbol(f"s{index}") for index in range(33))))


def test_what_has_no_shape_counts_as_work() -> None:
    x, y = ir.Value(name="x"), ir.Value(name="y", shape=ir.Shape([2, 3]))
    assert node_flops(ir.node("Mystery", [x])) == 64 * 64
    assert node_flops(ir.node("Mystery", [x, y])) == 6
    negative = ir.node("Pad", [y])
    negative.outputs[0].shape = ir.Shape([-9, 3])
    assert node_flops(negative) == 0


@pytest.mark.parametrize("keepdims", [-1, 0, 1, 3])
@pytest.mark.parametrize("op", ["ReduceMax", "ArgMax"])
def test_dims_are_kept_for_1_alone(op: str, keepdims: int) -> None:
    where = "axes = [1]" if op == "ReduceMax" else "axis = 1"
    model = text_model("(float[N,4] x) => (float[?] y)", f"y = {op}<{where}, keepdims = {keepdims}>(x)")
    if op == "ArgMax":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    model.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = random_feeds(model)
    (have,) = ortisan.compile(model, target="reference", whole_graph=True).run(feeds)
    np.testing.assert_array_equal(have, run_ort(model, feeds)[0])


def test_pad_that_wraps_what_it_crops_is_left() -> None:
    model = text_model(
        "(float[N] x) => (float[?] y)", """y = Pad<mode = "wrap">(x, p)""", opset=19, constants={"p": np.array([-1, 3])}
    )
    (left,) = ortisan.compile(model, target="reference").left_out
    assert "wraps what is left" in left.reason


@pytest.mark.parametrize(
    "op",
    [
        "Scaler<offset = [1.0, -2.0, 0.5], scale = [2.0, 0.25, 3.0]>",
        "Scaler<offset = [1.0], scale = [0.5]>",
        'Normalizer<norm = "MAX">',
        'Normalizer<norm = "L1">',
        'Normalizer<norm = "L2">',
    ],
)
def test_ops_of_tables_give_what_onnx_runtime_gives(op: str) -> None:
    model = text_model("(float[N,3] x) => (float[N,3] y)", f"y = ai.onnx.ml.{op}(x)")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    x = np.array([[1, -2, 3], [0, 0, 0], [0.5, 4, -8]], np.float32)
    (have,) = ortisan.compile(model, target="reference", whole_graph=True).run({"x": x})
    np.testing.assert_allclose(have, run_ort(model, {"x": x})[0], rtol=1e-6, atol=SAME)
