"""Ops that move elements, or give them another shape."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds, range_of
from ortisan.codegen.ait.ops.generate import compose_full
from ortisan.codegen.ait.rules import FLOATS, Reason, floats, static, takes_all, takes_floats
from ortisan.registry.dims import Dim, is_static, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import (
    Arange,
    Concatenate,
    DynamicSlice,
    Expand,
    Full,
    Pad,
    Permute,
    Reshape,
    Split,
    Trilu,
)
from ortisan.registry.refusal import Refused

_MAX_PAD_RANK = 4


def _compose_reshape(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Reshape)
    return [b.reshape(inputs[0], op.shape)]


def _call_reshape(w: CallWriter, node: Node) -> None:
    w.reshape(node)


def _compose_permute(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Permute)
    return [b.permute(inputs[0], op.order)]


def _call_permute(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Permute)
    w.add(node, "permute", [w.read(node.inputs[0]), list(node.op.order)])


def _expand_rule(node: Node, bounds: Bounds) -> Reason:
    if node.inputs[0].dtype not in FLOATS:
        return "what follows an expansion of integers or bools is computed by kernels of ours, which need none"
    return _expands(node, bounds) if node.inputs[0].shape else "AITemplate expands no scalars"


def _expands(node: Node, bounds: Bounds) -> Reason:
    """A dim that is expanded is 1 for certain; one that might be either is refused."""
    have = node.inputs[0].shape
    for dim, need in zip(reversed(have), reversed(node.output.shape), strict=False):
        if dim not in (need, 1):
            return f"the dims {dim} and {need} are not known to be equal, as GPU kernels need them to be"
    return None


def _compose_expand(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Expand)
    x = inputs[0] if inputs[0].shape else b.reshape(inputs[0], (1,))
    shape = op.infer([x.type], b.facts())[0].shape
    return [x if shape == x.shape else b.add(Expand(shape), x)]


def _call_expand(w: CallWriter, node: Node) -> None:
    w.add(node, "expand", [w.read(node.inputs[0]), w.target(node), "int64", False])


def _compose_concatenate(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Concatenate)
    parts = [x for x in inputs if x.shape[op.axis] != 0]
    return [parts[0] if len(parts) == 1 else b.add(op, *(parts or inputs))]


def _call_concatenate(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Concatenate)
    w.add(node, "concatenate", [[w.read(value) for value in node.inputs], node.op.axis])


def _split_rule(node: Node, bounds: Bounds) -> Reason:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Split)
    if x.dtype not in FLOATS:
        return "AITemplate's split of int64 does not compile; kernels of ours read pieces as they are"
    return static(op.sizes, "the sizes of a split")


def _compose_split(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Split)
    return [inputs[0]] if len(op.sizes) == 1 else b.add_many(op, *inputs)


def _call_split(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Split)
    w.add(node, "split", [w.read(node.inputs[0]), list(node.op.sizes), node.op.axis])


def _slice_rule(node: Node, bounds: Bounds) -> Reason:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, DynamicSlice)
    if x.dtype not in FLOATS:
        return "AITemplate's dynamic_slice of int64 does not compile; kernels of ours read slices as they are"
    try:
        for dim, start, size, step in zip(x.shape, op.starts, op.sizes, op.steps, strict=True):
            _slice_ends(dim, start, size, step)
            _check_fits(bounds, dim, start, size)
            _check_rest(bounds, dim, size)
    except Refused as refused:
        return str(refused)
    return None


def _slices(node: Node, bounds: Bounds) -> Reason:
    """A slice of fixed size that a dim may be too short for would read other memory; others come with guards."""
    op, (x,) = node.op, node.inputs
    assert isinstance(op, DynamicSlice)
    try:
        for dim, start, size in zip(x.shape, op.starts, op.sizes, strict=True):
            _check_fits(bounds, dim, start, size)
    except Refused as refused:
        return str(refused)
    return None


def compose_slice(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, DynamicSlice)
    (x,) = inputs
    if x.shape == op.sizes and all(start == 0 for start in op.starts):
        return [x]
    return [b.add(op, x)]


def _slice_ends(dim: Dim, start: Dim, size: Dim, step: int) -> tuple[int | None, int | None]:
    """(start, end) as AITemplate takes them: numbers, negative from the end, None for all."""
    if step != 1 and size != 1:
        raise Refused(f"AITemplate slices with step 1, not {step}")
    if start == 0 and settle(size - dim) == 0:
        return None, None
    if is_static(start) and is_static(size):
        return int(start), int(start + size)
    from_end = settle(start - dim)
    left = settle(dim - start - size)
    if is_static(from_end) and from_end < 0 and is_static(left):
        return int(from_end), -int(left) if left else None
    if start == 0 and is_static(left) and left > 0:
        return 0, -int(left)
    raise Refused(f"AITemplate slices between fixed places, not {size} elements from {start} of {dim}")


def _check_fits(bounds: Bounds, dim: Dim, start: Dim, size: Dim) -> None:
    """A slice of fixed size reads past the end of a shorter dim, and AITemplate does not look."""
    if is_static(dim) or (start == 0 and settle(size - dim) == 0):
        return
    least = range_of(dim, bounds)[0]
    needed = settle(start + size) if is_static(start) else settle(dim - start)
    if is_static(needed) and least < needed:
        raise Refused(f"a slice of {needed} needs a dim that is never shorter, and {dim} may be {least}")


def _check_rest(bounds: Bounds, dim: Dim, size: Dim) -> None:
    """What is cut off may be longer than the dim, where a guard says that it is not: AITemplate knows no guards."""
    cut = settle(dim - size)
    if is_static(cut) and not is_static(dim) and range_of(dim, bounds)[0] < cut:
        raise Refused(f"AITemplate can't tell that {dim} is at least {cut}")


def _call_slice(w: CallWriter, node: Node) -> None:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, DynamicSlice)
    ends = [_slice_ends(*each) for each in zip(x.shape, op.starts, op.sizes, op.steps, strict=True)]
    w.add(node, "dynamic_slice", [w.read(x), [start for start, _ in ends], [end for _, end in ends]])


def _pad_rule(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Pad)
    last = len(x.shape) - 1
    ends = all(is_static(n) and n == 0 for n in (*op.before, *op.after[:last]))
    if op.mode != "constant" or len(node.inputs) > 1 or not ends or len(x.shape) > _MAX_PAD_RANK:
        return "AITemplate pads with zeros, at the end of the last of at most 4 dims"
    width = node.output.shape[-1]
    if not is_static(width) or width <= range_of(x.shape[-1], bounds)[1]:
        return "AITemplate pads to a width that is known when it compiles"
    return floats(node)


def _compose_pad(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Zeros at the end of the last dim, up to a fixed width, by pad_last_dim; other numbers and places by joining."""
    assert isinstance(op, Pad)
    x, value = inputs[0], 0.0
    if op.mode != "constant":
        raise Refused(f"AITemplate has no padding of mode {op.mode}")
    if len(inputs) > 1:
        if inputs[1].data is None:
            raise Refused("AITemplate pads with a number that is known when it compiles")
        value = float(inputs[1].data.reshape(()))
    if value == 0 and _ends_last(op) and x.dtype in FLOATS and len(x.shape) <= 4:
        return [b.add(Pad(op.before, op.after), x)]
    if not all(is_static(n) and n >= 0 for n in (*op.before, *op.after)):
        return [b.add(Pad(op.before, op.after), x)] if value == 0 else _refuse_width()
    for axis, (before, after) in enumerate(zip(op.before, op.after, strict=True)):
        if before == after == 0:
            continue
        parts = [_block(b, x, axis, before, value), x, _block(b, x, axis, after, value)]
        x = b.add(Concatenate(axis), *(part for part in parts if part is not None))
    return [x]


