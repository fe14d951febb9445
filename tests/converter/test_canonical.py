"""Canonical form: names, dims, constants, functions, cleanup. The meaning of the model stays."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from ortisan.converter.fuse import expand_private
from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.passes.origin import origins
from ortisan.converter.read.load import load_model
from ortisan.errors import ModelError, OptionError, UnsupportedError
from tests.models.text import Array, random_feeds, run_ort, text_model
from tests.tolerances import SAME

F32 = np.float32


def canonical_equal(proto: onnx.ModelProto, feeds: Mapping[str, Array] | None = None, **options: object) -> Canonical:
    """Canonicalizes and checks that names, order and results of inputs and outputs are the same in ORT."""
    canonical = canonicalize(load_model(proto), **options)  # type: ignore[arg-type]
    assert [value.name for value in canonical.model.graph.outputs] == [value.name for value in proto.graph.output]
    assert [value.name for value in canonical.model.graph.inputs] == [value.name for value in proto.graph.input]
    expanded = canonical.model.clone()
    expand_private(expanded)
    feeds = feeds if feeds is not None else random_feeds(proto)
    for a, b in zip(run_ort(proto, feeds), run_ort(ir.to_proto(expanded), feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=SAME, atol=SAME)
    return canonical


def op_types(canonical: Canonical) -> list[str]:
    return [node.op_type for node in canonical.model.graph]


def test_folds_lifts_and_removes() -> None:
    body = """c = Constant<value_floats = [1.0, 2.0]>() d = Add(c, c) unused = Relu(x)
              i = Identity(x) e = Mul(i, d) f = Mul(x, d) y = Add(e, f)"""
    canonical = canonical_equal(text_model("(float[N,2] x) => (float[N,2] y)", body))
    assert op_types(canonical) == ["Mul", "Add"]
    assert {name for name, count in canonical.counts.items() if count} >= {
        "lift constants",
        "fold constants",
        "remove unused",
        "merge equal nodes",
    }


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(x) z = Relu(x)",
        "a = Relu(x) y = Identity(a) z = Identity(a)",
        "y = Relu(x) z = Identity(y)",
        "y = Relu(x) z = Relu(x)",
        "a = Relu(x) y = Dropout(a) z = Abs(a)",
        "c = Constant<value_float = 1.0>() y = Identity(c) z = Add(x, c)",
        "c = Constant<value_float = 1.0>() y = Add(c, c) z = Add(x, c)",
    ],
)
def test_outputs_keep_their_names(body: str) -> None:
    canonical_equal(text_model("(float[N] x) => (float[?] y, float[N] z)", body))


@pytest.mark.parametrize(("opset", "dropout"), [(6, "Dropout<is_test = 1>(x)"), (10, "Dropout(x)"), (13, "Dropout(x)")])
def test_idle_dropout_goes(opset: int, dropout: str) -> None:
    proto = text_model("(float[N] x) => (float[N] y)", f"a = {dropout} y = Relu(a)", opset=opset)
    assert op_types(canonicalize(load_model(proto))) == ["Relu"]


def test_working_dropout_and_its_used_mask_stay() -> None:
    constants = {"r": F32(0.5), "t": np.bool_(True)}
    training = text_model("(float[N] x) => (float[N] y)", "a = Dropout(x, r, t) y = Relu(a)", constants=constants)
    assert op_types(canonicalize(load_model(training))) == ["Dropout", "Relu"]
    masked = text_model("(float[N] x) => (float[N] y, bool[N] m)", "a, m = Dropout(x) y = Relu(a)", opset=10)
    assert "Dropout" in op_types(canonicalize(load_model(masked)))


def test_random_and_custom_nodes_are_not_merged() -> None:
    body = "a = Bernoulli(x) b = Bernoulli(x) c = custom.Draw(x) d = custom.Draw(x) y = Sum(a, b, c, d)"
    assert len(op_types(canonicalize(load_model(text_model("(float[N] x) => (float[N] y)", body))))) == 5


def test_an_overridable_initializer_is_not_a_constant() -> None:
    proto = text_model(
        "(float[N,2] x, float[2] w) => (float[N,2] y)",
        "v = Add(w, w) y = Mul(x, v)",
        constants={"w": np.array([1, 2], F32)},
    )
    feeds = {"x": np.ones((3, 2), F32), "w": np.array([5, 7], F32)}
    canonical = canonical_equal(proto, feeds)
    assert op_types(canonical) == ["Add", "Mul"]
    canonical_equal(proto, {"x": feeds["x"]})


def test_before_ir_version_4_initializers_are_constants() -> None:
    proto = text_model(
        "(float[N,2] x, float[2] w) => (float[N,2] y)",
        "v = Add(w, w) y = Mul(x, v)",
        ir_version=3,
        constants={"w": np.array([1, 2], F32)},
    )
    canonical = canonicalize(load_model(proto))
    assert op_types(canonical) == ["Mul"]
    assert [value.name for value in canonical.model.graph.inputs] == ["x"]


def test_folding_is_bounded() -> None:
    def ops(elements: int) -> list[str]:
        constants = {"shape": np.array([elements]), "one": np.ones(1, F32)}
        body = "big = Expand(one, shape) y = Add(x, big)"
        return op_types(canonicalize(load_model(text_model("(float[N] x) => (float[N] y)", body, constants=constants))))

    assert ops(2**20) == ["Add"]
    assert ops(2**22) == ["Expand", "Add"]


def test_quantized_weights_stay_quantized() -> None:
    constants = {"w": np.arange(4, dtype=np.int8), "s": F32(0.5)}
    body = "f = DequantizeLinear(w, s) y = Add(x, f)"
    proto = text_model("(float[N,4] x) => (float[N,4] y)", body, constants=constants)
    assert op_types(canonical_equal(proto)) == ["DequantizeLinear", "Add"]


FUNCTIONS = """
<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[N] x) => (float[N] y, float[N] z) {
    [call] a = local.twice<by = 3.0>(x) y = local.same(a) z = local.twice<by = 1.0>(y)
}
<domain: "local", opset_import: ["": %d, "local": 1]>
twice <by> (p) => (r) { c = Constant<value_float: float = @by>() q = Add(p, p) s = local.same(q) r = Mul(s, c) }
<domain: "local", opset_import: ["": %d]>
same (p) => (r) { r = Identity(p) }
"""


@pytest.mark.parametrize("opset", [17, 16])
def test_functions_are_inlined(opset: int) -> None:
    canonical = canonical_equal(onnx.parser.parse_model(FUNCTIONS % (opset, opset)))
    assert not canonical.model.functions
    assert set(canonical.model.opset_imports) == {""}
    assert "call" in {name for node in canonical.model.graph for name in origins(node)}


def test_a_function_that_passes_its_input_through_renames_nothing() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
              g (float[N] x) => (float[N] y, float[N] z) { y = local.same(x) z = Relu(x) }
              <domain: "local", opset_import: ["": 17]> same (p) => (p) { }"""
    graph = canonicalize(load_model(onnx.parser.parse_model(text))).model.graph
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == ["x", "y", "z"]


