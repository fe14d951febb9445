"""Rules of shape inference that the package lacks, and those of its rules that assume what they can't know.

A rule here says nothing rather than something that holds for most models only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext, registry

from ortisan.converter.passes.body_shapes import infer_early_scan
from ortisan.converter.passes.computed_shapes import correct_concat, correct_reshape
from ortisan.converter.passes.loop_shapes import infer_loop
from ortisan.converter.passes.ml_rules import ML_RULES
from ortisan.converter.passes.opaque import Rule, guard_rules
from ortisan.converter.passes.schema_types import register_schema_types

Dim = int | ir.SymbolicDim


@functools.cache
def register_own_rules() -> None:
    """Replaces and adds rules, once in a process."""
    registry.collect()
    registry.register("", "LayerNormalization", since_version=1)(_infer_early_layer_norm)
    registry.register("", "Scan", since_version=8)(infer_early_scan)
    for op_type, rule in _STANDARD.items():
        for version in {1, *registry.version_boundaries("", op_type)}:
            registry.register("", op_type, since_version=version)(rule)
    for op_type, correct in _CORRECTED.items():
        for version in dict.fromkeys(registry.version_boundaries("", op_type)):
            known = registry.get("", op_type, version)
            if known is not None:
                registry.register("", op_type, since_version=version)(_after(known, correct))
    for op_type in _LIKE_FIRST_BEFORE_BROADCASTING:
        if min(registry.version_boundaries("", op_type), default=1) > 1:
            registry.register("", op_type, since_version=1)(_infer_like_first)
    for op_type in _LIKE_LATER_ONES:
        first = min(registry.version_boundaries("", op_type), default=1)
        later = registry.get("", op_type, first)
        if first > 1 and later is not None:
            registry.register("", op_type, since_version=1)(later)
    for op_type, rule in ML_RULES.items():
        registry.register("ai.onnx.ml", op_type, since_version=1)(rule)
    for op_type, twin in _CONTRIB_TWINS.items():
        known = registry.get("", twin, 17)
        if known is not None:
            registry.register("com.microsoft", op_type, since_version=1)(known)
    for op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        registry.register("com.microsoft", op_type, since_version=1)(_infer_float_product)
    register_schema_types()
    guard_rules()


def _after(rule: Rule, correct: Rule) -> Rule:
    def both(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        rule(ctx, node)
        correct(ctx, node)

    return both


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _infer_like_first(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Before opset 7 the second operand was broadcast to the first, if at all; truth values come out of tests."""
    x = _input(node, 0)
    if x is not None:
        truth = node.op_type in ("And", "Or", "Xor", "Equal", "Greater", "Less")
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, ir.DataType.BOOL if truth else x.dtype)


def _infer_early_layer_norm(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """ORT's optimizer writes LayerNormalization in the default domain before opset 17, where ONNX has none."""
    x = _input(node, 0)
    if x is not None and x.shape is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, x.dtype)


