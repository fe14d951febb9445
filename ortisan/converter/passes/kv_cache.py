"""Decoders whose cache stays where it is: past and present are one buffer, and a step writes its new positions into it.

    present = Concat(past, new)                    past [.., P, ..], new [.., S, ..]
becomes
    present = TensorScatter(past, new, P)          past and present [.., C, ..]: the capacity, a symbol of its own
    Slice(present, 0 : T)                          T = P + S, for whoever read the Concat

P is no dim of the cache any more: it is T - S, where T is the length of the attention mask and S that of the new
positions, both dims of other inputs. The result is plain ONNX; memory is shared when the caller binds it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import tape
from onnxscript.version_converter import ConvertVersionPass

from ortisan.converter.passes import cleanup
from ortisan.converter.passes.fold import fold_constants
from ortisan.converter.passes.infer import infer_shapes
from ortisan.converter.passes.quiet import quiet_libraries
from ortisan.converter.read.symbols import declare_ascending, name_symbols
from ortisan.errors import UnsupportedError

Cache: TypeAlias = Literal["as-is", "in-place"]

_OPSET = 24
"""The first with TensorScatter."""
_ROUNDS, _SHAPE_BYTES = 2, 1024
_CAPACITY = "cache_capacity"
_TOTAL = "total_length"
_MASK = "attention_mask"

Dim: TypeAlias = "int | ir.SymbolicDim"
Place: TypeAlias = "tuple[ir.Value, int]"
"""A graph input and an axis of it, from which a length can be read."""


@dataclass(frozen=True, eq=False)
class _Cache:
    past: ir.Value
    concat: ir.Node
    axis: int
    total: Place
    new: Place | int


def put_cache_in_place(model: ir.Model) -> None:
    """Rewrites all caches of `model`. Raises `UnsupportedError` when there is none, or one that can't be rewritten."""
    with quiet_libraries():
        cleanup.inline_functions(model)
        cleanup.remove_identities(model)
        if not _concats(model.graph):
            raise UnsupportedError(
                "the model has no cache to keep in place: no output is the Concat of an input and new values"
            )
        _raise_opset(model)
        name_symbols(model)
        graph = model.graph
        shapes, concats = _infer(model), _concats(graph)
        pasts = {value for node in concats for value in node.inputs if value in graph.inputs}
        others = [value for value in graph.inputs if value not in pasts and value.shape is not None]
        caches = [_read(node, graph, others, shapes) for node in concats]
        _check_others(caches, others)
        _declare(model, caches)
        _rewrite(graph, caches)
        infer_shapes(model)


def _concats(graph: ir.Graph) -> list[ir.Node]:
    """The Concats that make a graph output from a graph input and new values."""
    made = (value.producer() for value in graph.outputs)
    concats = (node for node in made if node is not None and node.domain == "" and node.op_type == "Concat")
    return [n for n in concats if len(n.inputs) > 1 and any(value in graph.inputs for value in n.inputs)]


def _raise_opset(model: ir.Model) -> None:
    version = model.opset_imports.get("", 0)
    if version >= _OPSET:
        return
    ConvertVersionPass(_OPSET, fallback=True)(model)
    if model.opset_imports.get("", 0) < _OPSET:
        raise UnsupportedError(
            f"a cache in place needs opset {_OPSET}, and the model can't be moved there from {version}; export it with "
            "opset 18 or newer"
        )


def _infer(model: ir.Model) -> dict[str | None, ir.Shape]:
    """Infers the shapes of values, by name, in a copy whose shape arithmetic may be folded."""
    copy = model.clone()
    for _ in range(_ROUNDS):
        cleanup.lift_constants(copy)
        infer_shapes(copy)
        fold_constants(copy, [], largest=_SHAPE_BYTES)
    infer_shapes(copy)
    made = [value for node in copy.graph for value in node.outputs]
    return {value.name: value.shape for value in made if value.shape is not None}


