"""`torch.compile(model, backend="ortisan")`: compiles each graph that dynamo captures.

AOTAutograd makes a graph functional: it handles mutation, aliased outputs and views, and splits training into a forward
and a backward graph. Without gradients, parameters and buffers become weights; with gradients they are inputs, because
they change at every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakIdKeyDictionary

from ortisan.errors import OrtisanError
from ortisan.torch.compiled import CompiledGraph
from ortisan.torch.decompose import training_decompositions
from ortisan.torch.deferred import Deferred, Graphs
from ortisan.torch.direct import Traced, without_wrapper
from ortisan.torch.graph import check_tensor
from ortisan.torch.guards import guard_hooks
from ortisan.torch.options import FrontOptions, environment_options, front_options
from ortisan.torch.quicker import Quicker
from ortisan.torch.reasons import for_dynamo, refuse
from ortisan.torch.tracing import alone

_count = itertools.count()


def ortisan(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend as torch.compile calls it. Graphs that can't be compiled run eager, with a warning that says why."""
    try:
        chosen = front_options({**environment_options(), **(options or {})}, mode)
        guard_hooks()
        with alone():
            return compile_graph(module, example_inputs, chosen)
    except OrtisanError as error:
        raise for_dynamo(error) from error.__cause__


def compile_graph(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: FrontOptions,
    on_graph: Callable[[CompiledGraph], None] | None = None,
) -> Callable[..., Any]:
    title = f"graph {next(_count)}"
    weights, count = _static_tensors(module, example_inputs), len(example_inputs)

    def compiler(made: Traced, kind: str, *, frozen: bool, late: bool = False) -> Callable[..., Any]:
        def compile_part(part: fx.GraphModule, _: Sequence[Any]) -> CompiledGraph:
            compiled = CompiledGraph(
                part,
                options,
                title=f"{title}{kind}",
                is_weight=lambda arg: frozen and (_is_in(arg, weights) or (_is_number(arg) and not options.freeze)),
                late=late,
            )
            made.add(compiled, count)
            if on_graph is not None and not late:
                on_graph(compiled)
            return compiled

        return compile_part

    tensors = {index: value for index, value in enumerate(example_inputs) if isinstance(value, torch.Tensor)}
    train = torch.is_grad_enabled() and any(value.requires_grad for value in tensors.values())
    eager: Callable[..., Any] = module.forward
    try:
        for index, value in tensors.items():
            check_tensor(value, f"input {index}")
    except OrtisanError as error:
        refuse(title, error, strict=options.strict)
        return eager
    try:
        if not train:
            traced = Traced()
            plain = _inference(module, example_inputs, compiler(traced, "", frozen=True), traced)
            return _unless_eager_is_faster(plain, module, traced, options)
        graphs = Graphs()
        late = compiler(graphs.late, " (without a backward)", frozen=True, late=True)
        infer = _inference_later(module, example_inputs, late, graphs.late)
        # The backward of the attention kernel can't be expressed in ONNX; that of its plain form can.
        with sdpa_kernel(SDPBackend.MATH):
            trained = aot_autograd(
                fw_compiler=compiler(graphs.forward, " (forward)", frozen=False),
                bw_compiler=compiler(graphs.backward, " (backward)", frozen=False),
                inference_compiler=compiler(graphs.forward, "", frozen=True),
                decompositions=training_decompositions(),
            )(module, example_inputs)
        chosen = trained if infer is None else Deferred(trained, infer, graphs)
        return _unless_eager_is_faster(chosen, module, graphs.forward, options)
    except (OrtisanError, RestartAnalysis):
        raise
    except Exception as error:  # noqa: BLE001  # AOTAutograd raises anything
        refuse(title, error, strict=options.strict)
        return eager


def _unless_eager_is_faster(
    compiled: Callable[..., Any], module: fx.GraphModule, traced: Traced, options: FrontOptions
) -> Callable[..., Any]:
    is_watched = options.strict or options.intercept or options.check is not None or options.dump is not None
    return compiled if is_watched else Quicker(compiled, module.forward, traced)


def _inference(
    module: fx.GraphModule, example_inputs: Sequence[Any], compiler: Callable[..., Any], traced: Traced
) -> Callable[..., Any]:
    wrapped = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)(module, example_inputs)
    return without_wrapper(wrapped, traced)


def _inference_later(
    module: fx.GraphModule, example_inputs: Sequence[Any], compiler: Callable[..., Any], traced: Traced
) -> Any:
    """The graph without gradients, traced but not exported; None where that can't be."""
    try:
        with torch.no_grad():
            return _inference(module, example_inputs, compiler, traced)
    except RestartAnalysis:
        raise
    except Exception:  # noqa: BLE001  # the graph for training is what counts, and says what is wrong
        return None


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


def _is_number(value: Any) -> bool:
    """Whether dynamo may have made the tensor of a float, as of the epsilon of a norm: a new one for each call."""
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.dtype == torch.float64
