"""Reads a functional FX graph, as AOTAutograd makes it, as a program of tensors.

Only what has to be computed is exported. Outputs that are inputs, numbers or nothing are put in place by `Outputs`,
and sizes are read off the tensors that have them, so that they stay symbolic.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from ortisan.errors import UnsupportedError
from ortisan.torch.drawing import Draw, is_random, take_draws
from ortisan.torch.reasons import NoFormError

_COMPLEX = "complex numbers, which ONNX Runtime can't compute with"


@dataclass(frozen=True)
class Output:
    """One output: a computed tensor or number (at `index` of the program's), an argument, or a constant."""

    kind: Literal["tensor", "int", "argument", "constant"]
    index: int = 0
    value: Any = None
    strides: tuple[int, ...] | None = None
    """Strides of a tensor that is not contiguous, if they are known."""
    order: tuple[int, ...] | None = None
    """Otherwise its axes, from the widest stride to the narrowest."""
    repeated: tuple[int, ...] = ()
    """Expanded axes, whose stride is 0."""

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """Restores the strides that the graph gives the tensor; views of it rely on them."""
        if self.strides is None and self.order is None:
            return tensor
        size = tensor.shape
        for axis in self.repeated:
            tensor = tensor.narrow(axis, 0, min(1, tensor.shape[axis]))
        if self.strides is not None:
            placed = torch.empty_strided(tensor.shape, self.strides, dtype=tensor.dtype)
        else:
            placed = torch.empty_permuted(tensor.shape, self.order or (), dtype=tensor.dtype)
        return placed.copy_(tensor).expand(size)


@dataclass(frozen=True, eq=False)
class Program:
    """The exported part of a graph. It takes the arguments at these positions, in order, then the constants.

    Positions behind the graph's own arguments are those of `draws`, which are to be drawn before each run.
    """

    exported: ExportedProgram
    arguments: tuple[int, ...]
    constants: tuple[torch.Tensor, ...]
    outputs: tuple[Output, ...]
    draws: tuple[Draw, ...] = ()

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether the outputs are what is computed, in order and contiguous."""
        return all(
            output.kind == "tensor" and output.index == index and output.strides is None and output.order is None
            for index, output in enumerate(self.outputs)
        )


def read_graph(module: fx.GraphModule) -> Program:
    """Reads a copy of `module`. Raises `UnsupportedError` with the reason when it can't be computed elsewhere."""
    graph = fx.Graph()
    given: Any = graph.graph_copy(module.graph, {})
    # The results have a node while nodes are replaced.
    end = graph.output(given)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    draws = take_draws(graph, placeholders)
    given = end.args[0]
    graph.erase_node(end)
    results = list(given) if isinstance(given, (tuple, list)) else [given]
    parts = [part for part in module.modules() if part is not module and isinstance(part, fx.GraphModule)]
    check_graph(graph, *(part.graph for part in parts))
    computed: list[fx.Node] = []
    outputs = tuple(_output(result, placeholders, computed) for result in results)
    _read_sizes(graph, placeholders)
    graph.output(tuple(computed))
    graph.eliminate_dead_code()
    taken = [index for index, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    inputs = [placeholders[index] for index in taken]
    constants = _lift_constants(module, graph, inputs)
    exported = _as_exported(fx.GraphModule(module, graph), [*inputs, *constants], computed)
    return Program(exported, tuple(taken), tuple(constants.values()), outputs, tuple(draws))


def _lift_constants(module: fx.GraphModule, graph: fx.Graph, inputs: Sequence[fx.Node]) -> dict[fx.Node, torch.Tensor]:
    """Turns tensors held by the graph into inputs after the others."""
    lifted: dict[fx.Node, torch.Tensor] = {}
    modes = (getattr(node.meta["val"], "fake_mode", None) for node in graph.nodes if "val" in node.meta)
    mode = next((mode for mode in modes if mode is not None), None)
    first = next(node for node in graph.nodes if node not in inputs)
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        value = functools.reduce(getattr, str(node.target).split("."), module)
        if not isinstance(value, torch.Tensor):
            continue
        with graph.inserting_before(first):
            place = graph.placeholder(f"constant_{len(lifted)}")
        place.meta["val"] = mode.from_tensor(value) if mode is not None else value
        node.replace_all_uses_with(place)
        graph.erase_node(node)
        lifted[place] = value
    return lifted


def check_graph(*graphs: fx.Graph) -> None:
    """Raises `NoFormError` for random ops, complex, sparse and quantized tensors, and other devices."""
    _refuse_all(_refusal(node) for node in itertools.chain.from_iterable(graph.nodes for graph in graphs))


def _refusal(node: fx.Node) -> tuple[fx.Node, str] | None:
    """Why a node can't be exported, for what it computes or what it reads."""
    if is_random(node):
        return node, f"{node.target} draws random numbers, which would differ from eager's"
    for each in (node, *(node.all_input_nodes if node.op == "call_function" else ())):
        values = each.meta.get("val")
        for value in values if isinstance(values, (tuple, list)) else [values]:
            try:
                if isinstance(value, torch.Tensor):
                    check_tensor(value, f"{node.target}" if node.op == "call_function" else f"'{each.name}'")
            except UnsupportedError as error:
                return node, str(error)
    return None


def _refuse_all(found: Iterable[tuple[fx.Node, str] | None]) -> None:
    """One error for all nodes; it says why of the first."""
    refused = [each for each in found if each is not None]
    if refused:
        raise NoFormError(refused[0][1], nodes=[node.name for node, _ in refused])


def check_custom_ops(graph: fx.Graph) -> None:
    """Raises `NoFormError` for an op of torch.library that changes what it is given."""
    _refuse_all(_change(node) for node in graph.nodes)


def _change(node: fx.Node) -> tuple[fx.Node, str] | None:
    op = node.args[0] if str(node.target).startswith("auto_functionalized") else node.target
    changed = changed_argument(op) if isinstance(op, torch._ops.OpOverload) and op.namespace != "aten" else None
    return (
        None if changed is None else (node, f"{op} changes its argument '{changed}' in place, which has no ONNX form")
    )


def changed_argument(op: torch._ops.OpOverload) -> str | None:
    """The first argument that an op writes to."""
    written = (each.name for each in op._schema.arguments if each.alias_info is not None and each.alias_info.is_write)
    return next(written, None)


def check_tensor(value: torch.Tensor, what: str) -> None:
    if value.layout != torch.strided:
        raise UnsupportedError(f"{what} is a sparse tensor ({value.layout}); use .to_dense()")
    if value.dtype.is_complex:
        raise UnsupportedError(f"{what} has {_COMPLEX}; use torch.view_as_real")
    if value.is_quantized:
        raise UnsupportedError(f"{what} is a quantized tensor ({value.dtype}); use .dequantize()")
    if value.device.type != "cpu":
        raise UnsupportedError(f"{what} is on '{value.device}', and graphs are compiled for the CPU; use .cpu()")


def _output(result: Any, placeholders: Sequence[fx.Node], computed: list[fx.Node]) -> Output:
    if not isinstance(result, fx.Node):
        return Output("constant", value=result)
    if result in placeholders:
        return Output("argument", placeholders.index(result))
    value = result.meta.get("val")
    if value is None:
        return Output("constant")
    if result not in computed:
        computed.append(result)
    index = computed.index(result)
    if isinstance(value, torch.Tensor) and value.is_contiguous():
        return Output("tensor", index)
    if isinstance(value, torch.Tensor):
        strides = [_hint(stride) for stride in value.stride()]
        repeated = tuple(axis for axis, stride in enumerate(strides) if stride == 0)
        if all(isinstance(stride, int) for stride in value.stride()):
            return Output("tensor", index, strides=tuple(strides), repeated=repeated)
        order = tuple(sorted(range(value.ndim), key=lambda axis: (-strides[axis], axis)))
        return Output("tensor", index, order=order, repeated=repeated)
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return Output("int", index)
    raise UnsupportedError(f"output '{result.name}' is a {type(value).__name__}, not a tensor")


def _hint(size: int | torch.SymInt) -> int:
    """The value that a symbolic size had when the graph was traced."""
    return size if isinstance(size, int) else int(size.node.hint)


def _read_sizes(graph: fx.Graph, placeholders: Sequence[fx.Node]) -> None:
    """Reads sizes that are passed as arguments off a tensor that has them."""
    homes: dict[Any, tuple[fx.Node, int]] = {}
    for node in placeholders:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    homes.setdefault(size.node.expr, (node, axis))
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    for node in placeholders:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr in homes and node.users and first is not None:
            tensor, axis = homes[value.node.expr]
            with graph.inserting_before(first):
                read = graph.call_function(torch.ops.aten.sym_size.int, (tensor, axis))
            read.meta["val"] = value
            node.replace_all_uses_with(read)


def _as_exported(module: fx.GraphModule, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> ExportedProgram:
    if not outputs:
        raise UnsupportedError("nothing in the graph has to be computed")
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, _argument(node), None) for node in inputs],
        [OutputSpec(OutputKind.USER_OUTPUT, _argument(node), None) for node in outputs],
    )
    _, given = pytree.tree_flatten((tuple(range(len(inputs))), {}))
    _, results = pytree.tree_flatten(tuple(range(len(outputs))))
    calls = [ModuleCallEntry("", ModuleCallSignature([], [], given, results))]
    return ExportedProgram(module, module.graph, signature, {}, {}, calls)


def _argument(node: fx.Node) -> TensorArgument | SymIntArgument:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return TensorArgument(node.name)
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return SymIntArgument(node.name)
    raise UnsupportedError(f"'{node.name}' is a {type(value).__name__}, not a tensor or a whole number")