def _read(
    concat: ir.Node, graph: ir.Graph, others: Sequence[ir.Value], shapes: Mapping[str | None, ir.Shape]
) -> _Cache:
    """Describes a cache; `others` are the inputs that are not caches."""
    past = next(value for value in concat.inputs if value is not None and value in graph.inputs)

    def refused(why: str) -> UnsupportedError:
        return UnsupportedError(f"the cache '{past.name}' can't be kept in place: {why}")

    new = concat.inputs[1]
    if len(concat.inputs) != 2 or concat.inputs[0] is not past or new is past:
        raise refused("it is not the first of the two inputs of its Concat, with the new values behind it")
    added = shapes.get(new.name) if new is not None else None
    if past.shape is None or added is None:
        raise refused("its shape, or that of the new values, is not known")
    axis = concat.attributes.get_int("axis", 0) % past.shape.rank()
    length, step = past.shape[axis], added[axis]
    if axis == 0:
        raise refused("it grows along its first axis, which has to be the batch")
    if isinstance(length, int):
        raise refused(f"its length is fixed at {length}; export the model with a dynamic one")
    readers = [use.node for use in past.uses() if use.node is not concat and use.node.op_type != "Shape"]
    if readers or past.is_graph_output():
        why = f"{readers[0].op_type} '{readers[0].name}' reads it too" if readers else "it is an output too"
        raise refused(f"{why}, besides its Concat")
    place = step if isinstance(step, int) else next((at for at, dim in _dims(others) if dim == step), None)
    if place is None:
        raise refused("no other input has the number of new positions as a dim")
    grown = concat.outputs[0].shape
    total = _find_total(others, length, step, grown[axis] if grown is not None else None)
    if total is None:
        raise refused(
            "no other input has the length of past and new positions together, so nothing would tell how far the "
            f"buffer is filled; export the model with an '{_MASK}' input of that length"
        )
    return _Cache(past, concat, axis, total, place)


def _check_others(caches: Iterable[_Cache], others: Iterable[ir.Value]) -> None:
    """Refuses caches that are not rewritten: they would keep growing next to those that are."""
    lengths = {_dim_at((cache.past, cache.axis)) for cache in caches}
    for (value, _), dim in _dims(others):
        if dim in lengths:
            raise UnsupportedError(
                f"the cache can't be kept in place: input '{value.name}' has the past's length '{dim}' too, and no "
                "output is the Concat of it and new values"
            )


def _find_total(others: Iterable[ir.Value], past: ir.SymbolicDim, new: Dim, declared: Dim | None) -> Place | None:
    """The dim that is past + new, or one named like the grown length, or the mask's last if it has its own symbol."""
    both = (past + new).value
    dims = [(at, dim) for at, dim in _dims(others) if isinstance(dim, ir.SymbolicDim) and dim not in (past, new)]
    sums = [at for at, dim in dims if (dim + 0).value == both]
    named = [at for at, dim in dims if dim == declared]
    masks = [(value, axis) for (value, axis), _ in dims if value.name == _MASK and axis == len(value.shape or ()) - 1]
    return next(iter([*sums, *named, *masks]), None)


def _dims(values: Iterable[ir.Value]) -> Iterator[tuple[Place, Dim]]:
    return (((value, axis), dim) for value in values for axis, dim in enumerate(value.shape or ()))


def _declare(model: ir.Model, caches: Sequence[_Cache]) -> None:
    """Gives caches their capacity as a dim, and names the lengths that used to be sums with the past's."""
    inputs = model.graph.inputs
    taken = {name for _, dim in _dims(inputs) for name in _symbols(dim)}
    capacity = ir.SymbolicDim(_fresh(_CAPACITY, taken))
    for cache in caches:
        _set_dim(cache.past, cache.axis, capacity)
    plain = {dim.value for _, dim in _dims(inputs) if isinstance(dim, ir.SymbolicDim) and len(_symbols(dim)) == 1}
    for dim in {_dim_at(cache.total) for cache in caches}:
        if not _symbols(dim) <= plain:
            total = ir.SymbolicDim(_fresh(_TOTAL, taken))
            for (value, axis), other in list(_dims(inputs)):
                if other == dim:
                    _set_dim(value, axis, total)
    known = {name for _, dim in _dims(inputs) for name in _symbols(dim)}
    for node in model.graph.all_nodes():
        for (value, axis), dim in list(_dims(node.outputs)):
            if not _symbols(dim) <= known:
                _set_dim(value, axis, ir.SymbolicDim(None))
    new = caches[0].new
    declare_ascending(model, [new if isinstance(new, int) else _dim_at(new), _dim_at(caches[0].total), capacity])


