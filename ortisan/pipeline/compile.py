"""compile, generate, convert_graph: the three steps, and nothing but the wiring between the layers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from ortisan._version import __version__
from ortisan.codegen.ait.adapter import Adapter
from ortisan.codegen.ait.backend import objections, open_adapter
from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.cpu.backend import plan_graphs
from ortisan.codegen.cpu.kernel import Weight
from ortisan.codegen.cpu.missing import without_kernels
from ortisan.codegen.cpu.packing import pack
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.tune.choose import Tune, Tuning
from ortisan.converter.partition import LeftOut, Objections, Partition, Subgraph, partition
from ortisan.converter.passes import cleanup
from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.passes.kv_cache import Cache, with_cache
from ortisan.converter.read.load import load_model, model_hash
from ortisan.converter.read.selection import Between, Selectors, is_left_out, mark_selection
from ortisan.converter.read.symbols import plain_dims
from ortisan.converter.save import own_external_tensors
from ortisan.converter.substitute import Replacement, substitute
from ortisan.errors import ArtifactError, OptionError, UnsupportedError
from ortisan.pipeline.compilation import Compilation, Options, Precision, Target
from ortisan.pipeline.generate import Progress, build_sources, render_sources
from ortisan.registry.snippets import DOMAIN as SNIPPETS
from ortisan.runtime.folder import staged_folder, write_files

Model: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model"

_MAX_NAME = 40
_MAX_PROTOBUF_BYTES = 2**31 - 1


@dataclass(frozen=True)
class CustomOpLibrary:
    """A built library: `path` is the shared library to register in ONNX Runtime's session options."""

    path: Path | None
    """None when only the sources were written."""
    domain: str
    ops: tuple[str, ...]
    sources: Path
    binding: Path | None
    compiler: str
    seconds: float
    cached: bool


def compile(
    model: Model,
    *,
    target: str = "cpu",
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    include: Selectors = None,
    exclude: Selectors = None,
    between: Between = None,
    whole_graph: bool = False,
    cache: Cache = "as-is",
    name: str | None = None,
    tune: Tune = "off",
    precision: Precision = "keep",
    fast_math: bool = False,
    tf32: bool = False,
    on_progress: Progress = None,
) -> Compilation:
    """Lowers a model, whole or in part, to op graphs and plans their kernels. Nothing is built yet.

    `dims` fixes ({"batch": 1}) or bounds ({"seq": (1, 512)}) symbolic dims. `include` and `exclude` take node names, op
    types, "layer_ann:PREFIX" for annotated layers, or predicates; `between` takes names of values (inputs, outputs).
    `whole_graph=True` compiles everything or raises an error that names each node that can't be compiled.

    `cache="in-place"` makes past and present of a decoder one buffer, so that a step writes its new positions and
    copies nothing; see docs/decoders.md.

    `tune` says who chooses the blocking of matrix products, which changes their speed and never a result: "off"
    is a cost model, which needs nothing; "auto" times a few candidates on this machine, once for each size, and
    remembers which was best; "full" times many, which takes minutes. `build` takes "auto".

    For a GPU (`target="cuda:80"`), `precision="fp16"` computes float32 in float16 between float32 inputs and outputs,
    `tf32=True` lets products round their operands to TF32 and `fast_math=True` lets functions be approximate; see
    docs/gpu.md.
    """
    options = Options(
        Target.parse(target),
        plain_dims(dims),
        include,
        exclude,
        between,
        whole_graph,
        name,
        tune,
        cache,
        precision,
        fast_math,
        tf32,
    )
    return compile_with(model, options, on_progress)


