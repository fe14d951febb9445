"""What ONNX Runtime would refuse in a graph whose shapes are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from ortisan.checks.samples.clues import Clue
from ortisan.checks.samples.shapes import Dims, constant, dims_of, input_at
from ortisan.registry.surprise import Surprise, surprises

_BROADCASTS = frozenset(
    {"Add", "And", "BitwiseAnd", "BitwiseOr", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max"}
    | {"Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"}
)
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})


def find_misfit(node: ir.Node) -> Clue | None:
    """The first thing that is wrong with the shapes that a node reads; what is unknown is taken for right."""
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain != "":
        return None
    dims = [dims_of(value) for value in node.inputs]
    try:
        with surprises():
            return rule(node, dims) if dims and dims[0] is not None else None
    except Surprise:  # ranks or attributes that no node of this op has: ONNX Runtime says what is wrong
        return None


def _broadcast(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    return _agree([shape for shape in dims if shape is not None])


def _agree(shapes: Sequence[Dims]) -> Clue | None:
    """Shapes that are aligned at their last axes agree where none is 1."""
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1, None}
        if len(sizes) > 1:
            return Clue("differ", tuple(size for size in sizes if size is not None))
    return None


def _window(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    """A dilated kernel fits into its padded input, and the channels are those of the weights."""
    data, weight = dims[0], dims[1] if len(dims) > 1 else None
    kernel: Sequence[int | None] = node.attributes.get_ints("kernel_shape", ()) or (weight or ())[2:]
    if data is None or not kernel or len(data) != len(kernel) + 2:
        return None
    count = len(kernel)
    if node.op_type == "Conv" and weight is not None and weight[1] is not None and data[1] is not None:
        channels = weight[1] * node.attributes.get_int("group", 1)
        if channels != data[1]:
            return Clue("equal", (data[1], channels))
    if node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME"):
        return None
    pads = node.attributes.get_ints("pads", ()) or (0,) * 2 * count
    dilations = node.attributes.get_ints("dilations", ()) or (1,) * count
    for axis, (size, width) in enumerate(zip(data[2:], kernel, strict=True)):
        if size is None or width is None or len(pads) != 2 * count:
            continue
        if size + pads[axis] + pads[axis + count] < dilations[axis] * (width - 1) + 1:
            return Clue("small", (size, dilations[axis] * (width - 1) + 1 - pads[axis] - pads[axis + count]))
    return None


def _concat(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    shapes = [shape for shape in dims if shape is not None]
    rank = len(shapes[0])
    axis = node.attributes.get_int("axis", 0)
    if any(len(shape) != rank for shape in shapes) or not -rank <= axis < rank:
        return None
    for index in range(rank):
        sizes = {shape[index] for shape in shapes} - {None}
        if index != axis % rank and len(sizes) > 1:
            return Clue("differ", tuple(size for size in sizes if size is not None))
    return None


def _matmul(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    first, second = dims[0], dims[1] if len(dims) > 1 else None
    if not first or not second:
        return None
    rows = second[-2] if len(second) > 1 else second[-1]
    return _equal(first[-1], rows) or _agree([first[:-2], second[:-2]])


def _gemm(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    first, second = dims[0], dims[1] if len(dims) > 1 else None
    if first is None or second is None or len(first) != 2 or len(second) != 2:
        return None
    return _equal(
        first[0 if node.attributes.get_int("transA", 0) else 1],
        second[1 if node.attributes.get_int("transB", 0) else 0],
    )


def _equal(size: int | None, expected: int | None) -> Clue | None:
    return Clue("equal", (size, expected)) if None not in (size, expected) and size != expected else None  # type: ignore[arg-type]


def _reshape(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    before, after = dims[0], dims_of(node.outputs[0])
    target = constant(input_at(node, 1))
    if before is None or None in before:
        return None
    elements = math.prod(dim for dim in before if dim is not None)
    if target is not None and -1 in target and node.attributes.get_int("allowzero", 0) == 0:
        parts = [before[index] if dim == 0 and index < len(before) else int(dim) for index, dim in enumerate(target)]
        unit = math.prod(dim for dim in parts if dim is not None and dim >= 0)
        if unit == 0:  # nothing tells what the -1 is
            return Clue("small", (0, 1))
        return Clue("multiple", (elements, unit)) if elements % unit else None
    if after is None or None in after:
        return None
    wanted = math.prod(dim for dim in after if dim is not None)
    return Clue("multiple", (elements, wanted)) if wanted != elements and elements else None


def _pad(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    data, pads = dims[0], constant(input_at(node, 1))
    widths = [int(pad) for pad in pads] if pads is not None else list(node.attributes.get_ints("pads", ()))
    if data is None or len(widths) != 2 * len(data) or len(node.inputs) > 3:
        return None
    mirrored = node.attributes.get_string("mode", "constant") == "reflect"
    for axis, size in enumerate(data):
        ends = widths[axis], widths[axis + len(data)]
        if size is not None and (size + sum(ends) < 1 or (mirrored and max(ends) >= size)):
            return Clue("small", (size, max(1 - sum(ends), max(ends) + 1)))
    return None


def _split(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    sizes = constant(input_at(node, 1))
    parts = [int(size) for size in sizes] if sizes is not None else list(node.attributes.get_ints("split", ()))
    data, axis = dims[0], node.attributes.get_int("axis", 0)
    if not parts or data is None or not -len(data) <= axis < len(data):
        return None
    return _equal(data[axis], sum(parts))


def _gather(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    data, indices, axis = dims[0], constant(input_at(node, 1)), node.attributes.get_int("axis", 0)
    if data is None or indices is None or not indices.size or not -len(data) <= axis < len(data):
        return None
    size = data[axis]
    needed = max(int(indices.max()) + 1, -int(indices.min()))
    return Clue("small", (size, needed)) if size is not None and size < needed else None


def _stft(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    data, window, length = dims[0], dims[2] if len(dims) > 2 else None, constant(input_at(node, 3))
    needed = window[0] if window else int(length.reshape(-1)[0]) if length is not None else None
    if data is None or len(data) < 2 or data[1] is None or needed is None:
        return None
    return Clue("small", (data[1], needed)) if data[1] < needed else None


def _recurrent(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    data, weight, state = dims[0], dims[1] if len(dims) > 1 else None, dims[5] if len(dims) > 5 else None
    if data is None or len(data) != 3:
        return None
    if weight is not None and len(weight) == 3 and (clue := _equal(data[2], weight[2])):
        return clue
    batch = 0 if node.attributes.get_int("layout", 0) else 1
    if state is not None and len(state) == 3 and (clue := _equal(data[batch], state[batch])):
        return Clue("differ", clue.numbers)
    return Clue("small", (0, 1)) if data[1 - batch] == 0 else None


def _normalization(node: ir.Node, dims: Sequence[Dims | None]) -> Clue | None:
    data, scale = dims[0], dims[1] if len(dims) > 1 else None
    if data is None or scale is None or len(scale) != 1:
        return None
    axis = -1 if node.op_type == "LayerNormalization" else 1
    return _equal(data[axis], scale[0]) if len(data) > 1 else None


_RULES: dict[str, Callable[[ir.Node, Sequence[Dims | None]], Clue | None]] = {
    **dict.fromkeys(_BROADCASTS, _broadcast),
    **dict.fromkeys(_POOLS, _window),
    **dict.fromkeys(_RECURRENT, _recurrent),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "LayerNormalization"), _normalization),
    "Concat": _concat,
    "Conv": _window,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Reshape": _reshape,
    "STFT": _stft,
    "Split": _split,
}
