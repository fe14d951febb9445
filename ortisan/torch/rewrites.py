"""Rewrites of an exported graph, for what torch.onnx has a function for in another form only."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten


def rewrite(graph: fx.Graph) -> None:
    """Applies all of them, in place."""
    for target, change in _REWRITES.items():
        for node in graph.find_nodes(op="call_function", target=target):
            with graph.inserting_before(node):
                change(graph, node)


def _cast_subtrahend(graph: fx.Graph, node: fx.Node) -> None:
    """number - x, where x is of whole numbers and the result is not: torch.onnx can't promote a number on the left."""
    x: Any = node.args[0]
    dtype = node.meta["val"].dtype
    if x.meta["val"].dtype != dtype:
        cast = graph.call_function(_aten._to_copy.default, (x,), {"dtype": dtype})
        cast.meta["val"] = x.meta["val"].to(dtype)
        node.replace_input_with(x, cast)


def _spell_stride(graph: fx.Graph, node: fx.Node) -> None:
    """A stride of a contiguous tensor is the product of the sizes behind its axis."""
    x: Any = node.args[0]
    value = x.meta["val"]
    if not value.is_contiguous():
        return
    sizes: list[Any] = []
    for axis in range(node.args[1] % value.ndim + 1, value.ndim):
        size = value.shape[axis]
        if isinstance(size, torch.SymInt):
            size = graph.call_function(_aten.sym_size.int, (x, axis))
            size.meta["val"] = value.shape[axis]
        sizes.append(size)

    def times(a: Any, b: Any) -> Any:
        if not isinstance(a, fx.Node) and not isinstance(b, fx.Node):
            return a * b
        made = graph.call_function(operator.mul, (a, b))
        made.meta["val"] = _number(a) * _number(b)
        return made

    product = functools.reduce(times, sizes, 1) if len(sizes) != 1 else sizes[0]
    for user in list(node.users):
        user.args = fx.node.map_arg(user.args, lambda each: product if each is node else each)
        user.kwargs = fx.node.map_arg(user.kwargs, lambda each: product if each is node else each)
    graph.erase_node(node)


def _number(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, fx.Node) else value


_REWRITES = {_aten.rsub.Scalar: _cast_subtrahend, _aten.sym_stride.int: _spell_stride}
