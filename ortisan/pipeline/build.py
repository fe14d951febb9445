"""build: compile, generate, convert, verify and time, into one artifact folder."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ortisan.checks.bench import Bench, time_pair
from ortisan.checks.samples import Case, Sampler
from ortisan.checks.source_runs import SourceRuns
from ortisan.checks.verify import Inputs, Verification, compare_session, make_cases, read_inputs
from ortisan.codegen.ait.facts import describe_gpu
from ortisan.codegen.cpu.isa import why_not_run
from ortisan.codegen.cpu.tune.choose import MODES, Tune
from ortisan.codegen.tools.toolchain import has_gpu
from ortisan.converter.passes.kv_cache import Cache, with_cache
from ortisan.converter.read.load import load_model
from ortisan.converter.read.selection import Between, Selectors
from ortisan.converter.read.symbols import plain_dims
from ortisan.converter.save import save_with_external_data
from ortisan.errors import ArtifactError, OptionError, UnsupportedError
from ortisan.pipeline.compilation import Compilation, Options, Precision, Target
from ortisan.pipeline.compile import Model, compile_with, give_back, substitute_ops
from ortisan.pipeline.generate import Progress, build_sources, render_sources
from ortisan.pipeline.give_back import CLEARLY, find_slower, slower_reason
from ortisan.pipeline.manifest import describe_compilation, reasons_in_short, rounded_floats
from ortisan.pipeline.source import describe_source
from ortisan.runtime.artifact import Artifact, open_artifact, open_compiled
from ortisan.runtime.engine import onnxruntime, quiet_options
from ortisan.runtime.folder import check_replaceable, staged_folder, write_files
from ortisan.runtime.manifest import MANIFEST, add_hashes, file_sizes, folder_hash, write_manifest
from ortisan.runtime.providers import providers_for, why_no_cuda
from ortisan.runtime.settings import AUTO, Weights, check_weights

Keep: TypeAlias = Literal["faster", "all"]
Say: TypeAlias = "Callable[[str], None]"


def build(
    model: Model,
    folder: str | os.PathLike[str],
    *,
    target: str = "cpu",
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    include: Selectors = None,
    exclude: Selectors = None,
    between: Between = None,
    whole_graph: bool = False,
    cache: Cache = "as-is",
    name: str | None = None,
    tune: Tune = "auto",
    keep: Keep = "faster",
    weights: Weights = AUTO,
    verify: bool = True,
    inputs: Inputs = None,
    sources_only: bool = False,
    precision: Precision = "keep",
    fast_math: bool = False,
    tf32: bool = False,
    on_progress: Progress = None,
) -> Artifact:
    """Compiles a model into an artifact folder that stock ONNX Runtime runs. Keywords as in `compile`, and:

    `keep="faster"` gives subgraphs that are slower than ONNX Runtime back to it, `keep="all"` does not. `weights` is
    what `load` takes when it is not told: "auto", "mapped" or "huge". `verify=False` skips the comparison with ONNX
    Runtime. `inputs` are the inputs to verify and time with, when samples won't do: a mapping, several, or an .npz
    file. `sources_only=True` writes the sources and the converted model and builds nothing. When anything fails,
    `folder` is as it was before.
    """
    place = Path(folder)
    check_replaceable(place)
    if isinstance(model, (str, os.PathLike)) and Path(model).resolve().is_relative_to(place.resolve()):
        raise OptionError(
            f"the model '{os.fspath(model)}' lies inside '{place}', which would be replaced; name another folder"
        )
    if keep not in ("faster", "all"):
        raise OptionError(f"keep must be 'faster' or 'all', not {keep!r}")
    check_weights(weights)
    tune = "off" if sources_only and tune in MODES else tune
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
    if options.target.is_gpu and weights != AUTO:
        raise OptionError(f"weights={weights!r} is for CPU targets; a GPU's weights are in its own memory")
    say = on_progress or (lambda _: None)
    if not sources_only:
        onnxruntime()
    obstacle = "only the sources were written" if sources_only else _obstacle(options.target)
    like = with_cache(model, cache)
    run = obstacle is None
    with SourceRuns(like, verify=verify and run, time=run, providers=providers_for(str(options.target))) as source:
        compiled = compile_with(model, options, on_progress, before_timing=source.settle)
        if not compiled.ops:
            why = reasons_in_short(compiled.left_out)
            raise UnsupportedError(f"nothing in '{compiled.name}' can be compiled:\n{why}")
        job = _Job(model, like, options.dims, inputs, keep, weights, verify, sources_only, obstacle, source, say)
        with staged_folder(place) as staged:
            manifest, verification, bench = _fill(staged, compiled, job)
            write_manifest(staged, manifest)
    return replace(open_artifact(place), verification=verification, bench=bench)


def build_at_once(
    model: Model,
    folder: str | os.PathLike[str],
    options: Options,
    *,
    weights: Weights = AUTO,
    on_progress: Progress = None,
) -> Artifact:
    """Compiles a model into an artifact folder for use on this machine, at once: nothing is verified and nothing timed.

    When nothing of it can be compiled, the artifact is the model itself, for ONNX Runtime alone.
    """
    place = Path(folder)
    check_weights(weights)
    onnxruntime()
    compiled = compile_with(model, options, on_progress)
    with SourceRuns(model, verify=False, time=False) as source, staged_folder(place) as staged:
        say = on_progress or (lambda _: None)
        job = _Job(model, model, options.dims, None, "all", weights, False, False, None, source, say)
        written, _ = _write_and_verify(staged, compiled, job)
        unknown: dict[str, Any] = {"given_back": [], "verification": None, "bench": None}
        write_manifest(staged, written.manifest | unknown)
    return open_artifact(place)


@dataclass(frozen=True, eq=False)
class _Job:
    """What the steps of a build share."""

    given: Model
    model: Model
    """The one given, or with its cache in place: what is verified against."""
    dims: Mapping[str, int | tuple[int, int]]
    inputs: Inputs
    keep: Keep
    weights: Weights
    verify: bool
    sources_only: bool
    obstacle: str | None
    """Why what is built can't be run here."""
    source: SourceRuns
    say: Say

    @functools.cached_property
    def sampler(self) -> Sampler | None:
        return Sampler(self.model, self.dims) if self.inputs is None else None

    def cases(self) -> Iterable[Iterable[Case]]:
        return self.sampler.cases() if self.sampler is not None else make_cases(self.model, self.inputs, self.dims)

    def timed_cases(self) -> Iterable[Case]:
        if self.sampler is not None:
            return self.sampler.timed()
        return [Case("given inputs", feeds) for feeds in read_inputs(self.inputs)[:1]]


