"""Turns submodules of an exported model into ONNX functions."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch

from ortisan.errors import OptionError, UnsupportedError

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata that torch.onnx sets on a node: the enclosing modules, and the name of its FX node."""

# The module that the wrapper exports, and what dynamo calls the one that is compiled.
_ROOT = re.compile(r"^(inner|L\['\w*'\])(\.|$)")


@dataclass(frozen=True)
class Frame:
    """A call of a module. `key` tells calls of one module apart."""

    key: str
    path: str
    kind: str
    """The module's class: "torch.nn.modules.linear.Linear"."""
    full: str
    """The module's path, as in the names of weights."""

    def is_meant(self, wanted: str | type) -> bool:
        """By a class, by the name of one, or by a pattern of paths."""
        if isinstance(wanted, type):
            return self.kind == f"{wanted.__module__}.{wanted.__qualname__}"
        return wanted in (self.kind, self.kind.rpartition(".")[2]) or fnmatch.fnmatchcase(self.path, wanted)


Stack = tuple[Frame, ...]


@dataclass(eq=False)
class _Call:
    frame: Frame
    around: Stack
    nodes: list[ir.Node] = field(default_factory=list)


def keep_functions(
    model: ir.Model, program: torch.export.ExportedProgram, wanted: Sequence[str | type]
) -> set[str | type]:
    """Makes each call of a wanted submodule a call of an ONNX function, in place; gives what was found of `wanted`.

    A function has the name of the module's class, in the domain of the class's Python module. Calls with equal bodies
    share one; others of the class are overloads. Weights are inputs of a function, because ONNX has no other way.
    """
    stacks = _stacks_of(model, program)
    _give_constants_to_users(model.graph, stacks)
    calls: dict[tuple[str, ...], _Call] = {}
    found: set[str | type] = set()
    for node, stack in stacks.items():
        for depth, frame in enumerate(stack):
            meant = [each for each in wanted if frame.path and frame.is_meant(each)]
            found.update(meant)
            if meant:
                key = tuple(each.key for each in stack[: depth + 1])
                calls.setdefault(key, _Call(frame, stack[:depth])).nodes.append(node)
    bodies: dict[tuple[str, bytes], ir.Function] = {}
    for key in sorted(calls, key=len, reverse=True):
        call = calls.pop(key)
        made = _replace(model, call, bodies)
        if made is not None:
            replaced = set(call.nodes)
            for other, outer in calls.items():
                if key[: len(other)] == other:
                    at = next(i for i, node in enumerate(outer.nodes) if node in replaced)
                    outer.nodes = [n for n in outer.nodes if n not in replaced]
                    outer.nodes.insert(at, made)
    return found


def check_found(found: set[str | type], wanted: Sequence[str | type]) -> None:
    for each in wanted:
        if each not in found:
            name = each.__name__ if isinstance(each, type) else each
            raise OptionError(f"functions: the module has no submodule of the class or path '{name}' that computes")


def _stacks_of(model: ir.Model, program: torch.export.ExportedProgram) -> dict[ir.Node, Stack]:
    """The modules around each node, outermost first."""
    frames: dict[str, Stack] = {}
    for fx_node in program.graph.nodes:
        entries: Mapping[str, tuple[str, Any]] = fx_node.meta.get("nn_module_stack") or {}
        frames[fx_node.name] = tuple(_frame(key, *entry) for key, entry in entries.items())
    return {node: frames.get(_fx_name(node), ()) for node in model.graph}


def _frame(key: str, path: str, kind: Any) -> Frame:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return Frame(key, _ROOT.sub("", path), name, path)


def _fx_name(node: ir.Node) -> str:
    scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
    return str(scopes[-1]) if scopes else ""


def _give_constants_to_users(graph: ir.Graph, stacks: dict[ir.Node, Stack]) -> None:
    """Duplicates shared Constant nodes: each reader gets its own, so that functions share nothing."""
    for node in [node for node in graph if node.op_type == "Constant" and node.domain == ""]:
        (value,) = node.outputs
        if value.is_graph_output():
            continue
        for user in dict.fromkeys(user for user, _ in value.uses()):
            if user.graph is not graph:
                continue
            own = ir.Node("", "Constant", [], list(node.attributes.values()), num_outputs=1)
            own.outputs[0].name = f"{value.name}/{user.name or user.op_type}"
            own.outputs[0].type, own.outputs[0].shape = value.type, value.shape
            graph.insert_before(user, own)
            stacks[own] = stacks.get(user, ())
            for index, used in enumerate(user.inputs):
                if used is value:
                    user.replace_input_with(index, own.outputs[0])
        if not value.uses():
            stacks.pop(node)
            graph.remove(node, safe=True)
    order = {node: index for index, node in enumerate(graph)}
    items = sorted(stacks.items(), key=lambda item: order[item[0]])
    stacks.clear()
    stacks.update(items)


