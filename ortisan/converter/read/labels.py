"""Dims of inputs whose name is a mere label: equal names, but sizes that have nothing to do with each other.

ONNX lets inputs share the name of a dim, and ONNX Runtime only warns when their sizes differ. Some exporters give one
name to all dims at a place: `boxes: [batch, height, width]` beside `features: [batch, height, width]`, 8 and 256 wide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence

import onnx_ir as ir

from ortisan.converter.read.symbols import FREE, Bound, Bounds, ascending, fresh_symbol, replace_symbols
from ortisan.errors import OptionError


def mere_labels(inputs: Iterable[ir.Value], shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """The names of dims that have several sizes in inputs of these shapes."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for value in inputs:
        given = shapes.get(value.name or "")
        if value.shape is not None and given is not None and len(given) == len(value.shape):
            for dim, size in zip(value.shape, given, strict=True):
                if isinstance(dim, ir.SymbolicDim) and dim.value:
                    sizes[dim.value].add(size)
    return {name for name, found in sizes.items() if len(found) > 1}


def free_dims(model: ir.Model, dims: Bounds, originals: MutableMapping[str, str]) -> dict[str, Bound]:
    """Gives each place of a dim that `dims` says is "free" a name of its own; what was derived from it is unknown.

    `originals`, clean name -> name in the model, learns the new names. Returns the rest of `dims`.
    """
    names = {name for name, original in originals.items() if FREE in (dims.get(name), dims.get(original))}
    places = [
        (value, axis)
        for value in model.graph.inputs
        for axis, dim in enumerate(value.shape or ())
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None and dim.free_symbols() & names
    ]
    if not places:
        return dict(dims)
    if tied := sorted(names & {*ascending(model)}):
        raise OptionError(
            f"dims: '{originals[tied[0]]}' can't be free, because the length of a cache in place is tied to it"
        )
    for value, axis in places:
        name = fresh_symbol(f"{value.name}_dim{axis}", originals)
        originals[name] = name
        shape = list(value.shape or ())
        shape[axis] = ir.SymbolicDim(name)
        value.shape = ir.Shape(shape)
    replace_symbols(model, lambda dim: ir.SymbolicDim(None) if dim.value and dim.free_symbols() & names else dim)
    freed = names | {originals[name] for name in names}
    return {name: bound for name, bound in dims.items() if name not in freed}
