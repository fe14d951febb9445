"""keep="faster": what does not make the model faster goes back to ONNX Runtime.

What counts is the whole converted model against the whole source, in turns, with one thread and with all, at a typical
size and at sizes around it. Several subgraphs are first timed one by one, on what flows into them; those that lose are
left out before the whole is timed, because each cut has a price that only the whole shows. The search is bounded: every
subgraph once, four wholes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ortisan.checks.bench import Bench, time_pair
from ortisan.checks.samples import Case
from ortisan.checks.session import stock_session
from ortisan.checks.turns import Effort
from ortisan.converter.save import save_with_external_data
from ortisan.errors import OrtisanError
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.draft import Draft, Job
from ortisan.pipeline.manifest import shared_values
from ortisan.pipeline.parts import Parts
from ortisan.runtime.engine import RunFailed

SLOWER = "slower than ONNX Runtime"
CLEARLY = 1.05
"""Times ONNX Runtime's time from which a subgraph by itself counts as slower: below is noise."""
WORTH = 1.02
"""How many times as fast the whole has to be with some number of threads, to be worth a custom op."""
NO_LOSS = 0.985
"""How many times as fast the whole has to be with every number of threads: above is noise."""
_GAINS = 1.15
"""How many times as fast a subgraph by itself is that surely gains, when the whole does not."""
_ALL_PARTS_SECONDS = 8.0
_WHOLE_SECONDS = 1.5
_BESIDE_SECONDS = 0.8
"""How long two models are timed with one number of threads, at the typical size and at each of the others."""


@dataclass(frozen=True)
class Chosen:
    """Which subgraphs stay, why the others don't, and the timings of the whole model with those that stay."""

    reasons: dict[int, str]
    benches: tuple[Bench, ...] = ()


def choose_faster(draft: Draft, job: Job) -> Chosen:
    """Times what was compiled and says what to give back."""
    cases = job.runs.timed_cases(job.cases)
    job.runs.stock()  # nothing may run beside what is timed, and it might still be opened
    reasons: dict[int, str] = {}
    ratios: dict[int, float] = {}
    everything = range(len(draft.compiled.ops))
    if len(everything) > 1:
        job.say("timing each subgraph against ONNX Runtime")
        ratios = time_parts(draft, job, cases[0])
        reasons = {index: slower for index, ratio in ratios.items() if (slower := slower_reason(ratio))}
    tried: list[frozenset[int]] = []
    worst = ""
    for kept in _candidates(everything, reasons, ratios):
        if not kept or kept in tried:
            continue
        tried.append(kept)
        job.say("timing against ONNX Runtime")
        benches = _time_whole(draft, job, cases, kept)
        worst = verdict(benches)
        if not worst:
            rest = [index for index in everything if index not in kept]
            return Chosen({index: reasons.get(index, "the model is faster without it") for index in rest}, benches)
    return Chosen({index: reasons.get(index, worst or SLOWER) for index in everything})


def _candidates(
    everything: Collection[int], reasons: Collection[int], ratios: dict[int, float]
) -> Iterator[frozenset[int]]:
    """Sets of subgraphs to try, from many to few."""
    yield frozenset(index for index in everything if index not in reasons)
    yield frozenset(index for index in ratios if index not in reasons)
    yield frozenset(index for index, ratio in ratios.items() if ratio >= _GAINS)
    if ratios:
        yield frozenset([max(ratios, key=lambda index: ratios[index])])


def slower_reason(ratio: float) -> str | None:
    """Why a subgraph `ratio` times as fast as ONNX Runtime is given back; None when it is not clearly slower."""
    if ratio * CLEARLY >= 1:
        return None
    return f"{SLOWER}: {1 / ratio:.2f} times its time"


def verdict(benches: Sequence[Bench]) -> str:
    """Why a whole model is not kept; empty when it is faster at some size and number of threads, and slower at none."""
    speeds = [max(bench.ratio, bench.best_ratio) for bench in benches]
    least = min(range(len(speeds)), key=lambda index: speeds[index])
    if speeds[least] < NO_LOSS:
        return f"{SLOWER}: {1 / speeds[least]:.2f} times its time{_where(benches[least], benches)}"
    if max(speeds) < WORTH:
        return f"no faster than ONNX Runtime: {max(speeds):.2f} times its speed"
    return ""


def _where(bench: Bench, benches: Sequence[Bench]) -> str:
    """What sets a timing apart from the others."""
    threads = f" with {bench.threads} thread{'s' if bench.threads > 1 else ''}" if bench.threads is not None else ""
    return threads + (f" at {bench.case}" if len({each.case for each in benches}) > 1 else "")


def time_parts(draft: Draft, job: Job, case: Case) -> dict[int, float]:
    """Index of a subgraph -> how many times as fast as ONNX Runtime it is by itself, where that can be timed."""
    compiled, runner = draft.compiled, job.runs.runner
    seconds = min(0.6, _ALL_PARTS_SECONDS / len(compiled.ops))
    effort = Effort(seconds, limit=CLEARLY, clear=seconds / 3, fewest=3, fewest_clear=3)
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="ortisan-timing-") as folder:
        parts = Parts(compiled, draft.library, Path(folder))
        values = parts.values(runner, range(len(compiled.ops)), [case])
        for index in range(len(compiled.ops)):
            part = parts.part(index)
            if part is None:
                continue
            stock = stock_session(part.theirs, providers=part.ours.providers)
            try:
                feeds = (part.our_feeds(values), part.their_feeds(values))
                ours, theirs = runner.time((part.ours, stock), feeds, effort)
            except (RunFailed, OrtisanError, KeyError):
                continue
            found[index] = statistics.median(theirs) / statistics.median(ours)
            for spec in (part.ours, stock):
                runner.forget(spec)
    return found


def _time_whole(draft: Draft, job: Job, cases: Sequence[Case], kept: frozenset[int]) -> tuple[Bench, ...]:
    """The model with some of its subgraphs compiled, against the source, for each number of threads, until it loses."""
    with tempfile.TemporaryDirectory(prefix="ortisan-timing-") as folder:
        path = None
        if len(kept) < len(draft.compiled.ops):
            save_with_external_data(substitute_ops(draft.compiled, kept), Path(folder), "whole")
            path = Path(folder, "whole.onnx")
        benches: list[Bench] = []
        for number, case in enumerate(cases):
            benches += time_whole(draft, job, case, path, seconds=_BESIDE_SECONDS if number else _WHOLE_SECONDS)
            if verdict(benches).startswith(SLOWER):
                break
        return tuple(benches)


def time_whole(
    draft: Draft, job: Job, case: Case, path: Path | None = None, *, seconds: float = _WHOLE_SECONDS
) -> Iterator[Bench]:
    """`path` is a model that calls the draft's library, the draft's own if not given."""
    effort = Effort(seconds, limit=1 / WORTH, clear=0.25 * seconds, fewest=5, fewest_clear=3, by_best=True)
    for stock in job.runs.stock():
        session = draft.session(stock.threads)
        session = session if path is None else replace(session, path=path)
        yield time_pair(job.runs.runner, session, stock, [case], effort, shared=shared_values(draft.compiled))