def _replace(model: ir.Model, call: _Call, bodies: dict[tuple[str, bytes], ir.Function]) -> ir.Node | None:
    """Moves the nodes of a call into a function and returns the calling node, or None if nothing reads its results."""
    graph, nodes = model.graph, call.nodes
    _check_convex(graph, call)
    inside = list(_with_inner(nodes))
    among = set(inside)
    own = {value for node in inside for value in (*node.outputs, *(v for g in _graphs(node) for v in g.inputs))}
    inputs = list(dict.fromkeys(v for node in inside for v in node.inputs if v is not None and v not in own))
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output() or any(user not in among for user, _ in value.uses())
    ]
    if not outputs:
        return None
    fresh = [ir.Value(name=None, type=value.type, shape=value.shape) for value in outputs]
    made = ir.Node("", "Call", inputs, outputs=fresh)
    graph.insert_after(nodes[-1], made)
    parameters = [ir.Value(name=name) for name in _names(inputs, call.frame)]
    for value, parameter in zip(inputs, parameters, strict=True):
        for user, index in list(value.uses()):
            if user in among:
                user.replace_input_with(index, parameter)
    for value, new in zip(outputs, fresh, strict=True):
        new.name, value.name = value.name, None
        for user, index in list(value.uses()):
            if user not in among:
                user.replace_input_with(index, new)
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = new
    graph.remove(nodes)
    graph.sort()
    function = _share(_function(model, call.frame, parameters, outputs, nodes), bodies)
    model.functions[function.identifier()] = function
    model.opset_imports.setdefault(function.domain, 1)
    made.domain, made.op_type, made.overload = function.identifier()
    made.name = f"{call.frame.path}/{fresh[0].name}"
    return made


def _check_convex(graph: ir.Graph, call: _Call) -> None:
    """Refuses a call that reads, through other modules, what depends on its own results: it becomes a single node."""
    among, between = set(call.nodes), set[ir.Value]()
    started: set[ir.Value] = set()
    for node in graph:
        read = {value for each in _with_inner([node]) for value in each.inputs if value is not None}
        if node in among:
            if read & between:
                raise UnsupportedError(
                    f"'{call.frame.path}' ({call.frame.kind}) can't be a function: '{node.name}' in it reads what "
                    "other modules compute from its results; leave it out of functions="
                )
            started.update(node.outputs)
        elif read & (started | between):
            between.update(node.outputs)


def _function(
    model: ir.Model, frame: Frame, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], nodes: Sequence[ir.Node]
) -> ir.Function:
    """The body with canonical names, so that calls of equal modules have equal bodies."""
    for number, node in enumerate(_with_inner(nodes)):
        node.name = f"{node.op_type}_{number}"
        node.metadata_props.clear()
        for index, value in enumerate(node.outputs):
            value.name = f"v{number}" + (f"_{index}" if index else "")
            value.type = value.shape = None
            value.metadata_props.clear()
    domains = {node.domain for node in _with_inner(nodes)}
    imports = {domain: version for domain, version in model.opset_imports.items() if domain in domains}
    body = ir.Graph(inputs, outputs, nodes=nodes, opset_imports=imports, name=frame.kind)
    domain, _, name = frame.kind.rpartition(".")
    return ir.Function(domain or "modules", name, graph=body, attributes=[])


def _share(function: ir.Function, bodies: dict[tuple[str, bytes], ir.Function]) -> ir.Function:
    """An existing function of this class with the same body, or this one; different bodies become overloads."""
    text = ir.to_proto(function).SerializeToString(deterministic=True)
    kind = f"{function.domain}.{function.name}"
    if (kind, text) not in bodies:
        others = sum(known == kind for known, _ in bodies)
        function.overload = str(others) if others else ""
        bodies[kind, text] = function
    return bodies[kind, text]


def _names(inputs: Iterable[ir.Value], frame: Frame) -> list[str]:
    """Names weights after their name in the module, and other inputs by number."""
    prefix = f"{frame.full}."
    names: list[str] = []
    for value in inputs:
        name = (value.name or "").removeprefix(prefix)
        names.append(name if name != value.name and name not in names else f"x{len(names)}")
    return names


def _with_inner(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Nodes, and those of the graphs that they contain."""
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from _with_inner(graph)


def _graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