def _ends_last(op: Pad) -> bool:
    """Whether elements are added at the end of the last dim only."""
    if any(not is_static(n) or n for n in (*op.before, *op.after[:-1])):
        return False
    return not is_static(op.after[-1]) or op.after[-1] > 0


def _refuse_width() -> Sequence[Value]:
    raise Refused("AITemplate pads to a width that is known when it compiles with zeros only")


def _block(b: Composer, x: Value, axis: int, size: Dim, value: float) -> Value | None:
    if size == 0:
        return None
    return compose_full(b, Full((*x.shape[:axis], size, *x.shape[axis + 1 :]), value, x.dtype), ())[0]


def _call_pad(w: CallWriter, node: Node) -> None:
    width, rank = node.output.shape[-1], len(node.output.shape)
    w.add(node, "pad_last_dim", [w.read(node.inputs[0])], {"ndim": rank, "out_dim": width})


def _compose_trilu(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """x where column - row is at least k, or at most k, and 0 elsewhere."""
    assert isinstance(op, Trilu)
    (x,) = inputs
    rows, columns = (b.add(Arange(0, 1, size, DType.INT64)) for size in x.shape[-2:])
    side = b.elementwise("SUB", columns, b.reshape(rows, (x.shape[-2], 1)))
    keep = b.elementwise("GE" if op.upper else "LE", side, b.number(op.k, DType.INT64))
    return [b.elementwise("WHERE", keep, x, b.number(0, x.dtype))]


OPS = (
    AitOp(Concatenate, rule=takes_all, compose=_compose_concatenate, call=_call_concatenate),
    AitOp(DynamicSlice, _slice_rule, compose_slice, _call_slice, _slices),
    AitOp(Expand, _expand_rule, _compose_expand, _call_expand, _expands),
    AitOp(Pad, rule=_pad_rule, compose=_compose_pad, call=_call_pad),
    AitOp(Permute, takes_floats, _compose_permute, _call_permute, takes_all),
    AitOp(Reshape, rule=takes_all, compose=_compose_reshape, call=_call_reshape),
    AitOp(Split, _split_rule, _compose_split, _call_split, takes_all),
    AitOp(Trilu, compose=_compose_trilu),
)