def test_functions_of_an_opset_that_means_something_else_are_refused() -> None:
    text = FUNCTIONS.replace("q = Add(p, p)", "q = ReduceSum(p)")
    with pytest.raises(UnsupportedError, match="needs opset 12"):
        canonicalize(load_model(onnx.parser.parse_model(text % (12, 12))))


def test_names_are_unique_and_origins_recorded() -> None:
    proto = text_model("(float[N] x) => (float[N] y)", "[n] a = Relu(x) [n] b = Abs(a) c = Neg(b) [m] y = Exp(c)")
    nodes = list(canonicalize(load_model(proto)).model.graph)
    assert len({node.name for node in nodes}) == 4
    assert all(node.name for node in nodes)
    assert [origins(node) for node in nodes] == [("n",), ("n",), ("Neg",), ("m",)]
    assert json.loads(nodes[0].metadata_props["ortisan.origin"]) == ["n"]


def test_merged_nodes_have_both_origins_and_frozen_ones_are_not_merged() -> None:
    proto = text_model("(float[N] x) => (float[N] y)", "[p] a = Relu(x) [q] b = Relu(x) [r] y = Add(a, b)")
    merged = canonicalize(load_model(proto)).model.graph
    assert origins(merged[0]) == ("p", "q")
    assert len(canonicalize(load_model(proto), frozen=lambda node: node.name == "q").model.graph) == 3


SHAPED = "(float[batch,seq,4] x, int64[batch,seq] ids) => (float[batch,?] y)"
SHAPED_BODY = "s = Shape(x) b = Gather(s, zero) m = Concat<axis = 0>(b, rest) y = Reshape(x, m)"
SHAPED_CONSTANTS = {"zero": np.array([0]), "rest": np.array([-1])}


def test_dims_are_fixed_everywhere() -> None:
    proto = text_model(SHAPED, SHAPED_BODY, constants=SHAPED_CONSTANTS)
    graph = canonicalize(load_model(proto), dims={"batch": 2, "seq": (1, 16)}).model.graph
    assert [list(value.shape) for value in graph.inputs] == [[2, ir.SymbolicDim("seq"), 4], [2, ir.SymbolicDim("seq")]]
    assert list(graph.outputs[0].shape) == [2, ir.SymbolicDim("4*seq")]
    assert [node.op_type for node in graph] == ["Reshape"]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"bach": 1}, "no symbolic dim 'bach'; its symbolic dims are: 'batch', 'seq'"),
        ({"batch": -1}, "'batch' must be a number >= 0, a range"),
        ({"batch": True}, "'batch' must be a number"),
        ({"batch": "any"}, "'batch' must be a number >= 0, a range .low, high. or 'free', got 'any'"),
        ({"bach": "free"}, "no symbolic dim 'bach'"),
        ({"batch": "1"}, "'batch' must be a number"),
        ({"seq": (5, 2)}, "range of 'seq' must be"),
        ({"seq": (1, 2, 3)}, "range of 'seq' must be"),
    ],
)
def test_bad_dims(dims: dict[str, int], message: str) -> None:
    proto = text_model(SHAPED, SHAPED_BODY, constants=SHAPED_CONSTANTS)
    with pytest.raises(OptionError, match=message):
        canonicalize(load_model(proto), dims=dims)


