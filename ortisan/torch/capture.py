"""Exports a module, for given arguments, as an ONNX model of flat tensors, with torch.export or another exporter."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import sympy
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ortisan.errors import UnsupportedError
from ortisan.torch.axes import Dynamic, argument_names, named_leaves, symbolic_axes
from ortisan.torch.caches import contents_of
from ortisan.torch.export import name_inputs, quiet_exporter, to_onnx
from ortisan.torch.exporters import Request, export_by
from ortisan.torch.graph import check_graph
from ortisan.torch.options import FrontOptions
from ortisan.torch.reasons import NoFormError, reason_of
from ortisan.torch.tracing import alone, twin
from ortisan.torch.tree import Flattener, flatten, same_structure, unflatten


@dataclass(frozen=True, eq=False)
class Cut:
    """A module that can't be exported whole: its graph, which takes these tensors before the call's own, and why."""

    graph: torch.fx.GraphModule
    weights: tuple[torch.Tensor, ...]
    error: NoFormError


@dataclass(frozen=True, eq=False)
class Captured:
    model: ir.Model | None
    """None where something has no ONNX form, see `cut`."""
    names: tuple[str, ...]
    """Of each tensor."""
    dims: tuple[tuple[int | str, ...], ...]
    """Of each tensor: numbers, or symbols that have one value per call."""
    results: Any
    """The structure of the result, and of what the containers among the arguments hold afterwards, if they change."""
    changed: tuple[int, ...]
    """Those containers."""
    aliases: Mapping[int, int]
    """Results that are arguments: index of the result -> index of the tensor."""
    guards: tuple[Any, ...]
    """Conditions on the symbols that torch found and that must hold."""
    symbols: Mapping[str, Any]
    """The symbolic dims, as torch expressions."""
    text: str
    cut: Cut | None = None
    known: set[tuple[tuple[str, int], ...]] = field(default_factory=set)

    @property
    def whole(self) -> ir.Model:
        """The model; where there is none, the error that says why."""
        if self.model is None:
            raise self.cut.error if self.cut is not None else AssertionError("nothing was captured")
        return self.model

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the exported model is valid for these sizes."""
        key = tuple(sizes.items())
        if key in self.known:
            return True
        known = {
            name: (self.symbols[name], sympy.Integer(size)) for name, size in sizes.items() if name in self.symbols
        }
        values = {dim: size for dim, size in known.values() if dim.is_Symbol}
        if any(dim.xreplace(values) != size for dim, size in known.values()):
            return False
        if any(guard.xreplace(values) == sympy.false for guard in self.guards):
            return False
        self.known.add(key)
        return True

    def with_aliases(self, computed: list[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        if not self.aliases:
            return computed
        rest = iter(computed)
        total = len(computed) + len(self.aliases)
        return [tensors[self.aliases[i]] if i in self.aliases else next(rest) for i in range(total)]


class _Found:
    """Holds the results of the last run: torch.export restores a module's lists and dicts, but not this."""

    results: Any = None
    changed: tuple[int, ...] = ()
    aliases: Mapping[int, int] | None = None


class _Flat(nn.Module):
    """A module as a function of flat tensors. The structure of its results is recorded when it runs."""

    def __init__(self, module: nn.Module, tree: Any, found: _Found) -> None:
        super().__init__()
        self.inner = module
        self.training = module.training
        self.found = found
        self._tree = tree

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        containers: list[Any] = []
        args, kwargs = unflatten(self._tree, tensors, made=containers)
        known = {id(container): index for index, container in enumerate(containers)}
        before = [_inside(container, known) for container in containers]
        walk = Flattener(known, results=True)
        results = walk.flatten(self.inner(*args, **kwargs))
        changed = [index for index, each in enumerate(containers) if _differs(before[index], _inside(each, known))]
        contents = [walk.flatten(contents_of(containers[index])) for index in changed]
        flat = walk.tensors
        places = {id(tensor): index for index, tensor in enumerate(tensors)}
        aliases = {index: places[id(value)] for index, value in enumerate(flat) if id(value) in places}
        self.found.results, self.found.aliases = (results, *contents), aliases
        self.found.changed = tuple(changed)
        return tuple(value for index, value in enumerate(flat) if index not in aliases)


def _inside(container: Any, known: Mapping[int, int]) -> tuple[list[torch.Tensor], Any]:
    walk = Flattener(known, results=True)
    tree = walk.flatten(contents_of(container))
    return walk.tensors, tree


def _differs(a: tuple[list[torch.Tensor], Any], b: tuple[list[torch.Tensor], Any]) -> bool:
    return len(a[0]) != len(b[0]) or any(map(operator.is_not, a[0], b[0])) or not same_structure(a[1], b[1])


def capture(module: nn.Module, args: Any, kwargs: Any, dynamic: Dynamic, options: FrontOptions) -> Captured:
    """Exports a module for these arguments. Raises an `OrtisanError`; the module is left as it was."""
    check_arguments(module, args, kwargs)
    tensors, tree = flatten((args, kwargs))
    names = argument_names(module, args, kwargs)
    axes = symbolic_axes(names, tensors, dynamic, options.dims)
    found = _Found()
    flat = _Flat(twin(module), tree, found)
    with alone(), torch.no_grad():
        if options.exporter == "dynamo":
            return _by_torch_export(flat, tensors, names, axes, options)
        axes = {name: {axis: word or f"{name}_{axis}" for axis, word in own.items()} for name, own in axes.items()}
        model = export_by(Request(flat, tuple(tensors), names, axes), options)
        if found.aliases is None:
            flat(*tensors)
    dims = tuple(
        tuple(axes.get(name, {}).get(axis, size) for axis, size in enumerate(tensor.shape))
        for name, tensor in zip(names, tensors, strict=True)
    )
    aliases, text = found.aliases or {}, f"exported by {options.exporter}"
    return Captured(model, names, dims, found.results, found.changed, aliases, (), {}, text)


def check_arguments(module: nn.Module, args: Any, kwargs: Any) -> None:
    """Refuses objects that can't be taken apart, because tensors in them would become constants."""
    for name, leaf in named_leaves(module, args, kwargs):
        if isinstance(leaf, (torch.Tensor, nn.Module, type)) or callable(leaf):
            continue
        if any(isinstance(each, torch.Tensor) for each in getattr(leaf, "__dict__", {}).values()):
            raise UnsupportedError(
                f"argument '{name}' is a {type(leaf).__name__}, which can't be taken apart into tensors; pass tensors "
                "or a dataclass, or register the class with torch.utils._pytree.register_pytree_node"
            )


def _by_torch_export(
    flat: _Flat,
    tensors: list[torch.Tensor],
    names: tuple[str, ...],
    axes: Mapping[str, Mapping[int, str]],
    options: FrontOptions,
) -> Captured:
    kind = type(flat.inner).__name__
    # "" stands for a dim that torch may fix; a name has to stay symbolic.
    shapes = [{axis: Dim.DYNAMIC if word else Dim.AUTO for axis, word in axes.get(name, {}).items()} for name in names]
    with quiet_exporter():
        try:
            program = torch.export.export(flat, tuple(tensors), dynamic_shapes={"tensors": tuple(shapes)}, strict=False)
        except Exception as error:
            raise UnsupportedError(f"torch.export can't export {kind}: {reason_of(error)}") from error
    if not program.graph_signature.user_outputs:
        raise UnsupportedError(f"{kind} computes nothing: every result is an argument or a constant")
    model: ir.Model | None = None
    cut: Cut | None = None
    try:
        model, functional = to_onnx(program, options, is_whole=True)
        _check_program(functional, flat.inner)
    except NoFormError as error:
        if options.strict:
            raise
        model, cut = None, _cut(program, flat.inner, error)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"][-len(names) :] if names else []
    dims, symbols, guards = _symbols([node.meta["val"] for node in nodes])
    renames = {
        str(dim): axes[name][axis]
        for name, sizes in zip(names, dims, strict=True)
        for axis, dim in enumerate(sizes)
        if isinstance(dim, str) and axes.get(name, {}).get(axis)
    }
    if model is not None:
        _rename(model, renames)
        name_inputs(model, names)
    dims = tuple(tuple(renames.get(dim, dim) if isinstance(dim, str) else dim for dim in sizes) for sizes in dims)
    symbols = {renames.get(name, name): symbol for name, symbol in symbols.items()}
    found = flat.found
    text = str(program.graph)
    return Captured(model, names, dims, found.results, found.changed, found.aliases or {}, guards, symbols, text, cut)


def _cut(program: ExportedProgram, module: nn.Module, error: NoFormError) -> Cut:
    """The program as a functional graph, to be cut around what has no ONNX form."""
    functional = program.run_decompositions({})
    _check_mutations(functional, module)
    kept = {**functional.state_dict, **functional.constants}
    own = dict((*module.named_parameters(), *module.named_buffers()))
    lifted = [spec.target for spec in functional.graph_signature.input_specs if spec.kind != InputKind.USER_INPUT]
    tensors = [own.get((name or "").removeprefix("inner."), kept[name]) for name in lifted if name is not None]
    return Cut(functional.graph_module, tuple(tensors), error)


def _check_program(program: ExportedProgram, module: nn.Module) -> None:
    _check_mutations(program, module)
    parts = [part for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    check_graph(*(part.graph for part in parts))


def _check_mutations(program: ExportedProgram, module: nn.Module) -> None:
    kind = type(module).__name__
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            what = "an input" if spec.kind == OutputKind.USER_INPUT_MUTATION else f"'{spec.target}'"
            raise UnsupportedError(
                f"the forward of {kind} changes {what} in place, which the wrapper can't do; call .eval() if the "
                "module is being trained, or use torch.compile(module, backend='ortisan')"
            )


def _symbols(values: Sequence[Any]) -> tuple[tuple[tuple[int | str, ...], ...], dict[str, Any], tuple[Any, ...]]:
    """The dims of exported tensors, their symbols, and the conditions on these."""
    dims, symbols, guards = [], {}, set()
    for value in values:
        row: list[int | str] = []
        for size in value.shape:
            expr = size.node.expr if isinstance(size, torch.SymInt) else None
            if expr is None or expr.is_number:
                row.append(int(size))
                continue
            row.append(str(expr))
            environment = size.node.shape_env
            symbols[str(expr)] = expr
            if expr.is_Symbol:
                allowed = environment.bound_sympy(expr)
                guards |= {sympy.Ge(expr, allowed.lower), sympy.Le(expr, allowed.upper)}
            guards |= {environment.simplify(guard.expr) for guard in environment.guards}
        dims.append(tuple(row))
    return tuple(dims), symbols, tuple(guards)


def _rename(model: ir.Model, renames: Mapping[str, str]) -> None:
    if not renames:
        return

    def new_name(found: re.Match[str]) -> str:
        return renames[found[1]]

    words = re.compile(r"\b(" + "|".join(map(re.escape, renames)) + r")\b")
    values = {value for node in model.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value is not None}
    for value in {*values, *model.graph.inputs, *model.graph.outputs}:
        if value.shape is not None:
            texts = [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape]
            value.shape = ir.Shape([words.sub(new_name, dim) if isinstance(dim, str) else dim for dim in texts])
