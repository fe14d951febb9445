"""build: compile, generate, convert, verify and time, into one artifact folder.

write -> verify -> time -> done
  ^                 |
  +--- give back ---+    what is slower than ONNX Runtime, as long as there is such (keep="faster")
"""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ortisan.checks.bench import Bench, time_pair
from ortisan.checks.inputs import Cases, Inputs
from ortisan.checks.source_runs import SourceRuns
from ortisan.checks.verify import Verification, compare_session
from ortisan.codegen.backend import Say
from ortisan.converter.save import save_with_external_data
from ortisan.errors import ArtifactError, OptionError, UnsupportedError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import Progress, compile_source
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.generate import build_sources, render_sources
from ortisan.pipeline.give_back import CLEARLY, find_slower, slower_reason
from ortisan.pipeline.manifest import (
    Measured,
    Written,
    describe_artifact,
    reasons_in_short,
    rounded_floats,
    shared_values,
)
from ortisan.pipeline.options import Options, make_options, takes_options
from ortisan.pipeline.source import Model, Source
from ortisan.runtime.artifact import Artifact, open_artifact, open_compiled
from ortisan.runtime.engine import onnxruntime, quiet_options
from ortisan.runtime.folder import check_replaceable, staged_folder, write_files
from ortisan.runtime.manifest import MANIFEST, add_hashes, file_sizes, folder_hash, write_manifest
from ortisan.runtime.providers import why_not_provided

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ortisan.pipeline.options import Keywords


@takes_options
def build(
    model: Model,
    folder: str | os.PathLike[str],
    *,
    inputs: Inputs = None,
    on_progress: Progress = None,
    **options: Unpack[Keywords],
) -> Artifact:
    """Compiles a model into an artifact folder that stock ONNX Runtime runs. Options as in `compile`, and:

    `keep="faster"` gives subgraphs that are slower than ONNX Runtime back to it, `keep="all"` does not. `weights` is
    what `load` takes when it is not told: "auto", "mapped" or "huge". `verify=False` skips the comparison with ONNX
    Runtime. `inputs` are the inputs to verify and time with, when samples won't do: a mapping, several, or an .npz
    file. `sources_only=True` writes the sources and the converted model and builds nothing. When anything fails,
    `folder` is as it was before.
    """
    return build_with(model, folder, make_options(options), inputs=inputs, on_progress=on_progress)


def build_with(
    model: Model,
    folder: str | os.PathLike[str],
    options: Options,
    *,
    inputs: Inputs = None,
    on_progress: Progress = None,
) -> Artifact:
    """`build`, with options that are made already."""
    place = Path(folder)
    check_replaceable(place)
    if isinstance(model, (str, os.PathLike)) and Path(model).resolve().is_relative_to(place.resolve()):
        raise OptionError(
            f"the model '{os.fspath(model)}' lies inside '{place}', which would be replaced; name another folder"
        )
    if options.sources_only:
        options = replace(options, tune="off")
    else:
        onnxruntime()
    say = on_progress or (lambda _: None)
    say("reading the model")
    with Source(model, options.cache) as source:
        obstacle = _obstacle(options)
        return _build(source, place, options, run=obstacle is None, obstacle=obstacle, inputs=inputs, on_progress=say)


def build_at_once(
    model: Model, folder: str | os.PathLike[str], options: Options, *, on_progress: Progress = None
) -> Artifact:
    """Compiles a model into an artifact folder for use on this machine, at once: nothing is verified and nothing timed.

    When nothing of it can be compiled, the artifact is the model itself, for ONNX Runtime alone.
    """
    onnxruntime()
    chosen = replace(options, keep="all", verify=False)
    with Source(model, chosen.cache) as source:
        return _build(source, Path(folder), chosen, run=False, may_be_empty=True, on_progress=on_progress)


def _build(
    source: Source,
    place: Path,
    options: Options,
    *,
    run: bool,
    obstacle: str | None = None,
    may_be_empty: bool = False,
    inputs: Inputs = None,
    on_progress: Progress = None,
) -> Artifact:
    """Without `run` nothing is verified and timed; `obstacle` is why, if that is worth telling."""
    say = on_progress or (lambda _: None)
    verify, file = options.verify and run, source.file if run else Path()
    providers = options.backend.providers
    with SourceRuns(file, source.label, verify=verify, time=run, providers=providers) as runs:
        compiled = compile_source(source, options, on_progress, before_timing=runs.settle)
        if not compiled.ops and not may_be_empty:
            why = reasons_in_short(compiled.left_out)
            raise UnsupportedError(f"nothing in '{compiled.name}' can be compiled:\n{why}")
        job = _Job(source, options, Cases(inputs, lambda: source.sampler(options.bounds)), runs, say)
        with staged_folder(place) as staged:
            draft, found = _write(staged, compiled, job), Measured(not_run=obstacle)
            if run:
                draft, found = _measure(draft, job)
            write_manifest(staged, describe_artifact(draft.compiled, draft.written(), found))
    return replace(open_artifact(place), verification=found.verification, bench=found.bench)