def compile_with(
    model: Model,
    options: Options,
    on_progress: Progress = None,
    *,
    tuning: Tuning | None = None,
    before_timing: Callable[[], None] | None = None,
) -> Compilation:
    """With `tuning`, the blockings that were chosen before are taken again. `before_timing` is called when tuning has
    to time something, and returns when the machine is its own.
    """
    say = on_progress or (lambda _: None)
    say("reading the model")
    loaded = load_model(with_cache(model, options.cache))
    digest = model_hash(loaded)
    cleanup.inline_functions(loaded)
    mark_selection(loaded, options.include, options.exclude, options.between)
    say("finding shapes and patterns")
    frozen = is_left_out if options.patterns else _always
    canonical = canonicalize(loaded, dims=options.dims, frozen=frozen)
    name = clean_name(options.name or _default_name(model, loaded))
    clean = {original: symbol for symbol, original in canonical.symbols.items()}
    bounds = {clean.get(key, key): bound for key, bound in options.dims.items() if isinstance(bound, tuple)}
    say("choosing what to compile")
    asked = options.include is not None or options.between is not None
    adapter = open_adapter(options, say) if options.target.is_gpu else None
    parts = partition(
        canonical.model,
        name=name,
        whole_graph=options.whole_graph,
        keep_trivial=asked,
        bounds=bounds,
        objections=_objections(options, adapter, _named(canonical), keep_small=asked),
    )
    _check_snippets(canonical.model, parts)
    if asked and not parts.subgraphs:
        reasons = sorted({f"{left.op_type} '{left.node}': {left.reason}" for left in parts.left_out})
        raise UnsupportedError("nothing that was asked for can be compiled:\n  " + "\n  ".join(reasons[:20]))
    plans, tuning = plan_graphs(
        [sub.graph for sub in parts.subgraphs],
        options,
        say,
        given=tuning,
        adapter=adapter,
        before_timing=before_timing,
    )
    domain = f"ortisan.{name}_{_hash8(digest, options, parts.subgraphs, plans, tuning)}"
    return Compilation(
        name,
        options.target,
        domain,
        tuple(f"{name}_{index}" for index in range(len(parts.subgraphs))),
        plans,
        parts,
        canonical.model,
        options,
        digest,
        tuning,
        canonical.near_misses,
        canonical.counts,
        canonical.symbols,
    )


def _check_snippets(model: ir.Model, parts: Partition) -> None:
    """C++ that a caller brought along runs nowhere else."""
    left = {left.node: left.reason for left in parts.left_out}
    for node in model.graph.all_nodes():
        if node.domain == SNIPPETS and (node.graph is not model.graph or (node.name or "") in left):
            reason = left.get(node.name or "", "it is inside of control flow, which stays in ONNX Runtime")
            raise UnsupportedError(
                f"'{node.name}' is C++ that ONNX Runtime can't run, and it can't be compiled: {reason}; give its op an "
                "ONNX function in its place"
            )


def _objections(
    options: Options, adapter: Adapter | None, named: Mapping[str, str], *, keep_small: bool
) -> Objections | None:
    """What the target has to say about subgraphs; the numpy reference takes all."""
    if adapter is not None:
        return objections(adapter, named, keep_small=keep_small)
    return without_kernels if options.target.kind == "cpu" else None


def _named(canonical: Canonical) -> dict[str, str]:
    """The symbols that dims of the model's inputs are made of, and what the model calls them."""
    dims = [dim for value in canonical.model.graph.inputs for dim in value.shape or ()]
    names = {name for dim in dims if isinstance(dim, ir.SymbolicDim) and dim.value for name in dim.free_symbols()}
    return {name: canonical.symbols.get(name, name) for name in sorted(names)}


def _always(_: ir.Node) -> bool:
    return True


def give_back(compiled: Compilation, reasons: Mapping[int, str]) -> Compilation:
    """The compilation without some of its subgraphs (index -> reason): their nodes stay in ONNX Runtime."""
    parts = compiled.partition
    kept = [index for index in range(len(parts.subgraphs)) if index not in reasons]
    returned = tuple(
        LeftOut(node.name or "", node.op_type, reason)
        for index, reason in reasons.items()
        for node in parts.subgraphs[index].nodes
    )
    subgraphs = tuple(parts.subgraphs[index] for index in kept)
    plans = tuple(compiled.plans[index] for index in kept)
    digits = _hash8(compiled.model_hash, compiled.options, subgraphs, plans, compiled.tuning)
    return replace(
        compiled,
        domain=f"ortisan.{compiled.name}_{digits}",
        ops=tuple(compiled.ops[index] for index in kept),
        plans=plans,
        partition=Partition(subgraphs, (*parts.left_out, *returned)),
    )


def clean_name(text: str) -> str:
    """An identifier: what libraries, ops and files are called."""
    cleaned = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_MAX_NAME].strip("_")
    return cleaned if cleaned and cleaned[0].isalpha() else f"model_{cleaned}".strip("_")


def _default_name(model: Model, loaded: ir.Model) -> str:
    if isinstance(model, (str, os.PathLike)):
        return Path(model).stem
    return loaded.graph.name or "model"