def _obstacle(target: Target) -> str | None:
    """Why what is built can't run on this machine."""
    if target.isa is not None:
        return why_not_run(target.isa)
    if not target.is_gpu:
        return None
    return why_no_cuda() if has_gpu() else "this machine has no GPU"


@dataclass(frozen=True, eq=False)
class _Staged:
    """What has been written, all but the final manifest, and its session, opened once."""

    folder: Path
    manifest: dict[str, Any]

    @functools.cached_property
    def session(self) -> Any:
        write_manifest(self.folder, self.manifest)
        return open_compiled(open_artifact(self.folder), quiet_options())


_Filled: TypeAlias = "tuple[dict[str, Any], Verification | None, Bench | None]"


def _fill(staged: Path, compiled: Compilation, job: _Job) -> _Filled:
    """Writes everything but the manifest, and returns that."""
    if job.verify and job.obstacle is None:
        job.source.begin_runs(job.cases())
    written, verification = _write_and_verify(staged, compiled, job)
    if job.obstacle is not None:
        return written.manifest | {"verification": None, "bench": None, "not_run": job.obstacle}, None, None
    given_back: list[str] = []
    bench = None
    while job.keep == "faster" and compiled.ops:
        reasons, bench = _find_slower(written, compiled, job, first=not given_back)
        if not reasons:
            break
        given_back += [f"{compiled.ops[index]}: {reason}" for index, reason in reasons.items()]
        compiled, bench = give_back(compiled, reasons), None
        _clear(staged)
        written, verification = _write_and_verify(staged, compiled, job)
    if bench is None and compiled.ops:
        # Without ONNX Runtime's own run there is nothing to time against, which matters only when that was asked for.
        try:
            bench = _bench(written, job)
        except (OptionError, ArtifactError):
            if job.keep == "faster" or job.verify:
                raise
    measured = {
        "given_back": given_back,
        "verification": verification.to_json() if verification else None,
        "bench": bench.to_json() if bench else None,
    }
    return written.manifest | measured, verification, bench


