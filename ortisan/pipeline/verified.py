"""Makes a draft right: what departs from ONNX Runtime is found, left to it with the reason, and the rest is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ortisan.checks.noise import Noise, measure_noise
from ortisan.checks.session import reference_session, stock_session
from ortisan.checks.verify import Verification, compare_session, runs_of
from ortisan.errors import VerifyError
from ortisan.pipeline.departures import Departed, find_departing
from ortisan.pipeline.draft import Draft, Job, write_without
from ortisan.pipeline.inside import find_departing_inside
from ortisan.pipeline.manifest import Left, rounded_floats
from ortisan.pipeline.noise_origin import noisiest_node

_ALL = "no custom op departs by itself, but the model with all of them does"


@dataclass(frozen=True)
class Verified:
    draft: Draft
    verification: Verification | None = None
    left: tuple[Left, ...] = field(default=())

    def noisy_node(self, job: Job) -> str | None:
        """The node that makes the model noisy, if outputs had to be judged by noise."""
        if self.verification is None or not self.verification.noisy:
            return None
        return noisiest_node(self.draft.compiled, job.runs.expected(), job.runs.runner)


def make_right(draft: Draft, job: Job) -> Verified:
    """The draft without what departs, and how the rest was verified. With `strict` a departure is a `VerifyError`."""
    left: list[Left] = []
    while draft.compiled.ops:
        job.say("verifying against ONNX Runtime")
        verification, departed = _judge(draft, job)
        if not departed:
            emulated = job.emulator.what if job.emulator is not None else None
            return Verified(draft, replace(verification, emulated=emulated), tuple(left))
        if job.options.strict:
            verification.check()
            first = next(iter(departed))
            raise VerifyError(f"the custom op '{draft.compiled.ops[first]}' is not right: {departed[first].reason}")
        for index, each in departed.items():
            place = each.reproducer.relative_to(draft.folder).as_posix() if each.reproducer else None
            left.append(Left(draft.compiled.ops[index], each.reason, place))
        draft = write_without(draft, {index: each.reason for index, each in departed.items()}, job)
    return Verified(draft, None, tuple(left))


def _judge(draft: Draft, job: Job) -> tuple[Verification, dict[int, Departed]]:
    """The verification of the whole, and the subgraphs to leave: none when it passes."""
    expected, runner = job.runs.expected(), job.runner
    rounded = rounded_floats(draft.compiled)
    if job.emulator is not None:
        job.emulator.announce(runs_of(expected))
    seen = compare_session(runner, draft.session(), expected, rounded)
    if seen.passed and len(draft.compiled.ops) == 1:
        return seen, {}
    # An error of one part can fade before it reaches an output of the model, so each is looked at by itself.
    departed = find_departing(draft.compiled, draft.library, expected, runner, draft.departures)
    if departed or seen.passed:
        return seen, departed
    job.say("measuring the model's own noise")
    noise = _noise(job)
    seen = compare_session(runner, draft.session(), expected, rounded, noise)
    if seen.passed:
        return seen, {}
    inside = find_departing_inside(draft, job, noise)
    everything = dict.fromkeys(range(len(draft.compiled.ops)), Departed(f"{_ALL}: {seen.why_not()}"))
    return seen, inside or everything


def _noise(job: Job) -> Mapping[tuple[str, str], Noise]:
    runs = job.runs
    moved = [stock_session(job.source.file), reference_session(job.source.moved_file)]
    return measure_noise(runs.runner, runs.expected(), [runs.reference], moved)
