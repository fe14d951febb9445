"""Nothing is assumed that inference does not prove, and a node that it fails on hides only what it makes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx_shape_inference import ShapeInferenceContext, registry

from ortisan.converter.partition import Partition, partition
from ortisan.converter.passes import canonical
from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.passes.opaque import guard
from ortisan.converter.read.load import load_model
from tests.models.text import run_ort, text_model

F32 = np.float32


def inferred(signature: str, body: str, opset: int = 17, **constants: object) -> dict[str, ir.Shape | None]:
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    graph = canonicalize(load_model(text_model(signature, body, opset=opset, constants=arrays))).model.graph
    return {value.name or "": value.shape for node in graph for value in node.outputs}


def parts(model: onnx.ModelProto) -> Partition:
    return partition(canonicalize(load_model(model)).model, name="m")


UNPROVEN = {
    "squeeze without axes": ("(float[b,1] x) => (float[] y)", "y = Squeeze(x)", {}),
    "squeeze of computed axes": ("(float[b,1] x, int64[1] a) => (float[] y)", "y = Squeeze(x, a)", {}),
    "branches of two ranks": (
        "(float[b,1] x, bool c) => (float[] y)",
        "y = If(c) <then_branch = t () => (float[] r) { r = Squeeze(x) }, "
        "else_branch = e () => (float[b,1] q) { q = Neg(x) }>",
        {},
    ),
    "unique rows": ("(float[] x) => (float[] y)", "y = Unique<axis = 0>(x)", {}),
    "compressed rows": ("(float[] x, bool[c] w) => (float[] y)", "y = Compress<axis = 0>(x, w)", {}),
}


@pytest.mark.parametrize("what", UNPROVEN)
def test_a_rank_that_is_not_proven_is_not_known(what: str) -> None:
    signature, body, constants = UNPROVEN[what]
    model = text_model(signature, body, constants=constants)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if what.endswith("rows"):
        model.graph.input[0].type.tensor_type.ClearField("shape")
    graph = canonicalize(load_model(model)).model.graph
    assert graph.outputs[0].shape is None


def test_a_rank_is_known_where_its_number_is() -> None:
    """The dims come from data, or from a value of any rank; how many there are does not."""
    shapes = inferred(
        "(int64[2] n, float[b,1] x) => (float[] y, int64[] z)",
        "f = ConstantOfShape(n) y = Exp(f) s = Squeeze(x) t = Shape(s) z = Neg(t)",
    )
    assert [len(shapes[name] or ()) for name in "yz"] == [2, 1]


def test_a_declared_rank_is_not_believed_where_the_rule_knows_none() -> None:
    model = text_model("(float[b,1] x) => (float[b] y)", "a = Squeeze(x) y = Sigmoid(a)")
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["b"]))
    left = {node.op_type: node.reason for node in parts(model).left_out}
    assert "which dims are 1 is only known at run time" in left["Squeeze"]
    assert left["Sigmoid"].startswith("the rank of 'a' is not known, because Squeeze ")


SIZES = {
    "a slice ends with its axis": (
        "(float[n] x) => (float[?] y)",
        "y = Slice(x, s, e)",
        {"s": [0], "e": [9]},
        {"n": 4},
    ),
    "a slice from inside": ("(float[n] x) => (float[?] y)", "y = Slice(x, s, e)", {"s": [2], "e": [9]}, {"n": 1}),
    "windows in the padding": (
        "(float[1,1,n,n] x) => (float[1,1,?,?] y)",
        "y = MaxPool<ceil_mode = 1, kernel_shape = [1, 1], strides = [2, 2]>(x)",
        {},
        {"n": 2},
    ),
}


@pytest.mark.parametrize("what", SIZES)
def test_inferred_sizes_are_what_onnx_runtime_gives(what: str) -> None:
    signature, body, constants, sizes = SIZES[what]
    model = text_model(signature, body, constants={name: np.array(value) for name, value in constants.items()})
    shape = canonicalize(load_model(model)).model.graph.outputs[0].shape
    dims = [sizes.get(dim.dim_param, dim.dim_value) for dim in model.graph.input[0].type.tensor_type.shape.dim]
    (have,) = run_ort(model, {"x": np.ones(dims, F32)})
    assert shape is not None
    for dim, size in zip(shape, have.shape, strict=True):
        known = dim if isinstance(dim, int) else dim.evaluate(sizes) if dim.free_symbols() <= sizes.keys() else size
        assert known == size


def test_sizes_of_pieces_that_are_computed_are_not_assumed_equal() -> None:
    shapes = inferred("(float[n] x, int64[2] s) => (float[?] y, float[?] z)", "y, z = Split(x, s)")
    assert all(shape is not None and "n" not in str(shape) for shape in shapes.values())


def test_a_rule_that_fails_hides_its_node_and_nothing_else() -> None:
    def fails(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        raise TypeError("unhashable")

    registry.register("custom", "FailsInInference", since_version=1)(guard(fails))
    body = "a = Relu(x) b = custom.FailsInInference(a) c = Tanh(b) d = Exp(a) y, z = custom.Two(c, d)"
    found = parts(text_model("(float[N] x) => (float[N] y, float[N] z)", body))
    assert [node.op_type for subgraph in found.subgraphs for node in subgraph.nodes] == ["Relu", "Exp"]
    left = {node.op_type: node.reason for node in found.left_out}
    assert left["Tanh"].endswith("'FailsInInference' fails in shape inference (TypeError: unhashable)")


def test_the_reason_names_the_op_that_began_it() -> None:
    body = "a = custom.Mystery(x) b = Relu(a) c = Abs(b) y = Tanh(c)"
    left = {node.op_type: node.reason for node in parts(text_model("(float[N] x) => (float[N] y)", body)).left_out}
    assert left["Tanh"] == "the type of 'c' is not known, because Mystery 'Mystery' has no rule of shape inference"


def test_an_op_that_nobody_has_is_said() -> None:
    left = parts(text_model("(float[N] x) => (float[N] y)", "y = Erfc(x)")).left_out
    assert [node.reason for node in left] == ["neither ONNX nor ONNX Runtime has an op Erfc: it can't run"]


def tabular(body: str, features: int = 3) -> onnx.ModelProto:
    model = text_model(f"(float[N,{features}] x) => (float[] y)", body)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return model


def test_ops_of_tables_have_types_and_what_follows_is_compiled() -> None:
    body = "a = ai.onnx.ml.Imputer<imputed_value_floats = [0.0], replaced_value_float = 9.0>(x) y = Exp(a)"
    found = parts(tabular(body))
    assert [node.op_type for subgraph in found.subgraphs for node in subgraph.nodes] == ["Exp"]


def test_a_scaler_is_a_subtraction_and_a_product() -> None:
    found = parts(tabular("y = ai.onnx.ml.Scaler<offset = [1.0, 2.0, 3.0], scale = [2.0]>(x)"))
    assert [node.op.name for node in found.subgraphs[0].graph.nodes] == ["elementwise.sub", "elementwise.mul"]


def test_maps_are_compiled_around() -> None:
    model = tabular("a = Exp(x) y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1, 2]>(a)")
    kind = model.graph.output[0].type
    kind.Clear()
    kind.sequence_type.elem_type.map_type.key_type = onnx.TensorProto.INT64
    kind.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    found = parts(model)
    assert [node.op_type for subgraph in found.subgraphs for node in subgraph.nodes] == ["Exp"]
    assert [node.op_type for node in found.left_out] == ["ZipMap"]


def test_a_lowering_that_fails_is_a_reason() -> None:
    model = text_model("(float[N] x) => (int64 y)", "s = Shape(x) y = Gather(s, i)", constants={"i": np.array(7)})
    assert "IndexError" in parts(model).left_out[0].reason


def test_an_optional_pass_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: ir.Model) -> int:
        model.graph[0].name = "half done"
        raise KeyError("x")

    monkeypatch.setattr(canonical, "decide_shape_tests", fails)
    found = canonicalize(load_model(text_model("(float[N] x) => (float[N] y)", "a = Neg(x) y = Exp(a)")))
    assert [node.name for node in found.model.graph] == ["Neg", "Exp"]
    assert [(miss.pattern, miss.reason) for miss in found.near_misses] == [
        ("decide shape tests", "left out, because it fails (KeyError: 'x')")
    ]
