"""`torch.compile(model, backend="ortisan")`: compiles each graph that dynamo captures.

AOTAutograd makes a graph functional: it handles mutation, aliased outputs and views, and splits training into a forward
and a backward graph. Without gradients, parameters and buffers become weights; with gradients they are inputs, because
they change at every step.
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
from ortisan.torch.options import FrontOptions, front_options
from ortisan.torch.reasons import refuse

_count = itertools.count()
_aten = torch.ops.aten
# torch.onnx translates these, but not all of their outputs, so backward graphs would read wrong values.
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
    """The backend as torch.compile calls it. Graphs that can't be compiled run eager, with a warning that says why."""
    chosen = front_options(options, mode)
    if chosen.exporter != "dynamo":
        raise OptionError("under torch.compile the exporter is dynamo; ortisan.torch.compile takes others")
    return compile_graph(module, example_inputs, chosen)


def compile_graph(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: FrontOptions,
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
        # The backward of the attention kernel can't be expressed in ONNX; that of its plain form can.
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
    """Buffers and other tensors owned by modules; parameters are recognized by their type."""
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
