"""The models that are mutated: small, made by code, one for each way in which models are built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import numpy_helper

from ortisan.models import BertSize, Gpt2Size, LlamaSize, bert, gpt2, llama

Array = npt.NDArray[np.generic]
_RNG = np.random.default_rng(0)


def _floats(*shape: int) -> Array:
    return (_RNG.standard_normal(shape) / 4).astype(np.float32)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _text(signature: str, body: str, opset: int, functions: str = "", **constants: Array) -> onnx.ModelProto:
    domains = f'"": {opset}, "com.microsoft": 1, "ai.onnx.ml": 3, "local": 1'
    text = f"<ir_version: {10 if opset > 18 else 8}, opset_import: [{domains}]> g {signature} {{ {body} }} {functions}"
    model = onnx.parser.parse_model(text)
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def _perceptron() -> onnx.ModelProto:
    body = "a = Gemm<transB = 1>(x, w, b) c = Relu(a) d = Gemm<alpha = 0.5>(c, v, u) y = Softmax<axis = 1>(d)"
    weights = {"w": _floats(16, 8), "b": _floats(16), "v": _floats(16, 4), "u": _floats(4)}
    return _text("(float[n,8] x) => (float[n,4] y)", body, 7, **weights)


def _images() -> onnx.ModelProto:
    body = """
        a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)
        c = BatchNormalization(a, s, b, b, v) d = Relu(c)
        e = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d) f = Clip(e, low, high)
        g = GlobalAveragePool(f) h = Flatten(g) y = Gemm(h, m)"""
    return _text(
        "(float[n,3,8,8] x) => (float[n,5] y)", body, 11,
        w=_floats(6, 3, 3, 3), b=_floats(6), s=_floats(6), v=np.ones(6, np.float32), m=_floats(6, 5),
        low=np.float32(-1), high=np.float32(6),
    )  # fmt: skip


def _skips() -> onnx.ModelProto:
    body = """
        a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) b = Sigmoid(a) c = Mul(a, b)
        d = Resize<mode = "nearest">(c, , scales) e = Concat<axis = 1>(d, x) y = Conv<kernel_shape = [1, 1]>(e, v)"""
    weights = {"w": _floats(4, 3, 3, 3), "v": _floats(2, 7, 1, 1), "scales": np.array([1, 1, 2, 2], np.float32)}
    return _text("(float[n,3,h,w_] x) => (float[n,2,h,w_] y)", body, 13, **weights)


def _recurrent() -> onnx.ModelProto:
    body = """
        t = Transpose<perm = [1, 0, 2]>(x) o, h, c = LSTM<hidden_size = 5>(t, w, r, b)
        s = Squeeze(o, one) u = MatMul(s, m) y = Tanh(u)"""
    weights = {"w": _floats(1, 20, 4), "r": _floats(1, 20, 5), "b": _floats(1, 40), "m": _floats(5, 3)}
    return _text("(float[n,t,4] x) => (float[t,n,3] y)", body, 14, one=_ints(1), **weights)


def _branches() -> onnx.ModelProto:
    body = """
        a = MatMul(x, w) s = ReduceSum<keepdims = 0>(a) p = Greater(s, zero)
        b = If(p) <then_branch = g1 () => (float[n,6] t) { t = Relu(a) },
                   else_branch = g2 () => (float[n,6] e) { q = Neg(a) e = Exp(q) }> y = Mul(b, a)"""
    return _text("(float[n,4] x) => (float[n,6] y)", body, 16, w=_floats(4, 6), zero=np.float32(0))


def _loop() -> onnx.ModelProto:
    body = """
        k, all = Loop(trips, go, x) <body = g (int64 i, bool c, float[n,4] v) => (bool d, float[n,4] o, float[n,4] z)
            { d = Identity(c) u = MatMul(v, w) o = Tanh(u) z = Add(o, v) }>
        r = ReduceMean<keepdims = 0, axes = [0]>(all) y = Add(r, k)"""
    weights = {"w": _floats(4, 4), "trips": np.array(3, np.int64), "go": np.array(True)}
    return _text("(float[n,4] x) => (float[n,4] y)", body, 13, **weights)


def _scan() -> onnx.ModelProto:
    body = """
        last, y = Scan(start, x) <num_scan_inputs = 1, body = g (float[4] s, float[4] v) => (float[4] o, float[4] z)
            { a = Mul(s, half) o = Add(a, v) z = Sigmoid(o) }>"""
    return _text("(float[n,4] x) => (float[n,4] y)", body, 15, start=_floats(4), half=np.float32(0.5))


def _quantized_dynamic() -> onnx.ModelProto:
    body = """
        q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z, wz) f = Cast<to = 1>(i) t = Mul(s, ws)
        m = Mul(f, t) a = Add(m, b) y = Relu(a)"""
    w = _RNG.integers(-100, 100, (8, 6)).astype(np.int8)
    weights = {"w": w, "wz": np.array(0, np.int8), "ws": np.float32(0.01), "b": _floats(6)}
    return _text("(float[n,8] x) => (float[n,6] y)", body, 13, **weights)


def _quantized_pairs() -> onnx.ModelProto:
    body = """
        q = QuantizeLinear(x, xs, z) d = DequantizeLinear(q, xs, z) v = DequantizeLinear<axis = 1>(w, ws, wz)
        a = MatMul(d, v) c = Add(a, b) r = Relu(c) e = QuantizeLinear(r, xs, z) y = DequantizeLinear(e, xs, z)"""
    w = _RNG.integers(-100, 100, (8, 6)).astype(np.int8)
    scales = np.linspace(0.005, 0.02, 6, dtype=np.float32)
    return _text(
        "(float[n,8] x) => (float[n,6] y)", body, 19, w=w, ws=scales, wz=np.zeros(6, np.int8), b=_floats(6),
        xs=np.float32(0.03), z=np.array(128, np.uint8),
    )  # fmt: skip


def _half() -> onnx.ModelProto:
    body = """
        h = Cast<to = 10>(x) a = LayerNormalization(h, g, b) c = MatMul(a, w) d = Erf(c) e = Mul(c, d) f = Add(e, h)
        y = Cast<to = 1>(f)"""
    g, b, w = (array.astype(np.float16) for array in (_floats(8), _floats(8), _floats(8, 8)))
    return _text("(float[n,t,8] x) => (float[n,t,8] y)", body, 17, g=g, b=b, w=w)


def _calls() -> onnx.ModelProto:
    body = "a = local.dense(x, w) c = local.dense(a, v) y = local.gate<power = 2.0>(c)"
    functions = """
        <domain: "local", opset_import: ["": 18]> dense (x, w) => (y) { m = MatMul(x, w) y = LeakyRelu<alpha = 0.1>(m) }
        <domain: "local", opset_import: ["": 18]> gate <power> (x) => (y)
        { p = Constant<value_float: float = @power>() q = Pow(x, p) s = Sigmoid(q) y = Mul(x, s) }"""
    return _text("(float[n,6] x) => (float[n,6] y)", body, 18, functions, w=_floats(6, 10), v=_floats(10, 6))


def _sequences() -> onnx.ModelProto:
    body = """
        l = SplitToSequence<axis = 1>(x, two) a = SequenceAt(l, one) n = SequenceLength(l) e = Exp(a)
        m = SequenceInsert(l, e) c = ConcatFromSequence<axis = 1>(m) k = Cast<to = 1>(n) y = Mul(c, k)"""
    return _text("(float[n,6] x) => (float[n,8] y)", body, 17, two=np.array(2, np.int64), one=np.array(1, np.int64))


def _shapes() -> onnx.ModelProto:
    body = """
        s = Shape(x) n = Gather(s, zero) t = Gather(s, one) m = Mul(n, t) a = Unsqueeze(m, first)
        k = Concat<axis = 0>(a, heads) r = Reshape(x, k) p = Transpose<perm = [1, 0, 2]>(r)
        i = Range(zero, m, one) f = Cast<to = 1>(i)
        u = Unsqueeze(f, last) e = Add(p, u) v = Expand(e, s3) w = Slice(v, first, most, first)
        y = ReduceMax(w, last)"""
    return _text(
        "(float[n,t,8] x) => (float[h,m,1] y)", body, 22, zero=np.array(0, np.int64), one=np.array(1, np.int64),
        first=_ints(0), heads=_ints(2, 4), last=_ints(-1), s3=_ints(1, 1, 4), most=_ints(2**62),
    )  # fmt: skip


def _moves() -> onnx.ModelProto:
    body = """
        p = Pad(x, pads, fill) a, b = Split<axis = 1>(p, halves) c = Concat<axis = -1>(b, a) t = Tile(c, twice)
        s = Slice(t, minus, least, ones, minus) d = DepthToSpace<blocksize = 2>(img) f = Flatten<axis = 2>(d)
        g = GatherElements<axis = 1>(s, index) w = Where(mask, g, s2) y = Trilu(w) z = Neg(f)"""
    inputs = "float[n,6] x, float[n,4,2,3] img, int64[n,3] index, bool[n,3] mask"
    return _text(
        f"({inputs}) => (float[n,3] y, float[m,k] z)", body, 20,
        pads=_ints(0, 1, 0, 1), fill=np.float32(0.5), halves=_ints(3, 5), twice=_ints(1, 2), minus=_ints(-1),
        least=_ints(-(2**62)), ones=_ints(1), s2=np.float32(2),
    )  # fmt: skip


def _rows() -> onnx.ModelProto:
    body = """
        a = ReduceMean(x, last) b = Sub(x, a) c = CumSum(b, axis) d = LogSoftmax(c) v, i = TopK(d, k)
        m = ArgMax<axis = 1, keepdims = 0>(d) o = OneHot<axis = -1>(m, depth, ends) e = ReduceL2<keepdims = 0>(v, last)
        f = Div(o, two) y = ReduceSum(f, last)"""
    return _text(
        "(float[n,9] x) => (float[n,1] y, int64[n,3] i, float[n] e)", body, 18,
        last=_ints(1), axis=np.array(1, np.int64), k=_ints(3), depth=np.array(9, np.int64),
        ends=np.array([0, 1], np.float32), two=np.float32(2),
    )  # fmt: skip


def _contrib() -> onnx.ModelProto:
    body = """
        a, m, i, s = com.microsoft.SkipLayerNormalization(x, x, g, b) c = com.microsoft.FusedMatMul<transB = 1>(a, w)
        d = com.microsoft.BiasGelu(c, b) e = com.microsoft.QuickGelu(d) f = com.microsoft.FastGelu(e, b)
        y = Add(f, s)"""
    return _text("(float[n,t,8] x) => (float[n,t,8] y)", body, 17, g=_floats(8), b=_floats(8), w=_floats(8, 8))


def _tables() -> onnx.ModelProto:
    body = """
        s = ai.onnx.ml.Scaler<offset = [0.1, 0.2, 0.3], scale = [1.0, 2.0, 3.0]>(x)
        n = ai.onnx.ml.Normalizer<norm = "L2">(s) e = Gather(table, ids) f = Concat<axis = 1>(n, e)
        a = MatMul(f, w) y = Sigmoid(a) l = Less(y, half) z = Not(l)"""
    weights = {"table": _floats(11, 5), "w": _floats(8, 4), "half": np.float32(0.5)}
    return _text("(float[n,3] x, int32[n] ids) => (float[n,4] y, bool[n,4] z)", body, 17, **weights)


_LLAMA = LlamaSize(layers=1, hidden=16, heads=4, kv_heads=2, intermediate=20, vocabulary=31)
_MAKERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bert": lambda: ir.to_proto(bert(BertSize(1, 16, 2, 24, 31, 16))),
    "gpt2": lambda: ir.to_proto(gpt2(Gpt2Size(1, 12, 2, 31, 16))),
    "llama": lambda: ir.to_proto(llama(_LLAMA)),
    "perceptron": _perceptron,
    "images": _images,
    "skips": _skips,
    "recurrent": _recurrent,
    "branches": _branches,
    "loop": _loop,
    "scan": _scan,
    "quantized dynamic": _quantized_dynamic,
    "quantized pairs": _quantized_pairs,
    "half": _half,
    "calls": _calls,
    "sequences": _sequences,
    "shapes": _shapes,
    "moves": _moves,
    "rows": _rows,
    "contrib": _contrib,
    "tables": _tables,
}  # fmt: skip


def base_models(folder: Path | None = None) -> dict[str, onnx.ModelProto]:
    """Name -> model: those above, and the .onnx files of a folder."""
    models = {name: make() for name, make in _MAKERS.items()}
    files = sorted(folder.glob("*.onnx")) if folder is not None else []
    return models | {file.stem: onnx.load(file) for file in files}