def _infer_squeeze(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Without axes, or with axes that are computed, the rank is known only when every dim is."""
    x, axes = _input(node, 0), _input(node, 1)
    if x is None:
        return
    constant = None if axes is None else ir.convenience.get_const_tensor(axes)
    if axes is not None and constant is None:
        ctx.set_shape_and_dtype(node.outputs[0], None, x.dtype)
        return
    given = node.attributes.get_ints("axes", None) if constant is None else constant.numpy().reshape(-1).tolist()
    ctx.set_shape_and_dtype(node.outputs[0], _squeezed(x.shape, given), x.dtype)
    elements = ctx.get_symbolic_value(x)
    if elements is not None:
        ctx.set_symbolic_value(node.outputs[0], elements)


def _squeezed(shape: ir.Shape | None, axes: Sequence[int] | None) -> ir.Shape | None:
    if shape is None:
        return None
    rank = shape.rank()
    if axes is None:
        return ir.Shape([dim for dim in shape if dim != 1]) if shape.is_static() else None
    places = {axis + rank if axis < 0 else axis for axis in axes}
    for place in places:
        if not 0 <= place < rank:
            raise ValueError(f"axis {place} is outside of {rank} dims")
        if isinstance(shape[place], int) and shape[place] != 1:
            raise ValueError(f"axis {place} of size {shape[place]} can't be squeezed")
    return ir.Shape([dim for place, dim in enumerate(shape) if place not in places])


def _infer_if(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """What both branches agree on; a rank that one of them does not tell is not known."""
    branches = [node.attributes.get(name) for name in ("then_branch", "else_branch")]
    if any(branch is None or branch.type != ir.AttributeType.GRAPH for branch in branches):
        return
    graphs = [branch.as_graph() for branch in branches if branch is not None]
    for output, one, other in zip(node.outputs, graphs[0].outputs, graphs[1].outputs, strict=False):
        kinds = {type(value.type) for value in (one, other) if value.type is not None}
        if kinds - {ir.TensorType}:
            if one.type is not None and one.type == other.type:
                ctx.set_type(output, one.type)
            continue
        dtype = one.dtype if one.dtype == other.dtype or other.dtype is None else None
        ctx.set_shape_and_dtype(output, _common_shape(ctx, one.shape, other.shape), dtype)


def _common_shape(ctx: ShapeInferenceContext, a: ir.Shape | None, b: ir.Shape | None) -> ir.Shape | None:
    if a is None or b is None or a.rank() != b.rank():
        return None
    known = [isinstance(x, int) or x.value is not None for x in a]
    return ir.Shape([x if x == y and sure else ctx.new_symbolic_dim() for x, y, sure in zip(a, b, known, strict=True)])


def _infer_unique(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """With an axis the rank stays, and one dim depends on the data; without one the result is a vector."""
    x = _input(node, 0)
    if x is None:
        return
    count = _infer_selected(ctx, node, x)
    for index, dim in enumerate((count, ctx.new_symbolic_dim(), count), start=1):
        if index < len(node.outputs):
            ctx.set_shape_and_dtype(node.outputs[index], ir.Shape([dim]), ir.DataType.INT64)


def _infer_compress(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    x = _input(node, 0)
    if x is None:
        return
    _infer_selected(ctx, node, x)


def _infer_selected(ctx: ShapeInferenceContext, node: ir.Node, x: ir.Value) -> Dim:
    """The first output has a number of elements that the data decides, along the axis if there is one; gives it."""
    count: Dim = ctx.new_symbolic_dim()
    axis = node.attributes.get_int("axis", None)
    shape: ir.Shape | None = ir.Shape([count])
    if axis is not None:
        shape = None if x.shape is None else _replaced(x.shape, axis, count)
    ctx.set_shape_and_dtype(node.outputs[0], shape, x.dtype)
    return count


def _replaced(shape: ir.Shape, axis: int, dim: Dim) -> ir.Shape:
    dims = list(shape)
    dims[axis] = dim
    return ir.Shape(dims)


def _forget(ctx: ShapeInferenceContext, value: ir.Value, axes: Callable[[int], bool]) -> None:
    """Gives chosen dims of a value new names: their size is not what the rule says."""
    if value.shape is not None:
        value.shape = ir.Shape([ctx.new_symbolic_dim() if axes(axis) else dim for axis, dim in enumerate(value.shape)])


def _correct_pool(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Rounded up, the last window may begin in the padding and is dropped then."""
    x = _input(node, 0)
    if node.attributes.get_int("ceil_mode", 0) and x is not None and x.shape is not None:
        shape = x.shape
        for value in node.outputs:
            _forget(ctx, value, lambda axis: axis >= 2 and not isinstance(shape[axis], int))


def _correct_split(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Sizes that are computed are not known, and need not be equal."""
    sizes, x = _input(node, 1), _input(node, 0)
    if sizes is None or ir.convenience.get_const_tensor(sizes) is not None or x is None or x.shape is None:
        return
    place = node.attributes.get_int("axis", 0) % max(x.shape.rank(), 1)
    for value in node.outputs:
        _forget(ctx, value, lambda axis: axis == place)


def _correct_resize(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A policy that keeps the aspect ratio changes the sizes that are given."""
    if node.attributes.get_string("keep_aspect_ratio_policy", "stretch") != "stretch":
        _forget(ctx, node.outputs[0], lambda _: True)


def _correct_mel(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    _forget(ctx, node.outputs[0], lambda _: True)


def _correct_filled(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """There are as many dims as the shape has elements, whatever they are."""
    shape, output = _input(node, 0), node.outputs[0]
    if output.shape is None and shape is not None and shape.shape is not None and len(shape.shape) == 1:
        rank = shape.shape[0]
        if isinstance(rank, int):
            output.shape = ir.Shape([ctx.new_symbolic_dim() for _ in range(rank)])


def _correct_shape(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A shape is a vector, of whatever it is the shape."""
    if node.outputs[0].shape is None:
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([ctx.new_symbolic_dim()]), ir.DataType.INT64)


def _correct_slice(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A slice ends at the end of its axis, where its bound lies behind it."""
    x, output = _input(node, 0), node.outputs[0]
    if x is None or x.shape is None or output.shape is None:
        return
    read = [_numbers(ctx, _input(node, index)) for index in range(1, 5)]
    starts, ends = read[0], read[1]
    if starts is None or ends is None:
        return
    if any(_input(node, index) is not None and read[index - 1] is None for index in (3, 4)):
        _forget(ctx, output, lambda _: True)
        return
    axes = read[2] if read[2] is not None else list(range(len(starts)))
    steps = read[3] if read[3] is not None else [1] * len(starts)
    dims = list(output.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        if not (isinstance(start, int) and isinstance(end, int) and isinstance(axis, int) and isinstance(step, int)):
            continue
        dim = x.shape[axis]
        if isinstance(dim, int):
            continue
        if step > 0 and start >= 0 and 0 <= end < _OPEN_END:
            dims[axis] = _clipped(ctx, dim, start, end, step)
    output.shape = ir.Shape(dims)


_OPEN_END = 2**31 - 1


def _clipped(ctx: ShapeInferenceContext, dim: ir.SymbolicDim, start: int, end: int, step: int) -> Dim:
    """The number of elements of start:end:step over a dim."""
    if end <= start:
        return 0
    if dim.value is None:
        fresh: Dim = ctx.new_symbolic_dim()
        return fresh
    # the parsed form of dim.value; onnx-ir has no public name for it
    count: Any = sympy.ceiling((sympy.Min(dim._expr, end) - start) / sympy.Integer(step))
    clipped: Any = sympy.Max(0, count) if start else count
    found = ir.SymbolicDim(clipped)
    if found.free_symbols():
        return found
    return int(clipped)


def _numbers(ctx: ShapeInferenceContext, value: ir.Value | None) -> list[Dim] | None:
    if value is None:
        return None
    constant = ir.convenience.get_const_tensor(value)
    if constant is not None:
        return [int(number) for number in constant.numpy().reshape(-1)]
    known = ctx.get_symbolic_value(value)
    return None if known is None else list(known)


def _infer_float_product(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A product of quantized matrices that comes out as float."""
    product = registry.get("", "MatMul", 17)
    if product is not None:
        product(ctx, node)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)


_STANDARD: dict[str, Rule] = {
    "Compress": _infer_compress,
    "If": _infer_if,
    "Loop": infer_loop,
    "Squeeze": _infer_squeeze,
    "Unique": _infer_unique,
}
_CORRECTED: dict[str, Rule] = {
    "AveragePool": _correct_pool,
    "ConstantOfShape": _correct_filled,
    "Concat": correct_concat,
    "LpPool": _correct_pool,
    "MaxPool": _correct_pool,
    "MelWeightMatrix": _correct_mel,
    "Reshape": correct_reshape,
    "Resize": _correct_resize,
    "Shape": _correct_shape,
    "Slice": _correct_slice,
    "Split": _correct_split,
}
_LIKE_FIRST_BEFORE_BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"),
    *("Max", "Min", "Sum", "Mean"),
)
_LIKE_LATER_ONES = ("Dropout", "GRU", "Gemm", "LSTM", "RNN")
_CONTRIB_TWINS = {"FusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMulActivation": "MatMul", "Trilu": "Trilu"}
