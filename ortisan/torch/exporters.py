"""Exporters beside torch.onnx's: the older one of torch, which traces, and those of callers."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import fx, nn
from torch._guards import tracing
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ortisan.errors import OptionError, UnsupportedError
from ortisan.torch.export import as_ir, quiet_exporter
from ortisan.torch.graph import Program
from ortisan.torch.options import FrontOptions
from ortisan.torch.reasons import reason_of

_LEGACY_OPSET = 17
_aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Request:
    """The argument of a caller's own exporter, which returns a model whose inputs have these names, in any order."""

    module: nn.Module
    """Takes the tensors as positional arguments and returns a tuple of tensors."""
    tensors: tuple[torch.Tensor, ...]
    """Under torch.compile they are zeros, because a graph is exported before it is called."""
    names: tuple[str, ...]
    axes: Mapping[str, Mapping[int, str]]
    """Dims to keep symbolic."""


def export_by(request: Request, options: FrontOptions) -> ir.Model:
    """A model by the exporter of the options, whose inputs are among those of the request."""
    if options.exporter == "legacy":
        return _by_the_older_one(request, options)
    assert callable(options.exporter)
    model = as_ir(options.exporter(request), "the exporter")
    for value in model.graph.inputs:
        if value.name not in request.names:
            raise OptionError(f"the exporter's model has an input '{value.name}'; known are {', '.join(request.names)}")
    return model


def export_graph(program: Program, options: FrontOptions) -> ir.Model:
    """A graph of torch.compile, whose inputs have the program's order."""
    graph = program.exported.graph_module.graph
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    if any(not isinstance(node.meta["val"], torch.Tensor) for node in nodes):
        raise UnsupportedError("the graph has numbers as inputs, which only exporter='dynamo' takes")
    axes = {node.name: _axes(node.meta["val"]) for node in nodes}
    if options.exporter == "legacy" and any(axes.values()):
        raise UnsupportedError("the older exporter would fix the graph's dynamic sizes; use dynamic=False")
    names = tuple(node.name for node in nodes)
    with _nothing_traced():
        tensors = tuple(_zeros(node.meta["val"]) for node in nodes)
        module = _traceable(program.exported.graph_module, plain=options.exporter == "legacy")
        model = export_by(Request(module, tensors, names, axes), options)
    given = {value.name: value for value in model.graph.inputs}
    inputs = [given.get(name) or ir.Value(name=name) for name in names]
    model.graph.inputs.clear()
    model.graph.inputs.extend(inputs)
    return model


@contextlib.contextmanager
def _nothing_traced() -> Iterator[None]:
    """Takes torch.compile's own trace, within which a backend is called, out of the way."""
    with unset_fake_temporarily(), tracing(None), torch.no_grad():
        yield


def _zeros(value: torch.Tensor) -> torch.Tensor:
    sizes = [size if isinstance(size, int) else int(size.node.hint) for size in value.shape]
    return torch.zeros(sizes, dtype=value.dtype)


def _axes(value: torch.Tensor) -> dict[int, str]:
    return {axis: str(size) for axis, size in enumerate(value.shape) if isinstance(size, torch.SymInt)}


def _traceable(module: fx.GraphModule, *, plain: bool) -> nn.Module:
    """The module with sizes that a tracer sees; `plain` is without ops that the older exporter has no name for."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        if node.target == _aten.sym_size.int:
            node.op, node.target = "call_method", "size"
        elif plain:
            node.target = _PLAIN.get(node.target, node.target)
    return _Called(fx.GraphModule(module, graph).forward)


class _Called(nn.Module):
    """A function as a module, because tracers take the `graph` of a GraphModule for their own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._function(*tensors)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> Any:
    attend = nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask, dropout, is_causal, scale=scale), None


def _batch_norm(  # noqa: PLR0917  # as aten has it
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    return nn.functional.batch_norm(x, mean, variance, weight, bias, False, momentum, eps), None, None


_PLAIN: dict[Any, Callable[..., Any]] = {
    _aten._softmax.default: lambda x, dim, _: torch.softmax(x, dim),
    _aten._unsafe_view.default: torch.Tensor.view,
    _aten._to_copy.default: lambda x, *, dtype=None, **_: x if dtype is None else x.to(dtype),
    _aten._adaptive_avg_pool2d.default: nn.functional.adaptive_avg_pool2d,
    _aten._native_batch_norm_legit_no_training.default: _batch_norm,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    _aten.lift_fresh_copy.default: torch.clone,
    _aten.bitwise_and.Tensor: lambda a, b: (
        torch.logical_and(a, b) if a.dtype == torch.bool else torch.bitwise_and(a, b)
    ),
}
"""What AOTAutograd leaves of functions of torch, as the functions."""


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