def _hash8(
    digest: str, options: Options, subgraphs: Sequence[Subgraph], plans: Sequence[GraphPlan | AitModel], tuning: Tuning
) -> str:
    """Eight digits that differ when the generated library does."""
    graphs = "\n".join(f"{sub.graph}\n{sub.graph.bounds}\n{sub.graph.guards}" for sub in subgraphs)
    blockings = "\n".join(_choices(plan, tuning) for plan in plans)
    text = f"{__version__}\n{digest}\n{options.target}\n{graphs}\n{blockings}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _choices(plan: GraphPlan | AitModel, tuning: Tuning) -> str:
    """What was chosen for a graph beyond what it says itself."""
    if isinstance(plan, AitModel):
        return hashlib.sha256(b"\0".join(name.encode() + data for name, data in plan.files.items())).hexdigest()
    return "\n".join(str(tuning.table(product)) for product in plan.products)


def generate(
    compiled: Compilation,
    folder: str | os.PathLike[str],
    *,
    bindings: bool = False,
    sources_only: bool = False,
    sanitize: str | None = None,
    on_progress: Progress = None,
) -> CustomOpLibrary:
    """Renders the sources into folder/src and builds the shared library into folder.

    `bindings=True` also builds a Python module that runs the graphs on numpy arrays without ONNX Runtime, for CPUs.
    """
    if not compiled.ops:
        raise UnsupportedError(f"'{compiled.name}' has no compiled subgraph, so there is nothing to generate")
    place = Path(folder)
    if sources_only:
        sources, built = render_sources(compiled), None
    else:
        sources, built = build_sources(compiled, bindings=bindings, sanitize=sanitize, on_progress=on_progress)
    with staged_folder(place) as staged:
        write_files(staged / "src", sources)
        for file in (built.library, built.binding) if built else ():
            if file is not None:
                write_files(staged, {file.name: file.read_bytes()})
    return CustomOpLibrary(
        place / built.library.name if built else None,
        compiled.domain,
        compiled.ops,
        place / "src",
        place / built.binding.name if built and built.binding else None,
        built.compiler if built else "",
        built.seconds if built else 0.0,
        built.cached if built else False,
    )


def convert_graph(model: Model, compiled: Compilation) -> onnx.ModelProto:
    """The model with its compiled subgraphs replaced by custom ops; weights come from `model`."""
    again = compile_with(model, compiled.options, tuning=compiled.tuning)
    if render_sources(again) != render_sources(compiled):
        raise OptionError(f"the model is not the one that '{compiled.name}' was compiled from")
    converted = substitute_ops(again)
    tensors = [value.const_value for value in converted.graph.initializers.values() if value.const_value]
    if sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING) > _MAX_PROTOBUF_BYTES:
        raise ArtifactError("the converted model is larger than 2 GB, which protobuf can't hold; use ortisan.build")
    own_external_tensors(converted)
    return ir.to_proto(converted)


def _packed_weights(plan: GraphPlan | AitModel) -> list[tuple[str, ir.TensorProtocol]]:
    """The weights by name, each packed when it is read: a model is written without holding all of it at once."""
    if isinstance(plan, AitModel):
        return [
            (f"{plan.graph.name}/{constant.name}", ir.tensor(np.ascontiguousarray(constant.data)))
            for constant in plan.constants
        ]
    rows = zip(plan.weight_names(), plan.weights, plan.packed_sizes(), strict=True)
    return [(name, _packed_weight(weight, size)) for name, weight, size in rows]


def _packed_weight(weight: Weight, size: int) -> ir.TensorProtocol:
    data, dtype = weight.value.data, weight.value.dtype
    if data is None:
        raise TypeError(f"'{weight.value.name}' is a weight without data")
    if weight.layout == "plain":
        return ir.tensor(pack(data, "plain"), dtype=ir.DataType(dtype.onnx))
    return ir.LazyTensor(
        lambda: ir.tensor(pack(data, weight.layout), dtype=ir.DataType(dtype.onnx)),
        dtype=ir.DataType(dtype.onnx),
        shape=ir.Shape([size // dtype.size]),
    )


def substitute_ops(compiled: Compilation) -> ir.Model:
    """The canonical model with custom ops in place of the subgraphs."""
    replacements = [
        Replacement(
            subgraph,
            compiled.domain,
            op,
            _packed_weights(plan),
            {
                "partition_name": op,
                "hardware_architecture": str(compiled.target),
                "source": f"ortisan {__version__}",
                "notes": f"{len(subgraph.nodes)} nodes",
            },
        )
        for subgraph, op, plan in zip(compiled.partition.subgraphs, compiled.ops, compiled.plans, strict=True)
    ]
    return substitute(compiled.model, replacements)
