"""GPU targets: wires AITemplate's adapter to the partitioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ortisan.codegen.ait.adapter import Adapter, AitSettings
from ortisan.codegen.ait.architectures import NO_ROCM
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.tools.toolchain import has_gpu
from ortisan.converter.partition import Objections
from ortisan.errors import OptionError
from ortisan.pipeline.compilation import Options
from ortisan.registry.dims import evaluate, symbols_of
from ortisan.registry.graph import Graph

_TYPICAL_DIM = 64
_GUESS = (1, 1024)
"""Bounds to try a graph with before the user is asked for some."""
_LEAST_SHARE = 0.01


def open_adapter(options: Options, say: Callable[[str], None]) -> Adapter:
    """AITemplate with the settings of a compilation; it times tiles where there is a GPU and tuning is on."""
    if options.target.kind == "rocm":
        raise OptionError(f"{options.target} can't be compiled for ONNX Runtime: {NO_ROCM}; use a cuda target")
    settings = AitSettings(
        arch=options.target.architectures[0],
        half=options.precision == "fp16",
        tf32=options.tf32,
        fast_math=options.fast_math,
        profile=options.tune != "off" and has_gpu(),
    )
    return Adapter(find_aitemplate(), settings, say)


def objections(adapter: Adapter, named: Mapping[str, str], *, keep_small: bool = False) -> Objections:
    """What the partitioner asks. `named` are the dims of the model's inputs: symbol -> name in the model.

    Rules come first, then AITemplate itself. Graphs with next to nothing to compute are left to ONNX Runtime, unless
    `keep_small`. A dim without upper bound is an error once all else is settled, because then it is really needed.
    """

    def ask(graphs: Sequence[Graph]) -> Sequence[Mapping[str, str]]:
        small = [{} for _ in graphs] if keep_small else _small(graphs)
        tried = [replace(graph, bounds={**dict.fromkeys(named, _GUESS), **graph.bounds}) for graph in graphs]
        found = [{**adapter.rules(graph), **small_ones} for graph, small_ones in zip(tried, small, strict=True)]
        if any(found):
            return found
        free = {name for graph in graphs for name in graph.symbols if name not in graph.bounds}
        if free:
            raise OptionError(_unbounded([named.get(name, name) for name in sorted(free)]))
        return adapter.refusals(graphs)

    return ask


def _small(graphs: Sequence[Graph]) -> list[dict[str, str]]:
    work = [evaluate(graph.flops, dict.fromkeys(symbols_of(graph.flops), _TYPICAL_DIM)) for graph in graphs]
    total = sum(work)
    reason = "too little to compute for a GPU kernel of its own"
    return [
        {node.origin: reason for node in graph.nodes} if flops < _LEAST_SHARE * total else {}
        for graph, flops in zip(graphs, work, strict=True)
    ]


def _unbounded(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}': (1, N)" for name in names)
    return (
        f"AITemplate reserves memory for the largest shapes, so each dynamic dim needs an upper bound, and "
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} none; pass dims={{{listed}}} with your own numbers "
        "(--dim NAME=LOW:HIGH), or fix them"
    )
