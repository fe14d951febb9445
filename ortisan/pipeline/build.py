"""build: compile, generate, convert, verify and time, into one artifact folder.

write -> verify -> time -> done
  ^        |        |
  +-- give back ----+    what departs from ONNX Runtime, and what is slower (keep="faster")
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ortisan.checks.bench import Bench
from ortisan.checks.inputs import Cases, Inputs
from ortisan.checks.source_runs import SourceRuns
from ortisan.converter.read.symbols import FREE
from ortisan.errors import ArtifactError, OptionError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import Progress, compile_source
from ortisan.pipeline.draft import Draft, Job, write_again, write_draft, write_without
from ortisan.pipeline.emulate import Emulator, small_dims
from ortisan.pipeline.give_back import choose_faster, time_whole
from ortisan.pipeline.manifest import Measured, describe_artifact
from ortisan.pipeline.options import Options, make_options, takes_options
from ortisan.pipeline.pays import cannot_pay
from ortisan.pipeline.source import Model, Source
from ortisan.pipeline.unforeseen import raises_ortisan_errors
from ortisan.pipeline.verified import Verified, make_right
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.runtime.engine import onnxruntime
from ortisan.runtime.folder import check_replaceable, staged_folder
from ortisan.runtime.manifest import write_manifest
from ortisan.runtime.providers import why_not_provided

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ortisan.pipeline.options import Keywords


@takes_options
@raises_ortisan_errors
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
    Runtime; `verify="emulate"` compares a GPU target without a GPU: its kernels' PTX is executed on the CPU, at small
    sizes, and nothing is timed. `inputs` are the inputs to verify and time with, when samples won't do: a mapping,
    several, or an .npz file. `sources_only=True` writes the sources and the converted model and builds nothing. When
    anything fails, `folder` is as it was before.
    """
    return build_with(model, folder, make_options(options), inputs=inputs, on_progress=on_progress)


@raises_ortisan_errors
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
    with Source.of(model, options) as source:
        obstacle = _obstacle(options)
        return _build(source, place, options, run=obstacle is None, obstacle=obstacle, inputs=inputs, on_progress=say)


@raises_ortisan_errors
def build_at_once(
    model: Model, folder: str | os.PathLike[str], options: Options, *, on_progress: Progress = None
) -> Artifact:
    """Compiles a model into an artifact folder for use on this machine, at once: nothing is verified and nothing timed.

    When nothing of it can be compiled, the artifact is the model itself, for ONNX Runtime alone.
    """
    onnxruntime()
    chosen = replace(options, keep="all", verify=False)
    with Source.of(model, chosen) as source:
        return _build(source, Path(folder), chosen, run=False, on_progress=on_progress)


def _build(
    source: Source,
    place: Path,
    options: Options,
    *,
    run: bool,
    obstacle: str | None = None,
    inputs: Inputs = None,
    on_progress: Progress = None,
) -> Artifact:
    """Without `run` it is verified by emulation at most, and not timed; `obstacle` is why, if that is worth telling."""
    say = on_progress or (lambda _: None)
    emulated = options.verify == "emulate"
    verify, time = options.verify is not False and (run or emulated), run and not options.quick
    file, providers = source.file if run or verify else Path(), options.backend.providers
    with SourceRuns(
        file, source.label, verify=verify, time=time, providers=providers, threads=_thread_counts()
    ) as runs:
        cases = Cases(inputs, lambda: source.sampler(small_dims(options.bounds) if emulated else options.bounds))
        emulator = Emulator(options.backend, runs.runner, say) if emulated else None
        job = Job(source, options, cases, runs, say, emulator)
        compiled = _compile(job, run)
        if verify or (time and options.keep == "faster"):
            runs.check()
        with staged_folder(place) as staged:
            if verify and compiled.ops:
                runs.begin_runs(cases, first_only=options.quick)
            draft, found = write_draft(staged, compiled, job), Measured()
            if run or verify:
                draft, job = _freed(draft, job, run) if verify and compiled.ops else (draft, job)
                draft, found = _measure(draft, job, time=time)
            found = replace(found, not_run=obstacle)
            write_manifest(staged, describe_artifact(draft.compiled, draft.written(), found))
    return replace(open_artifact(place), verification=found.verification, benches=tuple(found.benches))


def _compile(job: Job, run: bool) -> Compilation:
    compiled = compile_source(job.source, job.options, job.say, before_timing=job.runs.settle)
    if run and job.options.keep == "faster" and not _is_asked(job.options):
        compiled = compiled.without(cannot_pay(compiled))
    return compiled


def _freed(draft: Draft, job: Job, run: bool) -> tuple[Draft, Job]:
    """The model compiled again, with dims free whose name is a mere label in inputs that ONNX Runtime ran."""
    labels = {name for case in job.runs.expected().cases for name in job.source.mere_labels(case.case.feeds)}
    originals = draft.compiled.symbols
    labels &= {originals.get(symbol, symbol) for graph in draft.compiled.graphs for symbol in graph.symbols}
    if not labels:
        return draft, job
    job = replace(job, options=replace(job.options, dims={**job.options.bounds, **dict.fromkeys(sorted(labels), FREE)}))
    return write_again(draft, _compile(job, run), job), job


def _is_asked(options: Options) -> bool:
    """Whether the caller said what to compile."""
    return options.whole_graph or options.include is not None or options.between is not None


def _thread_counts() -> tuple[int | None, ...]:
    """One thread, and as many as ONNX Runtime takes by itself."""
    return (1, None) if (os.cpu_count() or 1) > 1 else (None,)


def _obstacle(options: Options) -> str | None:
    """Why what is built can't run on this machine."""
    if options.sources_only:
        return "only the sources were written"
    obstacle = options.backend.obstacle() or why_not_provided(options.backend.providers)
    return obstacle or ("its kernels were emulated" if options.verify == "emulate" else None)


def _measure(draft: Draft, job: Job, *, time: bool) -> tuple[Draft, Measured]:
    """Verifies and maybe times; what departs or is slower is given back, the rest is written and verified again."""
    options = job.options
    seen = make_right(draft, job) if options.verify else Verified(draft)
    draft = seen.draft
    given_back: list[str] = []
    benches: tuple[Bench, ...] = ()
    if draft.compiled.ops and options.keep == "faster" and time:
        chosen = choose_faster(draft, job)
        benches = chosen.benches
        if chosen.reasons:
            given_back = [f"{draft.compiled.ops[index]}: {reason}" for index, reason in chosen.reasons.items()]
            draft = write_without(draft, chosen.reasons, job)
            again = make_right(draft, job) if options.verify else Verified(draft)
            seen = replace(again, left=(*seen.left, *again.left))
            draft = seen.draft
    elif draft.compiled.ops and time:
        benches = _bench(draft, job)
    draft.hashes.result()
    narrow = job.runs.expected().narrow if seen.verification is not None else None
    kept = benches if draft.compiled.ops else ()
    noisy = seen.noisy_node(job)
    return draft, Measured(given_back, seen.verification, kept, left=seen.left, narrow=narrow, noisy_node=noisy)


def _bench(draft: Draft, job: Job) -> tuple[Bench, ...]:
    """Timings for the record. Without ONNX Runtime's own run there is nothing to time against, which matters only when
    verification was asked for.
    """
    job.say("timing against ONNX Runtime")
    try:
        return tuple(time_whole(draft, job, job.runs.timed_cases(job.cases)[0]))
    except (OptionError, ArtifactError):
        if job.options.verify:
            raise
        return ()