def test_unknown_dims_are_never_taken_for_equal() -> None:
    proto = text_model("(float[?,?] x, float[?,?] y) => (float[?,?] z)", "z = Concat<axis = 0>(x, y)")
    x, y = canonicalize(load_model(proto)).model.graph.inputs
    dims = [dim.value for value in (x, y) for dim in value.shape]
    assert len(set(dims)) == 4
    assert None not in dims


@pytest.mark.parametrize("name", ["batch-size", "a b", "1", "x'\"\\", "a\nb", "*/", "é", "n" * 10_000, "batch/2"])
def test_odd_symbol_names(name: str) -> None:
    proto = text_model("(float[N,2] x) => (float[N,2] y)", "a = Concat<axis = 0>(x, x) s = Shape(a) y = Reshape(a, s)")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    canonical = canonicalize(load_model(proto))
    symbol = canonical.model.graph.inputs[0].shape[0].value
    assert symbol.isidentifier()
    assert symbol.isascii()
    assert len(symbol) <= 48
    assert canonical.symbols[symbol] == name
    assert canonical.model.graph.outputs[0].shape[0] == f"2*{symbol}"
    assert canonicalize(load_model(proto), dims={name: 3}).model.graph.outputs[0].shape[0] == 6


def test_expressions_of_input_symbols_stay_expressions() -> None:
    proto = text_model("(float[past,2] p, float[N,2] x) => (float[N,2] y)", "y = Concat<axis = 0>(p, x)")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "past + 1"
    graph = canonicalize(load_model(proto), dims={"past": 4}).model.graph
    assert [value.shape[0] for value in (*graph.inputs, *graph.outputs)] == [4, 5, 9]


def test_a_stale_declared_shape_is_not_believed() -> None:
    proto = text_model("(float[N,2] x) => (float[N,2] y)", "a = Relu(x) y = Abs(a)")
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, [7, 2]))
    assert canonicalize(load_model(proto)).model.graph[0].outputs[0].shape[0] == "N"


def test_the_guard_of_an_expand_is_seen_through() -> None:
    body = """s = Shape(x) n = Gather(s, zero) want = Concat<axis = 0>(n, minus, four)
              eq = Equal(want, m1) target = Where(eq, one3, want) y = Expand(x, target)"""
    constants = {
        "zero": np.array([0]),
        "minus": np.array([-1]),
        "four": np.array([4]),
        "m1": np.array([-1, -1, -1]),
        "one3": np.array([1, 1, 1]),
    }
    canonical = canonical_equal(text_model("(float[N,1,4] x) => (float[?,?,?] y)", body, constants=constants))
    assert list(canonical.model.graph.outputs[0].shape) == ["N", 1, 4]


def test_contradicting_shapes_are_a_model_error() -> None:
    constants = {"a": np.ones((3, 4), F32)}
    proto = text_model("(float[N,5] x) => (float[N,4] y)", "y = MatMul(x, a)", constants=constants)
    with pytest.raises(ModelError, match="shapes can't be inferred"):
        canonicalize(load_model(proto))


def test_control_flow_survives() -> None:
    body = """c = Constant<value_float = 2.0>() z = ReduceSum<keepdims = 0>(x) b = Greater(z, c)
              y = If(b) <then_branch = t () => (float[N] r) { k = Constant<value_float = 3.0>() r = Mul(x, k) },
                         else_branch = e () => (float[N] q) { p = Identity(x) q = Neg(p) }>"""
    canonical_equal(text_model("(float[N] x) => (float[?] y)", body))


@pytest.mark.parametrize("table", [(5,), (2, 5), (2, 3, 5)])
@pytest.mark.parametrize("indices", ["n", "2,n"])
def test_the_shape_of_extracted_features(table: tuple[int, ...], indices: str) -> None:
    body = "a = ai.onnx.ml.ArrayFeatureExtractor(t, i) y = Neg(a)"
    proto = text_model(f"(int64[{indices}] i) => (float[] y)", body, constants={"t": np.ones(table, F32)})
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 1))
    canonical = canonical_equal(proto)
    shape = canonical.model.graph.outputs[0].shape
    (have,) = run_ort(proto, random_feeds(proto))
    assert shape is not None
    assert [dim.evaluate({"n": 3}) if isinstance(dim, ir.SymbolicDim) else dim for dim in shape] == list(have.shape)
