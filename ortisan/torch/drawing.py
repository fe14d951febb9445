"""Random numbers inside a graph: torch draws them before it runs, in the graph's order, and they become its inputs.

So dropout gives the numbers that eager gives after the same seed, and the rest of the graph is compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from ortisan.torch.reasons import NoFormError

_aten = torch.ops.aten

_BY_SHAPE = {
    packet
    for name in [
        "bernoulli",
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "uniform",
        "normal_functional",
        "exponential",
        "geometric",
        "cauchy",
        "log_normal",
        "random",
    ]
    if (packet := getattr(_aten, name, None)) is not None
}
"""Ops whose tensor arguments, if any, matter by their shape, strides and type only."""
_BY_VALUE = {_aten.bernoulli.default}


@dataclass(frozen=True)
class _Given:
    """The graph's argument at this position."""

    index: int


@dataclass(frozen=True)
class _Like:
    """A tensor without content."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Draw:
    """One random op, with its arguments as far as they are known."""

    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    homes: Mapping[Any, tuple[int, int | None]]
    """Where the value of each symbolic size is: an argument of the graph, and its axis if that is a tensor."""

    def __call__(self, given: Sequence[Any]) -> torch.Tensor:
        values = {
            symbol: given[index] if axis is None else given[index].shape[axis]
            for symbol, (index, axis) in self.homes.items()
        }
        args = [_filled(arg, given, values) for arg in self.args]
        with torch.no_grad():
            drawn: torch.Tensor = self.op(*args, **{k: _filled(v, given, values) for k, v in self.kwargs.items()})
        return drawn


def take_draws(graph: fx.Graph, placeholders: list[fx.Node]) -> list[Draw]:
    """Replaces the random ops of a graph by placeholders, which are appended to `placeholders`, and returns the ops."""
    count = len(placeholders)
    homes = _homes(placeholders)
    draws: list[Draw] = []
    for node in list(graph.nodes):
        if node.op != "call_function" or not is_random(node):
            continue
        what, args = _drawable(node)
        taken = tuple(_template(arg, node, placeholders[:count], by_value=what in _BY_VALUE) for arg in args)
        kwargs = {name: _template(arg, node, placeholders[:count], by_value=False) for name, arg in node.kwargs.items()}
        draws.append(Draw(what, taken, kwargs if what is node.target else {}, homes))
        placeholders.append(_replace(graph, node, placeholders[-1] if placeholders else None, len(draws) - 1))
    return draws


def drawn_ops() -> set[Any]:
    """The ops that may be drawn before a graph runs."""
    return {*_BY_SHAPE, *_BY_VALUE, _aten.native_dropout}


def is_random(node: fx.Node) -> bool:
    """Whether an op really draws random numbers: those tagged as random may have a dropout of 0, or be in eval mode."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    arguments = op._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    given |= dict(zip([argument.name for argument in arguments], node.args, strict=False)) | dict(node.kwargs)
    if any(given.get(name) is False for name in ("train", "training")):
        return False
    return not any(given.get(name) == 0.0 for name in ("dropout_p", "dropout"))


def _drawable(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """What to draw for a node: an op that gives random numbers and nothing else, and its arguments."""
    op: Any = node.target
    if op == _aten.native_dropout.default:
        return _mask, (node.args[0], 1.0 - float(node.args[1]))  # type: ignore[arg-type]
    if op.overloadpacket not in _BY_SHAPE and op not in _BY_VALUE:
        raise NoFormError(f"{op} draws random numbers, which would differ from eager's", nodes=[node.name])
    return op, tuple(node.args)


def _mask(like: torch.Tensor, kept: float) -> torch.Tensor:
    return torch.empty_like(like, dtype=torch.bool).bernoulli_(kept)


def _template(value: Any, node: fx.Node, placeholders: Sequence[fx.Node], *, by_value: bool) -> Any:
    if isinstance(value, (list, tuple)):
        return [_template(each, node, placeholders, by_value=by_value) for each in value]
    if not isinstance(value, fx.Node):
        return value
    fake = value.meta.get("val")
    if isinstance(fake, torch.SymInt):
        return fake.node.expr
    if not isinstance(fake, torch.Tensor):
        return fake
    if not by_value:
        return _Like(tuple(map(_expression, fake.shape)), tuple(map(_expression, fake.stride())), fake.dtype)
    if value not in placeholders:
        raise NoFormError(
            f"{node.target} draws random numbers from values that are computed in the same graph", nodes=[node.name]
        )
    return _Given(placeholders.index(value))


def _expression(size: int | torch.SymInt) -> Any:
    return size if isinstance(size, int) else size.node.expr


def _filled(value: Any, given: Sequence[Any], values: Mapping[Any, int]) -> Any:
    if isinstance(value, list):
        return [_filled(each, given, values) for each in value]
    if isinstance(value, _Given):
        return given[value.index]
    if isinstance(value, _Like):
        shape, strides = ([_number(size, values) for size in sizes] for sizes in (value.shape, value.strides))
        return torch.empty_strided(shape, strides, dtype=value.dtype)
    return _number(value, values) if isinstance(value, sympy.Basic) else value


def _number(size: Any, values: Mapping[Any, int]) -> int:
    return size if isinstance(size, int) else int(size.xreplace(values))


def _homes(placeholders: Sequence[fx.Node]) -> dict[Any, tuple[int, int | None]]:
    homes: dict[Any, tuple[int, int | None]] = {}
    for index, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            homes.setdefault(value.node.expr, (index, None))
        elif isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    homes.setdefault(size.node.expr, (index, axis))
    return homes


def _replace(graph: fx.Graph, node: fx.Node, after: fx.Node | None, number: int) -> fx.Node:
    """Puts a placeholder in the place of a random node, and the arithmetic of dropout around it."""
    first = next(iter(graph.nodes))
    with graph.inserting_after(after) if after is not None else graph.inserting_before(first):
        place = graph.placeholder(f"draw_{number}")
    if node.target != _aten.native_dropout.default:
        place.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(place)
        graph.erase_node(node)
        return place
    place.meta["val"] = node.meta["val"][1]
    kept = 1.0 - float(node.args[1])  # type: ignore[arg-type]
    for user in list(node.users):
        assert user.target is operator.getitem
        if user.args[1] == 1:
            user.replace_all_uses_with(place)
        else:
            with graph.inserting_before(node):
                masked = graph.call_function(_aten.mul.Tensor, (node.args[0], place))
                scaled = graph.call_function(_aten.mul.Tensor, (masked, 1.0 / kept if kept else 0.0))
            masked.meta = scaled.meta = dict(user.meta)
            user.replace_all_uses_with(scaled)
        graph.erase_node(user)
    graph.erase_node(node)
    return place
