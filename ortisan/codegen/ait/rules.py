"""What AITemplate refuses, or accepts and computes wrongly: rules on single nodes, with the reason that users read.

They run before AITemplate is asked; it is asked about all that passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortisan.codegen.ait.dims import Bounds, range_of
from ortisan.codegen.ait.scalars import COMPARISONS, FUNCTIONS
from ortisan.registry.dims import is_static, symbols_of
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import (
    Attention,
    Bmm,
    Cast,
    Concatenate,
    Conv2d,
    DynamicSlice,
    Elementwise,
    Expand,
    Full,
    Gather,
    Gemm,
    IndexSelect,
    LayerNorm,
    Pad,
    Permute,
    Pool2d,
    Reduce,
    Reshape,
    Softmax,
    Split,
)

FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
_KNOWN = (*FLOATS, DType.INT32, DType.INT64, DType.BOOL)
_MAX_PAD_RANK = 4
_MAX_POOL_CHANNELS = 512
Reason = str | None


def why_not(node: Node, bounds: Bounds) -> Reason:
    """Why AITemplate can't be given this node; None when nothing speaks against it."""
    rule = RULES.get(type(node.op))
    if rule is None:
        return f"AITemplate has no {node.op.name}"
    values = (*node.inputs, *node.outputs)
    if reason := next((reason for value in values if (reason := _tensor(value))), None):
        return reason
    for name in sorted({name for value in values for dim in value.shape for name in symbols_of(dim)}):
        if name not in bounds:
            return f"the dim {name} is no dim of the model's inputs, so it has no upper bound, which AITemplate needs"
    return rule(node, bounds)


def _tensor(value: Value) -> Reason:
    if value.dtype not in _KNOWN:
        return f"AITemplate has no {value.dtype.value}"
    if not value.shape and value.data is None:
        return "AITemplate has no tensors without dims"
    for dim in value.shape:
        if is_static(dim) and dim == 0:
            return f"AITemplate has no empty tensors, and {value.type} is one"
    return None


def _floats(node: Node) -> Reason:
    for value in (*node.inputs, *node.outputs):
        if value.dtype not in FLOATS:
            return f"AITemplate's {node.op.name} takes float16, bfloat16 and float32, not {value.dtype.value}"
    return None


def _static(dims: Sequence[object], what: str) -> Reason:
    return None if all(isinstance(dim, int) for dim in dims) else f"AITemplate needs {what} known when it compiles"


def _elementwise(node: Node, bounds: Bounds) -> Reason:
    op = node.op
    assert isinstance(op, Elementwise)
    name = op.func.lower()
    if op.func in COMPARISONS:
        if any(value.dtype is DType.BOOL for value in node.inputs):
            return f"AITemplate's {name} takes no bool"
        return _same_shapes(node, name)
    if op.func == "WHERE":
        return _same_shapes(node, name) or (
            "AITemplate's where takes no bool" if node.output.dtype is DType.BOOL else None
        )
    if op.func not in FUNCTIONS:
        return f"AITemplate has no {name}"
    if node.output.dtype not in FLOATS:
        return f"AITemplate computes {name} in float16, bfloat16 and float32 only, not in {node.output.dtype.value}"
    return _broadcasts(node)


def _same_shapes(node: Node, name: str) -> Reason:
    for value in node.inputs:
        if value.shape != node.output.shape and value.data is None:
            return f"AITemplate's {name} does not broadcast"
    return None


def _broadcasts(node: Node) -> Reason:
    for value in node.inputs:
        for have, need in zip(reversed(value.shape), reversed(node.output.shape), strict=False):
            if have != need and not (is_static(have) and have == 1):
                return f"the dims {have} and {need} are not known to be equal, as AITemplate needs them to be"
    return None


def _gemm(node: Node, bounds: Bounds) -> Reason:
    x, w = node.inputs[:2]
    if len(x.shape) < 2:
        return "AITemplate's matrix products need a matrix on the left"
    return _floats(node) or _static((x.shape[-1], *w.shape), "the inner size and the width of a matrix product")


def _bmm(node: Node, bounds: Bounds) -> Reason:
    a, b = node.inputs
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0]:
        return "AITemplate multiplies batches of equal size, with one batch dim"
    widths = (a.shape[-1], b.shape[-1], node.output.shape[-1])
    return _floats(node) or _static(widths, "the inner size and the width of a matrix product")


def _softmax(node: Node, bounds: Bounds) -> Reason:
    (x,) = node.inputs
    op = node.op
    assert isinstance(op, Softmax)
    if len(x.shape) < 2:
        return "AITemplate's softmax needs two dims"
    axis = op.axis % len(x.shape)
    return _floats(node) or _static(x.shape[axis:], "the dims that a softmax runs over and those behind them")


def _layernorm(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, LayerNorm)
    if op.statistics:
        return "AITemplate's layernorm gives neither mean nor variance"
    return _floats(node) or _static(x.shape[op.axis :], "the normalised dims")


def _reduce(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Reduce)
    if op.kind not in ("sum", "mean", "max", "min"):
        return f"AITemplate has no {op.name}"
    if op.first != op.last or op.last != len(x.shape) - 1:
        return f"AITemplate's {op.name} is taken along the last axis only"
    return _floats(node) or _static(x.shape[-1:], "the dim that is reduced")


