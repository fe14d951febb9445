"""`torch.compile(model, backend="ortisan")`: each graph that dynamo finds, compiled by itself.

AOTAutograd makes a graph functional: what is changed in place, returned twice or viewed is its business, and for
training it gives a forward and a backward graph. Without gradients, parameters and buffers are weights of what is
built; with them they are inputs, because they change at every step.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakIdKeyDictionary

from ortisan.errors import OptionError, OrtisanError
from ortisan.torch.compiled import CompiledGraph
from ortisan.torch.graph import check_tensor
from ortisan.torch.options import Options, make_options
from ortisan.torch.reasons import refuse

_count = itertools.count()
_aten = torch.ops.aten
# torch.onnx has words for these, but not for all of their outputs: what backward graphs read of them would be wrong.
_TAKEN_APART = [
    _aten.nll_loss_forward,
    _aten.nll_loss2d_forward,
    _aten.native_batch_norm,
    _aten._native_batch_norm_legit_functional,
    _aten.native_group_norm,
]


def ortisan(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend, as torch.compile calls it. What can't be compiled runs eager, with one warning that says why."""
    chosen = make_options(options, mode)
    if chosen.exporter != "dynamo":
        raise OptionError("under torch.compile the exporter is dynamo; ortisan.torch.compile takes others")
    return compile_graph(module, example_inputs, chosen)


def compile_graph(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    on_graph: Callable[[CompiledGraph], None] | None = None,
) -> Callable[..., Any]:
    title = f"graph {next(_count)}"
    weights = _static_tensors(module, example_inputs)

    def compiler(kind: str, *, frozen: bool) -> Callable[..., Any]:
        def compile_part(part: fx.GraphModule, _: Sequence[Any]) -> CompiledGraph:
            name = f"{title}{kind}"
            compiled = CompiledGraph(part, options, title=name, is_weight=lambda arg: frozen and _is_in(arg, weights))
            if on_graph is not None:
                on_graph(compiled)
            return compiled

        return compile_part

    tensors = {index: value for index, value in enumerate(example_inputs) if isinstance(value, torch.Tensor)}
    train = torch.is_grad_enabled() and any(value.requires_grad for value in tensors.values())
    try:
        for index, value in tensors.items():
            check_tensor(value, f"input {index}")
    except OrtisanError as error:
        refuse(title, error, strict=options.strict)
        return module.forward
    try:
        # Attention's own kernel has a backward that ONNX has no word for; its plain form has.
        with sdpa_kernel(SDPBackend.MATH) if train else contextlib.nullcontext():
            return aot_autograd(
                fw_compiler=compiler(" (forward)", frozen=False),
                bw_compiler=compiler(" (backward)", frozen=False),
                inference_compiler=compiler("", frozen=True),
                decompositions=get_decompositions(_TAKEN_APART) if train else None,
            )(module, example_inputs)
    except (OrtisanError, RestartAnalysis):
        raise
    except Exception as error:  # noqa: BLE001  # AOTAutograd raises anything
        refuse(title, error, strict=options.strict)
        return module.forward


def _static_tensors(module: fx.GraphModule, example_inputs: Sequence[Any]) -> WeakIdKeyDictionary:
    """Buffers and other tensors that belong to modules; parameters are known by their type."""
    found = WeakIdKeyDictionary()
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if isinstance(value, torch.Tensor) and "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {}):
            found[value] = True
    for value in itertools.chain(module.parameters(), module.buffers()):
        found[value] = True
    return found


def _is_in(value: Any, weights: WeakIdKeyDictionary) -> bool:
    return isinstance(value, torch.nn.Parameter) or (isinstance(value, torch.Tensor) and value in weights)
