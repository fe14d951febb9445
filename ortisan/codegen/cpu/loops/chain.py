"""Elementwise chains: the steps that a loop body or a matrix product's epilogue is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ortisan.codegen.cpu.kernel import Argument, EmitContext, Param, ScalarCall
from ortisan.codegen.literals import literal
from ortisan.registry.builder import is_constant
from ortisan.registry.graph import Node, Value


@dataclass(frozen=True)
class Step:
    """`type result = fn::function(operands)`, or a cast to the storage type `to`.

    With `fast_path`, fn::common has a faster version, for arguments that fn::common::leaves_function does not reject.
    """

    type: str
    result: str
    function: str
    operands: tuple[str, ...]
    to: str = ""
    fast_path: bool = False
    expensive: bool = False


@dataclass(frozen=True)
class Load:
    """`type result` read from the parameter `pointer`; how the index is found is the template's business."""

    result: str
    pointer: str
    kind: str
    strides: tuple[str, ...] = ()
    offset: str = "0"


@dataclass(frozen=True)
class Store:
    pointer: str
    type: str
    value: str


@dataclass(frozen=True)
class Chain:
    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    stores: tuple[Store, ...]


def build_chain(
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    given: dict[Value, str],
    context: EmitContext,
    access: Callable[[Value], Load],
) -> tuple[Chain, list[Param], list[Argument]]:
    """The chain of these nodes. `given` names values that exist already; `access` says how the others are read."""
    names = dict(given)
    loads: dict[tuple[Value, Load], Load] = {}
    params: list[Param] = []
    arguments: list[Argument] = []
    steps: list[Step] = []

    def operand(value: Value) -> str:
        root = context.views.root(value)
        if root in names and not context.views.is_strided(value):
            return names[root]
        if is_constant(root) and root.data is not None and root.data.size == 1:
            names[root] = literal(root.data.reshape(-1)[0], root.dtype)
            return names[root]
        # One memory may be read in several ways: as a row and as a column, or in parts.
        way = access(value)
        if (root, way) not in loads:
            index = len(loads)
            params.append(Param(f"in{index}", root.dtype.cpp))
            arguments.append(context.read(value))
            loads[root, way] = replace(way, result=f"x{index}", pointer=f"in{index}")
        return loads[root, way].result

    def stored(value: Value) -> str:
        """An operand as it would be read from memory, where it is computed in a finer type than it is stored in."""
        root, name = context.views.root(value), operand(value)
        if root.dtype.compute_cpp == root.dtype.cpp or root not in names or is_constant(root):
            return name
        steps.append(Step(root.dtype.compute_cpp, f"v{len(steps)}", "cast", (name,), to=root.dtype.cpp))
        return steps[-1].result

    for node in nodes:
        call = context.scalar_call(node)
        operands = tuple(map(stored if call.discontinuous else operand, node.inputs))
        steps.append(_step(call, node.output.dtype.compute_cpp, f"v{len(steps)}", operands))
        names[node.output] = steps[-1].result
    stores = []
    for index, value in enumerate(outputs):
        params.append(Param(f"out{index}", value.dtype.cpp, written=True))
        arguments.append(context.write(value))
        stores.append(Store(f"out{index}", value.dtype.cpp, names[value]))
    return Chain(tuple(loads.values()), tuple(steps), tuple(stores)), params, arguments


def _step(call: ScalarCall, type_: str, result: str, operands: tuple[str, ...]) -> Step:
    return Step(type_, result, call.function, (*operands, *call.params), call.to, call.fast_path, call.expensive)