def _attention(node: Node, bounds: Bounds) -> Reason:
    q, k, v = node.inputs[:3]
    if q.shape[1] != k.shape[1]:
        return "AITemplate's attention has no grouped heads"
    sizes = (q.shape[1], q.shape[3], v.shape[3])
    if reason := _floats(node) or _static(sizes, "the number and the size of heads"):
        return reason
    if any(size % 4 for size in sizes[1:]):
        return f"AITemplate's attention needs head sizes that are multiples of 4, not {sizes[1]} and {sizes[2]}"
    return None


def _permute(node: Node, bounds: Bounds) -> Reason:
    return _floats(node)


def _reshape(node: Node, bounds: Bounds) -> Reason:
    return None


def _expand(node: Node, bounds: Bounds) -> Reason:
    return None if node.inputs[0].shape else "AITemplate expands no scalars"


def _concatenate(node: Node, bounds: Bounds) -> Reason:
    return None


def _split(node: Node, bounds: Bounds) -> Reason:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Split)
    if x.dtype is DType.INT64:
        return "AITemplate's split of int64 does not compile"
    return _static(op.sizes, "the sizes of a split")


def _dynamic_slice(node: Node, bounds: Bounds) -> Reason:
    (x,) = node.inputs
    if x.dtype is DType.INT64:
        return "AITemplate's dynamic_slice of int64 does not compile"
    return None


def _pad(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Pad)
    last = len(x.shape) - 1
    ends = all(is_static(n) and n == 0 for n in (*op.before, *op.after[:last]))
    if op.mode != "constant" or len(node.inputs) > 1 or not ends or len(x.shape) > _MAX_PAD_RANK:
        return "AITemplate pads with zeros, at the end of the last of at most 4 dims"
    width = node.output.shape[-1]
    if not is_static(width) or width <= range_of(x.shape[-1], bounds)[1]:
        return "AITemplate pads to a width that is known when it compiles"
    return _floats(node)


def _cast(node: Node, bounds: Bounds) -> Reason:
    have, to = node.inputs[0].dtype, node.output.dtype
    if to not in FLOATS or have not in (*FLOATS, DType.BOOL):
        return f"AITemplate has no cast from {have.value} to {to.value}"
    return None


def _full(node: Node, bounds: Bounds) -> Reason:
    return "AITemplate's full makes no bool" if node.output.dtype is DType.BOOL else None


def _conv2d(node: Node, bounds: Bounds) -> Reason:
    op, x, w = node.op, *node.inputs[:2]
    assert isinstance(op, Conv2d)
    if op.pads[:2] != op.pads[2:]:
        return f"AITemplate's conv2d pads both sides alike, not {op.pads}"
    if op.group != 1 and not op.group == x.shape[3] == w.shape[0]:
        return (
            f"AITemplate computes a convolution of {op.group} groups wrongly; it has one group, or one for each channel"
        )
    if op.group != 1 and x.dtype is not DType.FLOAT16:
        return f"AITemplate's depthwise convolution gives float16, not {x.dtype.value}"
    if any(range_of(extent, bounds)[0] == 0 for extent in node.output.shape[1:3]):
        return "AITemplate needs images that are never smaller than the filters; bound their dims from below"
    if reason := _floats(node) or _static((x.shape[3], *w.shape), "the channels and the filters of a convolution"):
        return reason
    return f"AITemplate has no convolution of {x.shape[3]} channels" if x.shape[3] % 2 else None


def _pool2d(node: Node, bounds: Bounds) -> Reason:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Pool2d)
    if len({*op.kernel}) > 1 or len({*op.strides}) > 1 or len({*op.pads}) > 1:
        return "AITemplate's pools have square windows, with one stride and one padding"
    if op.kind == "mean" and op.pads[0] and not op.counts_padding:
        return "AITemplate's avg_pool2d counts the padding"
    if x.dtype not in (DType.FLOAT16, DType.FLOAT32):
        return f"AITemplate's pools take float16 and float32, not {x.dtype.value}"
    if reason := _static(x.shape[1:], "the size of a pooled image"):
        return reason
    if x.shape[3] % 2 or (op.kind == "max" and x.shape[3] > _MAX_POOL_CHANNELS):
        return f"AITemplate's pools take an even number of channels up to {_MAX_POOL_CHANNELS}, not {x.shape[3]}"
    return None


def _indices(node: Node, bounds: Bounds) -> Reason:
    x, indices = node.inputs
    if indices.data is None:
        return (
            "AITemplate checks no index: one that is negative or too large would read other memory, "
            "so a gather by indices known at run time stays in ONNX Runtime"
        )
    if isinstance(node.op, Gather) and x.dtype not in (DType.FLOAT16, DType.FLOAT32, DType.INT64):
        return f"AITemplate's gather takes no {x.dtype.value}"
    return "AITemplate's index_select takes no bool" if x.dtype is DType.BOOL else None


RULES: dict[type, Callable[[Node, Bounds], Reason]] = {
    Attention: _attention,
    Bmm: _bmm,
    Cast: _cast,
    Concatenate: _concatenate,
    Conv2d: _conv2d,
    DynamicSlice: _dynamic_slice,
    Elementwise: _elementwise,
    Expand: _expand,
    Full: _full,
    Gather: _indices,
    Gemm: _gemm,
    IndexSelect: _indices,
    LayerNorm: _layernorm,
    Pad: _pad,
    Permute: _permute,
    Pool2d: _pool2d,
    Reduce: _reduce,
    Reshape: _reshape,
    Softmax: _softmax,
    Split: _split,
}
"""The ops of the op graph that AITemplate has; what else there is, is composed of these or refused."""
