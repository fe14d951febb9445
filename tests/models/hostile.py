"""Small models that use every op of the op graph, most of them with nothing but symbolic dims."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.text import text_model

_FLOATS = np.linspace(-1, 1, 48, dtype=np.float32)

# name: (inputs and outputs, nodes)
_TEXTS: dict[str, tuple[str, str]] = {
    "loop": ("(float[A,B,C] x, float[B,1] y) => (float[A,B,C] z)", "a = Add(x, y) b = Exp(a) z = Mul(b, x)"),
    "cast": ("(int64[A,B] x) => (float[A,B] y)", "y = Cast<to = 1>(x)"),
    "broadcast": ("(float[A,B] x, float[C,B] y) => (float[M,B] z)", "z = Add(x, y)"),
    "trilu": ("(float[A,B,C] x) => (float[A,B,C] y)", "y = Trilu(x)"),
    "trilu_sum": ("(float[A,B] x) => (float y)", "a = Trilu(x) y = ReduceSum<keepdims = 0>(a)"),
    "cumsum": ("(float[A,B,C] x) => (float[A,B,C] y)", "y = CumSum(x, one)"),
    "softmax": ("(float[A,B] x) => (float[A,M,N] y)", "r = Reshape(x, three) y = Softmax(r)"),
    "softmax_columns": ("(float[A,B,C] x) => (float[A,B,C] y)", "y = Softmax<axis = 1>(x)"),
    "layernorm": ("(float[A,B,8] x) => (float[A,B,8] y)", "y = LayerNormalization(x, scale, bias)"),
    "layernorm_dims": (
        "(float[A,B] x, float[B] s) => (float[A,B] y)",
        "y = LayerNormalization(x, s)",
    ),
    "rms": ("(float[A,B,8] x) => (float[A,B,8] y)", "y = RMSNormalization(x, scale)"),
    "sum": ("(float[A,B,C] x) => (float[A,C] y)", "y = ReduceSum<keepdims = 0>(x, one)"),
    "sum_all": ("(float[A,B,C] x) => (float[1,1,1] y)", "y = ReduceSum(x)"),
    "max": ("(float[A,B,C] x) => (float[A,1,1] y)", "y = ReduceMax(x, last)"),
    "mean_ints": ("(int64[A,B] x) => (int64[A] y)", "y = ReduceMean<keepdims = 0>(x, one)"),
    "log_sum_exp": ("(float[A,B,C] x) => (float[B] y)", "y = ReduceLogSumExp<keepdims = 0>(x, outer)"),
    "argmax": ("(float[A,B,C] x) => (int64[A,C] y)", "y = ArgMax<axis = 1, keepdims = 0>(x)"),
    "gemm": ("(float[A,B,8] x) => (float[A,B,6] y)", "a = MatMul(x, w) b = Add(a, six) y = Relu(b)"),
    "gemm_and": (
        "(float[A,8] x) => (float[A,6] y, float[A,6] z)",
        "a = MatMul(x, w) y = Add(a, six) z = MatMul(x, w2)",
    ),
    "matmul": ("(float[A,B] x, float[B,C] y) => (float[A,C] z)", "z = MatMul(x, y)"),
    "bmm": ("(float[A,B,C] x, float[A,C,D] y) => (float[A,B,D] z)", "z = MatMul(x, y)"),
    "bmm_transposed": (
        "(float[A,B,C] x, float[A,D,C] y) => (float[A,B,D] z)",
        "t = Transpose<perm = [0, 2, 1]>(y) z = MatMul(x, t)",
    ),
    "conv": ("(float[A,3,B,C] x) => (float[A,4,M,N] y)", "y = Conv<pads = [1, 1, 1, 1], strides = [2, 1]>(x, filters)"),
    "conv_winograd": ("(float[A,16,B,C] x) => (float[A,16,B,C] y)", "y = Conv<pads = [1, 1, 1, 1]>(x, squares)"),
    "conv_depthwise": ("(float[A,6,B,C] x) => (float[A,6,M,N] y)", "y = Conv<group = 6>(x, taps)"),
    "conv_line": ("(float[A,1,B] x) => (float[A,2,M] y)", "y = Conv<strides = [3]>(x, lines)"),
    "max_pool": ("(float[A,B,C,D] x) => (float[A,B,M,N] y)", "y = MaxPool<kernel_shape = [2, 3], strides = [2, 2]>(x)"),
    "average_pool": (
        "(float[A,B,C,D] x) => (float[A,B,M,N] y)",
        "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], ceil_mode = 1>(x)",
    ),
    "resize": ("(float[A,B,C,D] x) => (float[A,B,M,N] y)", 'y = Resize<mode = "linear">(x, , scales)'),
    "gather": ("(float[A,B,C] x, int64[D,E] i) => (float[A,D,E,C] y)", "y = Gather<axis = 1>(x, i)"),
    "gather_elements": ("(float[A,B] x, int64[C,D] i) => (float[C,D] y)", "y = GatherElements<axis = 1>(x, i)"),
    "gather_nd": ("(float[A,B,C] x, int64[D,2] i) => (float[D,C] y)", "y = GatherND(x, i)"),
    "permute": ("(float[A,B,C] x) => (float[C,A,B] y)", "y = Transpose<perm = [2, 0, 1]>(x)"),
    "concat": ("(float[A,B] x, float[C,B] y) => (float[M,B] z)", "z = Concat<axis = 0>(x, y)"),
    "concat_reversed": (
        "(float[A,B] x, float[C,B] y) => (float[M,B] z)",
        "r = Slice(x, minus, least, zero, minus) z = Concat<axis = 0>(r, y)",
    ),
    "slice": ("(float[A,B] x) => (float[M,B] y)", "a = Slice(x, two, most, zero, two) y = Neg(a)"),
    "reversed": ("(float[A,B] x) => (float[A,B] y)", "y = Slice(x, minus, least, zero, minus)"),
    "split": ("(float[A,6] x) => (float[A,3] y, float[A,3] z)", "y, z = Split<axis = 1, num_outputs = 2>(x)"),
    "expand": ("(float[A,1] x, float[B] y) => (float[A,B] z)", "s = Shape(y) e = Concat<axis = 0>(pair, s) z = Expand(x, e)"),
    "tile": ("(float[A,B] x) => (float[M,N] y)", "y = Tile(x, twice)"),
    "pad": ("(float[A,B] x) => (float[M,N] y)", "y = Pad(x, pads)"),
    "pad_edge": ("(float[A,B] x) => (float[M,N] y)", 'y = Pad<mode = "edge">(x, pads)'),
    "pad_reflect": ("(float[A,B] x) => (float[M,N] y)", 'y = Pad<mode = "reflect">(x, pads)'),
    "crop": ("(float[A,B] x) => (float[M,N] y)", "y = Pad(x, crop)"),
    "reshape": ("(float[A,B,C] x) => (float[A,M] y)", "a = Reshape(x, flat) y = Exp(a)"),
    "full": ("(float[A,B] x) => (float[A,B] y)", "s = Shape(x) y = ConstantOfShape(s)"),
    "range": (
        "(float[A,B] x) => (int64[M] y)",
        "s = Shape(x) a = Gather(s, zero_scalar) b = Gather(s, one_scalar) n = Mul(a, b) "
        "y = Range(zero_scalar, n, one_scalar)",
    ),
    "size": ("(float[A,B] x) => (int64[2] y, int64 z)", "y = Shape(x) z = Size(x)"),
    "attention": (
        "(float[A,2,S,8] q, float[A,2,T,8] k, float[A,2,T,8] v) => (float[A,2,S,8] y)",
        "y = Attention(q, k, v)",
    ),
    "attention_mask": (
        "(float[A,4,S,8] q, float[A,2,T,8] k, float[A,2,T,8] v, bool[S,T] m) => (float[A,4,S,8] y)",
        "y = Attention<is_causal = 1>(q, k, v, m)",
    ),
    "attention_cache": (
        "(float[A,2,S,8] q, float[A,2,S,8] k, float[A,2,S,8] v, float[A,2,P,8] pk, float[A,2,P,8] pv) => "
        "(float[A,2,S,8] y, float[A,2,M,8] nk, float[A,2,M,8] nv)",
        "y, nk, nv = Attention<is_causal = 1>(q, k, v, , pk, pv)",
    ),
    "rotary": (
        "(float[A,2,S,8] x, float[A,S,4] c, float[A,S,4] s) => (float[A,2,S,8] y)",
        "y = RotaryEmbedding(x, c, s)",
    ),
    "cache_write": (
        "(float[A,2,P,8] past, float[A,2,S,8] rows, int64[A] at) => (float[A,2,P,8] y)",
        "y = TensorScatter<axis = 2>(past, rows, at)",
    ),
    "block": (
        "(float[A,S,8] x) => (float[A,S,8] y)",
        "a = MatMul(x, w8) b = Add(a, scale) h = Reshape(b, heads) t = Transpose<perm = [0, 2, 1, 3]>(h) "
        "f = Attention(t, t, t) g = Transpose<perm = [0, 2, 1, 3]>(f) r = Reshape(g, width) c = Add(r, x) "
        "y = LayerNormalization(c, scale, bias)",
    ),
    "block_sum": (
        "(float[A,S,8] x) => (float y)",
        "a = MatMul(x, w64) b = Add(a, line) c = Softmax(b) y = ReduceSum<keepdims = 0>(c)",
    ),
    "group_norm": (
        "(float[A,16,B,C] x) => (float[A,16,B,C] y)",
        "a = Conv<pads = [1, 1, 1, 1]>(x, squares) y = InstanceNormalization(a, factors, factors)",
    ),
    "pool_indices": (
        "(float[A,B,C,D] x) => (float[A,B,M,N] y, int64[A,B,M,N] z)",
        "y, z = MaxPool<kernel_shape = [2, 3], strides = [2, 2]>(x)",
    ),
    "grid_sample": ("(float[1,2,B,C] x, float[1,D,1,2] g) => (float[1,2,D,1] y)", "y = GridSample(x, g)"),
    "roi_align": ("(float[1,2,B,C] x, float[E,4] r, int64[E] i) => (float[E,2,1,1] y)", "y = RoiAlign(x, r, i)"),
    "block_gemm": (
        "(float[A,B,40] x) => (float[A,B,6] y)",
        "y = com.microsoft.MatMulNBits<K = 40, N = 6, bits = 4, block_size = 16, accuracy_level = 4>(x, fours, steps)",
    ),
}  # fmt: skip

_CONSTANTS = {
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "minus": np.array([-1]),
    "last": np.array([1, 2]), "outer": np.array([0, 2]), "pair": np.array([1]),
    "most": np.array([2**62]), "least": np.array([-(2**62)]),
    "three": np.array([0, 3, -1]), "flat": np.array([0, -1]), "twice": np.array([2, 3]),
    "pads": np.array([1, 2, 3, 4]), "crop": np.array([-2, 1, -1, -3]),
    "heads": np.array([0, 0, 2, 4]), "width": np.array([0, 0, 8]),
    "zero_scalar": np.array(0), "one_scalar": np.array(1),
    "scale": _FLOATS[:8], "bias": _FLOATS[8:16], "six": _FLOATS[:6],
    "factors": np.resize(_FLOATS, 16), "filters": np.resize(_FLOATS, (4, 3, 3, 3)), "squares": np.resize(_FLOATS, (16, 16, 3, 3)),
    "taps": np.resize(_FLOATS, (6, 1, 3, 3)), "lines": np.resize(_FLOATS, (2, 1, 7)),
    "scales": np.array([1, 1, 2, 1.5], np.float32),
    "fours": np.resize(np.arange(256, dtype=np.uint8), (6, 3, 8)), "steps": np.resize(_FLOATS, (6, 3)),
    "w": _FLOATS.reshape(8, 6), "w2": _FLOATS[::-1].copy().reshape(8, 6), "w8": np.eye(8, dtype=np.float32),
    "w64": np.ones((8, 64), np.float32), "line": np.ones(64, np.float32),
}  # fmt: skip


def hostile_models() -> dict[str, onnx.ModelProto]:
    """A model for each of the texts, with those constants that it names."""
    models = {}
    for name, (signature, body) in _TEXTS.items():
        words = body.replace(",", " ").replace("(", " ").replace(")", " ").split()
        constants = {word: array for word, array in _CONSTANTS.items() if word in words}
        models[name] = text_model(signature, body, opset=24, ir_version=10, constants=constants)
    return models
