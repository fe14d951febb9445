"""What the inputs of a graph are for, told by the nodes that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ortisan.checks.samples.shapes import dims_of, free_symbols, input_at

_CARRIES = frozenset(
    {"Abs", "Add", "BatchNormalization", "Cast", "Clip", "Concat", "DequantizeLinear", "Div", "DynamicQuantizeLinear"}
    | {"Expand", "Gather", "Identity", "InstanceNormalization", "Mul", "Neg", "Pad", "Pow", "QuantizeLinear", "Reshape"}
    | {"Resize", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Upsample", "Where", "ScatterElements"}
)
"""Ops that leave an image an image and a sound a sound."""
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv", "FusedConv"})
_POOLS = frozenset({"AveragePool", "MaxPool", "LpPool"})
_SPECTRA = frozenset({"STFT", "DFT", "MelWeightMatrix"})
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_LENGTH_READERS = _RECURRENT | {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Loop", "Range", "ReverseSequence"}
_MOST_LAYERS = 16
_CHANNELS = (1, 3, 4)
_WAVE_CHANNELS = (1, 2)
_LEAST_WAVE = 1000
_MOST_STEPS = 200


@dataclass(frozen=True)
class Roles:
    """Inputs by what they are for, and the free dims that follow from it."""

    images: frozenset[ir.Value] = frozenset()
    waves: frozenset[ir.Value] = frozenset()
    masks: frozenset[ir.Value] = frozenset()
    lengths: frozenset[ir.Value] = frozenset()
    sides: tuple[str, ...] = ()
    """Symbols of heights and widths."""
    durations: tuple[str, ...] = ()
    """Symbols of numbers of audio samples."""
    leading: frozenset[str] = frozenset()
    """Symbols that look like a batch."""


def find_roles(graph: ir.Graph, inputs: Sequence[ir.Value]) -> Roles:
    images, waves = set(), set()
    sides: dict[str, None] = {}
    durations: dict[str, None] = {}
    ops = {node.op_type for node in graph.all_nodes()}
    leading = _leading_symbols(inputs, bool(ops & _RECURRENT))
    for value in inputs:
        if value.dtype is None or value.shape is None or is_mask(value):
            continue
        readers = set(_readers(value)) | (ops & _SPECTRA)
        if axes := _image_axes(value, readers):
            images.add(value)
            sides |= {name: None for axis in axes for name in sorted(free_symbols(value.shape[axis]))}
        elif (axis := _wave_axis(value, readers)) is not None:
            waves.add(value)
            durations |= dict.fromkeys(sorted(free_symbols(value.shape[axis])))
    return Roles(
        frozenset(images),
        frozenset(waves),
        frozenset(value for value in inputs if is_mask(value)),
        frozenset(value for value in inputs if _is_length(value, inputs)),
        tuple(name for name in sides if name not in leading),
        tuple(name for name in durations if name not in leading),
        leading,
    )


def _leading_symbols(inputs: Sequence[ir.Value], has_states: bool) -> frozenset[str]:
    """Symbols that look like a batch: they come first in an input of several dims, or second in the state of a
    recurrent net. In a graph network (lists of edges between nodes) there is no batch.
    """
    shaped = [value for value in inputs if value.shape is not None and value.shape.rank() > 1]
    first = frozenset(name for value in shaped for name in free_symbols(value.shape[0]))  # type: ignore[index]
    listed = {
        name
        for value in shaped
        if value.dtype is not None and value.dtype.is_integer()
        for dim in value.shape[1:]  # type: ignore[index]
        for name in free_symbols(dim)
    }
    if first & listed:
        return frozenset()
    if has_states:
        first |= {name for value in shaped if _is_state(value) for name in free_symbols(value.shape[1])}  # type: ignore[index]
    return first


def _is_state(value: ir.Value) -> bool:
    """Layers x batch x features."""
    dims = dims_of(value)
    if dims is None or len(dims) != 3 or dims[0] is None or dims[2] is None:
        return False
    return dims[1] is None and dims[0] <= _MOST_LAYERS


def is_mask(value: ir.Value) -> bool:
    return "mask" in (value.name or "").lower()


def _readers(value: ir.Value) -> Iterator[str]:
    """What reads an input, directly or behind nodes that keep its kind: 'wave' or 'image' for a convolution or pool
    over one or over more axes, else the op.
    """
    pending, seen = [value], {value}
    steps = 0
    while pending and steps < _MOST_STEPS:
        for use in pending.pop().uses():
            steps += 1
            node = use.node
            if node.op_type in _CONVOLUTIONS:
                weight = dims_of(input_at(node, 3 if node.op_type == "QLinearConv" else 1))
                axes = len(weight) - 2 if weight is not None else len(node.attributes.get_ints("kernel_shape", ()))
                yield "wave" if axes == 1 else "image"
            elif node.op_type in _POOLS:
                yield "wave" if len(node.attributes.get_ints("kernel_shape", ())) == 1 else "image"
            else:
                yield node.op_type
                if node.op_type in _CARRIES and node.outputs and node.outputs[0] not in seen:
                    seen.add(node.outputs[0])
                    pending.append(node.outputs[0])


def _image_axes(value: ir.Value, readers: set[str]) -> tuple[int, int] | None:
    """The axes of height and width, when the input goes to a convolution over both."""
    dims = dims_of(value)
    if dims is None or "image" not in readers or len(dims) not in (3, 4, 5):
        return None
    batched = dims[1:] if len(dims) > 3 else dims
    if batched[0] in _CHANNELS:
        return len(dims) - 2, len(dims) - 1
    if batched[-1] in _CHANNELS:
        return len(dims) - 3, len(dims) - 2
    return None


def _wave_axis(value: ir.Value, readers: set[str]) -> int | None:
    """The axis of time, when the input is framed, convolved along it, or transformed."""
    dims = dims_of(value)
    kind = value.dtype
    if dims is None or not dims or len(dims) > 3 or kind is None or not kind.is_floating_point():
        return None
    if not readers & {"wave", "image", *_SPECTRA} and not {"Pad", "ScatterElements"} <= readers | {"ScatterElements"}:
        return None
    axis = len(dims) - 2 if len(dims) == 3 and dims[-1] in _WAVE_CHANNELS else len(dims) - 1
    if len(dims) == 3 and axis == 2 and dims[1] not in _WAVE_CHANNELS:
        return None
    length = dims[axis]
    return axis if length is None or length >= _LEAST_WAVE else None


def _is_length(value: ir.Value, inputs: Sequence[ir.Value]) -> bool:
    """Whether an input says, row by row, how much of another input counts."""
    if value.dtype is None or not value.dtype.is_integer() or value.shape is None or value.shape.rank() > 1:
        return False
    if measured_axis(value, inputs) is None:
        return False
    return "len" in (value.name or "").lower() or bool(set(_readers(value)) & _LENGTH_READERS)


def measured_axis(value: ir.Value, inputs: Sequence[ir.Value]) -> tuple[ir.Value, int] | None:
    """The input whose rows a vector of lengths measures, and the axis."""
    for other in inputs:
        if other is value or other.shape is None or other.shape.rank() < 2:
            continue
        if value.shape is not None and value.shape.rank() == 1 and value.shape[0] != other.shape[0]:
            continue
        for axis in range(1, other.shape.rank()):
            if free_symbols(other.shape[axis]):
                return other, axis
    return None
