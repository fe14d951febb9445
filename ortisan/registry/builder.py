"""Builds op graphs: adds ops with inferred types, folds what is known, follows shape arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ortisan.registry.dims import Dim, Facts, Guard, is_static
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Graph, Node, Op, TensorType, Value
from ortisan.registry.ops import Cast, Elementwise, Permute, Reshape, Size
from ortisan.registry.refusal import Refused

_FOLD_ELEMENTS = 4096
_SYMBOLIC_ELEMENTS = 64


class Builder:
    """Grows a graph node by node. `origin` names the ONNX node on whose behalf ops are added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.origin = ""
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.guards: dict[Guard, None] = {}
        self._producers: dict[Value, Node] = {}
        self._numbers: dict[tuple[DType, Any], Value] = {}
        self._made: dict[tuple[Any, ...], tuple[Value, ...]] = {}

    def input(self, name: str, type_: TensorType) -> Value:
        value = Value(name, type_)
        self.inputs.append(value)
        return value

    def constant(self, data: Array, name: str = "") -> Value:
        return Value(name or "constant", TensorType(DType.from_numpy(data.dtype), data.shape), data)

    def number(self, number: float, dtype: DType) -> Value:
        """A scalar constant, one object per number."""
        key = (dtype, repr(number))
        if key not in self._numbers:
            self._numbers[key] = self.constant(np.array(number, dtype.numpy), f"{number:g}")
        return self._numbers[key]

    def producer(self, value: Value) -> Node | None:
        return self._producers.get(value)

    def requires_at_least(self, a: Dim, b: Dim) -> bool:
        """Whether an existing node already fails unless a >= b."""
        return any(guard.kind == "at_least" and guard.a == a and guard.b == b for guard in self.guards)

    def require_at_least(self, a: Dim, b: Dim, what: str) -> None:
        """Refused if a < b is known, else checked at run time."""
        facts = Facts(self.origin)
        facts.at_least(a, b, what)
        self.guards.update(dict.fromkeys(facts.guards))

    def add(self, op: Op, *inputs: Value) -> Value:
        return self.add_many(op, *inputs)[0]

    def add_many(self, op: Op, *inputs: Value) -> tuple[Value, ...]:
        """Adds an op and returns its outputs; an equal existing node is reused, so that layers share their masks."""
        # The repr is part of the key because 0.0 == -0.0, and ops tell them apart.
        key = (op, repr(op), inputs)
        if key not in self._made:
            self._made[key] = self._add(op, inputs)
        return self._made[key]

    def _add(self, op: Op, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        facts = Facts(self.origin)
        types = op.infer([value.type for value in inputs], facts)
        for type_ in types:
            type_.check()
        folded = self._fold(op, inputs, types)
        if folded is not None:
            return folded
        known = self._follow(op, inputs, types)
        if known is not None and all(is_static(dim) for dim in known.flat):
            return (self.constant(np.array(known.tolist(), types[0].dtype.numpy).reshape(known.shape)),)
        outputs = tuple(
            Value(f"v{len(self.nodes)}" + (f"_{i}" if i else ""), type_, known) for i, type_ in enumerate(types)
        )
        node = Node(op, inputs, outputs, self.origin)
        self.nodes.append(node)
        self.guards.update(dict.fromkeys(facts.guards))
        self._producers.update(dict.fromkeys(outputs, node))
        return outputs

    def _fold(self, op: Op, inputs: Sequence[Value], types: Sequence[TensorType]) -> tuple[Value, ...] | None:
        if not inputs or any(not is_constant(value) for value in inputs):
            return None
        static = all(is_static(dim) for type_ in types for dim in type_.shape)
        is_view = isinstance(op, (Reshape, Permute))
        if not static or not (is_view or sum(t.elements for t in types) <= _FOLD_ELEMENTS):
            return None
        arrays = op.reference([data for value in inputs if (data := value.data) is not None], DimValues({}))
        return tuple(self.constant(np.asarray(array), inputs[0].name) for array in arrays)

    def _follow(self, op: Op, inputs: Sequence[Value], types: Sequence[TensorType]) -> Array | None:
        """The output's elements as dims, when the inputs' elements are."""
        data = [value.data for value in inputs]
        if len(types) != 1 or any(d is None or d.size > _SYMBOLIC_ELEMENTS for d in data):
            return None
        if inputs and not any(value.dtype.is_integer or value.dtype is DType.BOOL for value in inputs):
            return None
        result = op.symbolic([_as_dims(d) for d in data if d is not None])
        return None if result is None or result.size > _SYMBOLIC_ELEMENTS else result

    # Shorthands for the ops that most lowering entries use.

    def elementwise(self, func: str, *inputs: Value, params: tuple[float, ...] = ()) -> Value:
        return self.add(Elementwise(func, params), *inputs)

    def cast(self, x: Value, to: DType) -> Value:
        return x if x.dtype is to else self.add(Cast(to), x)

    def reshape(self, x: Value, shape: Iterable[Dim]) -> Value:
        shape = tuple(shape)
        return x if shape == x.shape else self.add(Reshape(shape), x)

    def permute(self, x: Value, order: Iterable[int]) -> Value:
        order = tuple(order)
        return x if order == tuple(range(len(order))) else self.add(Permute(order), x)

    def from_dims(self, dims: Array, dtype: DType) -> Value:
        """Dims as a tensor of this dtype and the array's shape."""
        flat = self.add(Size(tuple(dims.flat)))
        return self.cast(self.reshape(flat, dims.shape), dtype)

    def finish(
        self, outputs: Sequence[Value], names: Sequence[str] = (), bounds: Mapping[str, tuple[int, int]] | None = None
    ) -> Graph:
        """The graph of what the outputs need; inputs stay as declared."""
        live: set[Value] = set(outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(value in live for value in node.outputs):
                kept.append(node)
                live.update(node.inputs)
        kept.reverse()
        constants = dict.fromkeys(
            value
            for value in [*(v for node in kept for v in node.inputs), *outputs]
            if is_constant(value) and value not in self._producers
        )
        origins = {node.origin for node in kept}
        guards = tuple(guard for guard in self.guards if guard.where in origins)
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(outputs),
            tuple(constants),
            tuple(kept),
            guards,
            dict(bounds or {}),
            tuple(names) or tuple(value.name for value in outputs),
        )


def is_constant(value: Value) -> bool:
    """True when every element is a number known at compile time."""
    return value.data is not None and value.data.dtype != object


def known_dims(value: Value, what: str) -> list[Dim]:
    """The elements of a small integer tensor as dims, or `Refused`."""
    if value.data is None or not value.dtype.is_integer:
        raise Refused(f"{what} is computed from data, so the shape is not known before it runs")
    return list(_as_dims(value.data).flat)


def known_ints(value: Value, what: str) -> list[int]:
    dims = known_dims(value, what)
    if not all(is_static(dim) for dim in dims):
        raise Refused(f"{what} depends on a dynamic dim; it must be constant")
    return dims


def _as_dims(data: Array) -> Array:
    """An object array of Python ints (or bools) and expressions."""
    if data.dtype == object:
        return data
    result = np.empty(data.shape, dtype=object)
    if data.size:
        result[...] = np.array(data.tolist(), dtype=object).reshape(data.shape)
    return result
