"""compile: a model down to the plans of its subgraphs. Each step runs once, in the order of `compile_source`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

from ortisan.codegen.backend import Planner, Request
from ortisan.converter.partition import Partition, partition
from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.read.selection import is_left_out, mark_selection
from ortisan.errors import UnsupportedError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.options import Options, make_options, takes_options
from ortisan.pipeline.source import Model, Source
from ortisan.pipeline.unforeseen import raises_ortisan_errors
from ortisan.registry.snippets import DOMAIN as SNIPPETS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ortisan.pipeline.options import Keywords

Progress: TypeAlias = "Callable[[str], None] | None"

_MAX_NAME = 40


@takes_options
@raises_ortisan_errors
def compile(model: Model, *, on_progress: Progress = None, **options: Unpack[Keywords]) -> Compilation:
    """Lowers a model, whole or in part, to op graphs and plans their kernels. Nothing is built yet.

    `dims` fixes ({"batch": 1}) or bounds ({"seq": (1, 512)}) symbolic dims; {"width": "free"} lets inputs differ in
    dims of that name. `include` and `exclude` take node names, op types, "layer_ann:PREFIX" for annotated layers, or
    predicates; `between` takes names of values (inputs, outputs).
    `whole_graph=True` compiles everything or raises an error that names each node that can't be compiled.

    `cache="in-place"` makes past and present of a decoder one buffer, so that a step writes its new positions and
    copies nothing; see docs/decoders.md.

    `tune` chooses the blocking of matrix products, which changes their speed and never a result: "off", the default
    here, is a cost model, which needs nothing; "auto" times a few candidates on this machine, once for each shape, and
    caches which was best; "full" times many, which takes minutes. `build` takes "auto".

    `winograd=False` computes no convolution by Winograd's algorithm, which multiplies less and rounds more; see
    docs/numerics.md.

    `patterns=False` compiles ops as they were written, without fusing patterns.

    For a GPU (`target="cuda:80"`), `precision="fp16"` computes float32 in float16 between float32 inputs and outputs,
    `tf32=True` lets products round their operands to TF32 and `fast_math=True` lets functions be approximate; see
    docs/gpu.md.
    """
    chosen = make_options({"tune": "off", **options}, of="compile")
    return compile_source(Source.of(model, chosen), chosen, on_progress)


def compile_source(
    source: Source,
    options: Options,
    on_progress: Progress = None,
    *,
    tuning: Mapping[str, Any] | None = None,
    before_timing: Callable[[], None] | None = None,
) -> Compilation:
    """With `tuning`, the choices of a manifest are taken again. `before_timing` is called when tuning has to time
    something, and returns when the machine is its own.
    """
    say = on_progress or (lambda _: None)
    say("finding shapes and patterns")
    canonical = _canonical(source, options)
    name = clean_name(options.name or source.name)
    asked = options.include is not None or options.between is not None
    planner = options.backend.planner(Request(options, say, _named(canonical), asked))
    say("choosing what to compile")
    parts = _partition(canonical, options, planner, name, asked)
    plans = planner.plan([sub.graph for sub in parts.subgraphs], given=tuning, before_timing=before_timing)
    return Compilation(
        name,
        tuple(f"{name}_{index}" for index in range(len(parts.subgraphs))),
        tuple(plans),
        parts,
        canonical.model,
        options,
        source.hash,
        canonical.near_misses,
        {**canonical.counts, "inline functions": source.inlined},
        canonical.symbols,
    )


def _canonical(source: Source, options: Options) -> Canonical:
    model = source.copy()
    mark_selection(model, options.include, options.exclude, options.between)
    return canonicalize(model, dims=options.bounds, frozen=is_left_out if options.patterns else lambda node: True)


def _partition(canonical: Canonical, options: Options, planner: Planner, name: str, asked: bool) -> Partition:
    clean = {original: symbol for symbol, original in canonical.symbols.items()}
    bounds = {clean.get(key, key): bound for key, bound in options.bounds.items() if isinstance(bound, tuple)}
    parts = partition(
        canonical.model,
        name=name,
        whole_graph=options.whole_graph,
        keep_trivial=asked,
        bounds=bounds,
        objections=planner.objections,
    )
    _check_snippets(canonical.model, parts)
    arranged = (replace(subgraph, graph=planner.arrange(subgraph.graph)) for subgraph in parts.subgraphs)
    parts = replace(parts, subgraphs=tuple(arranged))
    if asked and not parts.subgraphs:
        reasons = sorted({f"{left.op_type} '{left.node}': {left.reason}" for left in parts.left_out})
        raise UnsupportedError("nothing that was asked for can be compiled:\n  " + "\n  ".join(reasons[:20]))
    return parts


def _check_snippets(model: ir.Model, parts: Partition) -> None:
    """C++ that a caller brought along runs nowhere else."""
    left = {left.node: left.reason for left in parts.left_out}
    for node in model.graph.all_nodes():
        if node.domain == SNIPPETS and (node.name or "") in left:
            raise UnsupportedError(
                f"'{node.name}' is C++ that ONNX Runtime can't run, and it can't be compiled: {left[node.name or '']}; "
                "give its op an ONNX function in its place"
            )


def _named(canonical: Canonical) -> dict[str, str]:
    """The symbols that dims of the model's inputs are made of, and what the model calls them."""
    dims = [dim for value in canonical.model.graph.inputs for dim in value.shape or ()]
    names = {name for dim in dims if isinstance(dim, ir.SymbolicDim) and dim.value for name in dim.free_symbols()}
    return {name: canonical.symbols.get(name, name) for name in sorted(names)}


def clean_name(text: str) -> str:
    """An identifier: what libraries, ops and files are called."""
    cleaned = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_MAX_NAME].strip("_")
    return cleaned if cleaned and cleaned[0].isalpha() else f"model_{cleaned}".strip("_")