def _write_and_verify(staged: Path, compiled: Compilation, job: _Job) -> tuple[_Staged, Verification | None]:
    """Files are hashed while their model is verified."""
    written = _Staged(staged, _write(staged, compiled, job))
    hashed = job.source.beside(lambda: add_hashes(staged, written.manifest["files"]))
    verification = None
    if job.verify and job.obstacle is None and compiled.ops:
        job.say("verifying against ONNX Runtime")
        verification = compare_session(written.session, job.source.expected(), rounded_floats(compiled)).check()
    written.manifest["files"] = hashed.result()
    return written, verification


def _write(staged: Path, compiled: Compilation, job: _Job) -> dict[str, Any]:
    """Writes the model, the library and the sources. Without any op left, the model is the caller's own."""
    name = compiled.name
    library, compiler = None, None
    if compiled.ops:
        library = f"lib{name}.so"
        if job.sources_only:
            sources = render_sources(compiled)
        else:
            sources, built = build_sources(compiled, on_progress=job.say)
            compiler = built.compiler
            write_files(staged, {library: built.library.read_bytes()})
        write_files(staged / "src", sources)
    job.say("writing the model")
    save_with_external_data(substitute_ops(compiled) if compiled.ops else load_model(job.model), staged, name)
    names = sorted(file.name for file in staged.iterdir() if file.is_file() and file.name != MANIFEST)
    written = {
        "model": f"{name}.onnx",
        "library": library,
        "source": describe_source(job.given),
        "files": file_sizes(staged, names),
        "sources_sha256": folder_hash(staged / "src") if compiled.ops else None,
        "compiler": compiler,
        "weights": job.weights,
        "onnxruntime": None if job.sources_only else onnxruntime().__version__,
    }
    return describe_compilation(compiled) | written | describe_gpu(compiled, built=not job.sources_only)


def _clear(staged: Path) -> None:
    for item in list(staged.iterdir()):
        if item.is_dir():
            shutil.rmtree(item)
        else:
            item.unlink()


def _bench(written: _Staged, job: _Job) -> Bench:
    job.say("timing against ONNX Runtime")
    shared = written.manifest["shared"]
    return time_pair(written.session, job.source.stock(), job.timed_cases(), limit=CLEARLY, shared=shared)


def _find_slower(
    written: _Staged, compiled: Compilation, job: _Job, *, first: bool
) -> tuple[dict[int, str], Bench | None]:
    """Subgraphs to give back, and the timing of the whole model when that decided.

    Several subgraphs are timed one by one, once; what remains has to be faster as a whole, because a cut has its price.
    """
    if len(compiled.ops) > 1 and first:
        job.say("timing each subgraph against ONNX Runtime")
        job.source.stock()  # nothing may run beside what is timed, and it might still be opened
        library = written.folder / written.manifest["library"]
        reasons = find_slower(compiled, library, job.timed_cases(), job.weights)
        if reasons:
            return reasons, None
    bench = _bench(written, job)
    reason = slower_reason(bench.compiled.median, bench.ort.median)
    return (dict.fromkeys(range(len(compiled.ops)), reason) if reason else {}), bench