def _rewrite(graph: ir.Graph, caches: Iterable[_Cache]) -> None:
    write = _Lengths(graph)
    for cache in caches:
        for use in list(cache.past.uses()):
            if use.node.op_type == "Shape":
                write.past_shape(use.node, cache)
    for cache in caches:
        write.buffer(cache)
    graph.extend(write.nodes)
    graph.sort()


class _Lengths(tape.Tape):
    """Writes the nodes, sharing what several of them need."""

    def __init__(self, graph: ir.Graph) -> None:
        super().__init__()
        self.graph = graph
        self._made: dict[object, ir.Value] = {}

    def buffer(self, cache: _Cache) -> None:
        """Writes the new values into the buffer; readers of the Concat read its filled part."""
        old, past = cache.concat.outputs[0], cache.past
        starts = self.once("Expand", self.past(cache), self.dim(past, 0, 1))
        inputs = [past, cache.concat.inputs[1], starts]
        # Errors at run time name the node.
        name = f"cache/{past.name}"
        present = self.op("TensorScatter", inputs, {"axis": cache.axis, "mode": "linear"}, name=name)
        present.type, present.shape = past.type, past.shape
        if old.uses():
            ends = self.dim(*cache.total, cache.total[1] + 1)
            filled = self.op("Slice", [present, self.number(0), ends, self.number(cache.axis)])
            for use in list(old.uses()):
                use.node.replace_input_with(use.idx, filled)
        for index, value in enumerate(self.graph.outputs):
            if value is old:
                self.graph.outputs[index] = present
        self.graph.remove(cache.concat, safe=True)
        present.name, old.name = old.name, None

    def past_shape(self, node: ir.Node, cache: _Cache) -> None:
        """Shape(past) with the filled length in the place of the capacity."""
        rank = len(cache.past.shape or ())
        start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", rank)
        start, end = (min(max(at + rank if at < 0 else at, 0), rank) for at in (start, end))
        if not start <= cache.axis < end:
            return
        parts = [self.past(cache)]
        if start < cache.axis:
            parts.insert(0, self.dim(cache.past, start, cache.axis))
        if cache.axis + 1 < end:
            parts.append(self.dim(cache.past, cache.axis + 1, end))
        whole = parts[0] if len(parts) == 1 else self.op("Concat", parts, {"axis": 0})
        ir.convenience.replace_all_uses_with(node.outputs[0], whole, replace_graph_outputs=True)
        whole.name = node.outputs[0].name if len(parts) > 1 else whole.name
        self.graph.remove(node, safe=True)

    def past(self, cache: _Cache) -> ir.Value:
        """[P]"""
        value, axis = cache.total
        total = self.dim(value, axis, axis + 1)
        if isinstance(cache.new, int):
            return self.once("Sub", total, self.number(cache.new))
        return self.once("Sub", total, self.dim(*cache.new, cache.new[1] + 1))

    def dim(self, value: ir.Value, start: int, end: int) -> ir.Value:
        return self.once("Shape", value, start=start, end=end)

    def once(self, op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        key = (op_type, inputs, tuple(attributes.items()))
        if key not in self._made:
            self._made[key] = self.op(op_type, inputs, attributes)
        return self._made[key]

    def number(self, number: int) -> ir.Value:
        """[number]"""
        if number not in self._made:
            name = _fresh(f"cache_{number}", self.graph.initializers)
            self._made[number] = value = self.initializer(ir.tensor(np.array([number], np.int64), name=name))
            self.graph.register_initializer(value)
        return self._made[number]


def _set_dim(value: ir.Value, axis: int, dim: Dim) -> None:
    dims = list(value.shape or ())
    dims[axis] = dim
    value.shape = ir.Shape(dims)


def _dim_at(place: Place) -> Dim:
    value, axis = place
    return (value.shape or ())[axis]


def _symbols(dim: Dim) -> frozenset[str]:
    return dim.free_symbols() if isinstance(dim, ir.SymbolicDim) and dim.value is not None else frozenset()


def _fresh(name: str, taken: Iterable[str] | Mapping[str, object]) -> str:
    known, suffix, stem = set(taken), 0, name
    while name in known:
        suffix += 1
        name = f"{stem}_{suffix}"
    return name
