"""Exports a module, for given arguments, as an ONNX model of flat tensors, with torch.export or another exporter."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import sympy
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import OutputKind

from ortisan.errors import UnsupportedError
from ortisan.torch.axes import Dynamic, argument_names, symbolic_axes
from ortisan.torch.export import as_ir, name_inputs, quiet_exporter, to_onnx
from ortisan.torch.graph import check_graph
from ortisan.torch.options import FrontOptions
from ortisan.torch.reasons import reason_of
from ortisan.torch.tree import flatten, unflatten

_LEGACY_OPSET = 17


@dataclass(frozen=True, eq=False)
class Request:
    """The argument of a caller's own exporter, which returns a model whose inputs have these names, in any order."""

    module: nn.Module
    """Takes the tensors as positional arguments and returns a tuple of tensors."""
    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    axes: Mapping[str, Mapping[int, str]]
    """Dims to keep symbolic."""


@dataclass(frozen=True, eq=False)
class Captured:
    model: ir.Model
    names: tuple[str, ...]
    """Of each tensor."""
    dims: tuple[tuple[int | str, ...], ...]
    """Of each tensor: numbers, or symbols that have one value per call."""
    results: Any
    aliases: Mapping[int, int]
    """Results that are arguments: index of the result -> index of the tensor."""
    guards: tuple[Any, ...]
    """Conditions on the symbols that torch found and that must hold."""
    symbols: Mapping[str, Any]
    """The symbolic dims, as torch expressions."""
    text: str
    known: set[tuple[tuple[str, int], ...]] = field(default_factory=set)

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
        args, kwargs = unflatten(self._tree, tensors)
        flat, results = flatten(self.inner(*args, **kwargs))
        places = {id(tensor): index for index, tensor in enumerate(tensors)}
        aliases = {index: places[id(value)] for index, value in enumerate(flat) if id(value) in places}
        self.found.results, self.found.aliases = results, aliases
        return tuple(value for index, value in enumerate(flat) if index not in aliases)


def capture(module: nn.Module, args: Any, kwargs: Any, dynamic: Dynamic, options: FrontOptions) -> Captured:
    """Exports a module for these arguments. Raises an `OrtisanError`; the module is left as it was."""
    tensors, tree = flatten((args, kwargs))
    names = argument_names(module, args, kwargs)
    axes = symbolic_axes(names, tensors, dynamic, options.dims)
    found = _Found()
    flat = _Flat(module, tree, found)
    with _unchanged(module), torch.no_grad():
        if options.exporter == "dynamo":
            return _by_torch_export(flat, tensors, names, axes, options)
        axes = {name: {axis: word or f"{name}_{axis}" for axis, word in own.items()} for name, own in axes.items()}
        request = Request(flat, tuple(tensors), names, axes)
        model = _by_the_older_one(request, options) if options.exporter == "legacy" else None
        if model is None:
            assert callable(options.exporter)
            model = as_ir(options.exporter(request), "the exporter")
            if found.aliases is None:
                flat(*tensors)
    dims = tuple(
        tuple(axes.get(name, {}).get(axis, size) for axis, size in enumerate(tensor.shape))
        for name, tensor in zip(names, tensors, strict=True)
    )
    return Captured(model, names, dims, found.results, found.aliases or {}, (), {}, f"exported by {options.exporter}")


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
    model, functional = to_onnx(program, options, is_whole=True)
    _check_program(functional, flat.inner)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"][-len(names) :] if names else []
    dims, symbols, guards = _symbols([node.meta["val"] for node in nodes])
    renames = {
        str(dim): axes[name][axis]
        for name, sizes in zip(names, dims, strict=True)
        for axis, dim in enumerate(sizes)
        if isinstance(dim, str) and axes.get(name, {}).get(axis)
    }
    _rename(model, renames)
    name_inputs(model, names)
    dims = tuple(tuple(renames.get(dim, dim) if isinstance(dim, str) else dim for dim in sizes) for sizes in dims)
    symbols = {renames.get(name, name): symbol for name, symbol in symbols.items()}
    found = flat.found
    return Captured(model, names, dims, found.results, found.aliases or {}, guards, symbols, str(program.graph))


def _check_program(program: ExportedProgram, module: nn.Module) -> None:
    kind = type(module).__name__
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            what = "an input" if spec.kind == OutputKind.USER_INPUT_MUTATION else f"'{spec.target}'"
            raise UnsupportedError(
                f"the forward of {kind} changes {what} in place, which the wrapper can't do; call .eval() if the "
                "module is being trained, or use torch.compile(module, backend='ortisan')"
            )
    check_graph(program.graph_module)


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


def _by_the_older_one(request: Request, options: FrontOptions) -> ir.Model:
    file = io.BytesIO()
    with quiet_exporter():
        try:
            torch.onnx.export(
                request.module,
                request.tensors,
                file,  # type: ignore[arg-type]  # it takes files, too
                dynamo=False,
                opset_version=options.opset or _LEGACY_OPSET,
                input_names=list(request.names),
                dynamic_axes={name: dict(axes) for name, axes in request.axes.items()},
            )
        except Exception as error:
            raise UnsupportedError(f"the older exporter can't export the module: {reason_of(error)}") from error
    return ir.from_proto(onnx.load_from_string(file.getvalue()))


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Restores attributes that a forward assigned to the module or its submodules."""
    tables = ("_parameters", "_buffers", "_modules")
    saved = [(part, dict(part.__dict__), [dict(getattr(part, table)) for table in tables]) for part in module.modules()]
    try:
        yield
    finally:
        for part, attributes, contents in saved:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for table, content in zip(tables, contents, strict=True):
                getattr(part, table).clear()
                getattr(part, table).update(content)