def _obstacle(options: Options) -> str | None:
    """Why what is built can't run on this machine."""
    if options.sources_only:
        return "only the sources were written"
    return options.backend.obstacle() or why_not_provided(options.backend.providers)


@dataclass(frozen=True, eq=False)
class _Job:
    """What the steps of a build share."""

    source: Source
    options: Options
    cases: Cases
    runs: SourceRuns
    say: Say


@dataclass(frozen=True, eq=False)
class _Draft:
    """What lies in the staged folder, all but the final manifest, and a session of it, opened once."""

    folder: Path
    compiled: Compilation
    facts: Written
    hashes: Any
    """A future: the files are hashed while their model is verified."""

    def written(self) -> Written:
        files, described = self.hashes.result()
        return replace(self.facts, files=files, source=described)

    @functools.cached_property
    def session(self) -> Any:
        write_manifest(self.folder, describe_artifact(self.compiled, self.facts))
        return open_compiled(open_artifact(self.folder), quiet_options())

    @property
    def library(self) -> Path:
        return self.folder / (self.facts.library or "")


def _measure(draft: _Draft, job: _Job) -> tuple[_Draft, Measured]:
    """Verifies and times; what is slower is given back and the rest written, verified and timed again."""
    options = job.options
    if options.verify:
        job.runs.begin_runs(job.cases.compared())
    verification = _verify(draft, job)
    given_back: list[str] = []
    bench = None
    while options.keep == "faster" and draft.compiled.ops:
        reasons, bench = _find_slower(draft, job, first=not given_back)
        if not reasons:
            break
        given_back += [f"{draft.compiled.ops[index]}: {reason}" for index, reason in reasons.items()]
        bench = None
        _clear(draft.folder)
        draft = _write(draft.folder, draft.compiled.without(reasons), job)
        verification = _verify(draft, job)
    if bench is None and draft.compiled.ops:
        # Without ONNX Runtime's own run there is nothing to time against, which matters only when that was asked for.
        try:
            bench = _bench(draft, job)
        except (OptionError, ArtifactError):
            if options.keep == "faster" or options.verify:
                raise
    return draft, Measured(given_back, verification, bench)


def _write(staged: Path, compiled: Compilation, job: _Job) -> _Draft:
    """Writes the model, the library and the sources. Without any op left, the model is the caller's own."""
    name, options = compiled.name, job.options
    library, compiler = None, None
    if compiled.ops:
        library = f"lib{name}.so"
        sources = render_sources(compiled)
        if not options.sources_only:
            built = build_sources(compiled, sources, on_progress=job.say)
            compiler = built.compiler
            write_files(staged, {library: built.library.read_bytes()})
        write_files(staged / "src", sources)
    job.say("writing the model")
    save_with_external_data(substitute_ops(compiled) if compiled.ops else job.source.original(), staged, name)
    files = file_sizes(staged, sorted(f.name for f in staged.iterdir() if f.is_file() and f.name != MANIFEST))
    facts = Written(
        model=f"{name}.onnx",
        library=library,
        source={},
        files=files,
        sources_sha256=folder_hash(staged / "src") if compiled.ops else None,
        compiler=compiler,
        onnxruntime=None if options.sources_only else onnxruntime().__version__,
    )
    hashes = job.runs.beside(lambda: (add_hashes(staged, files), job.source.describe()))
    return _Draft(staged, compiled, facts, hashes)


def _clear(staged: Path) -> None:
    for item in list(staged.iterdir()):
        if item.is_dir():
            shutil.rmtree(item)
        else:
            item.unlink()


def _verify(draft: _Draft, job: _Job) -> Verification | None:
    verification = None
    if job.options.verify and draft.compiled.ops:
        job.say("verifying against ONNX Runtime")
        verification = compare_session(draft.session, job.runs.expected(), rounded_floats(draft.compiled)).check()
    draft.hashes.result()  # the folder may be cleared next
    return verification


def _bench(draft: _Draft, job: _Job) -> Bench:
    job.say("timing against ONNX Runtime")
    shared = shared_values(draft.compiled)
    return time_pair(draft.session, job.runs.stock(), job.cases.timed(), limit=CLEARLY, shared=shared)


def _find_slower(draft: _Draft, job: _Job, *, first: bool) -> tuple[dict[int, str], Bench | None]:
    """Subgraphs to give back, and the timing of the whole model when that decided.

    Several subgraphs are timed one by one, once; what remains has to be faster as a whole, because a cut has its price.
    """
    compiled = draft.compiled
    if len(compiled.ops) > 1 and first:
        job.say("timing each subgraph against ONNX Runtime")
        job.runs.stock()  # nothing may run beside what is timed, and it might still be opened
        reasons = find_slower(compiled, draft.library, job.cases.timed())
        if reasons:
            return reasons, None
    bench = _bench(draft, job)
    reason = slower_reason(bench.compiled.median, bench.ort.median)
    return (dict.fromkeys(range(len(compiled.ops)), reason) if reason else {}), bench
