"""Runs the source model in stock ONNX Runtime for a build: in a child process, begun while the model is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from ortisan.checks.expected import Expected, Trials, expect
from ortisan.checks.inputs import Cases
from ortisan.checks.isolated import Isolated
from ortisan.checks.samples import Case
from ortisan.checks.session import SessionSpec, reference_session, stock_session
from ortisan.errors import ArtifactError, OptionError
from ortisan.runtime.engine import RunFailed

T = TypeVar("T")

_THREADS = 4
"""They wait for the child, for a disk or for a hash most of the time."""


class SourceRuns:
    """Opens sessions and runs the reference in the background; their errors are raised when a result is requested.

    `path` is the model's file, which is not opened if there is nothing to verify or time; `label` names it in messages.
    `providers` are those of the session to time against; the reference runs on the CPU. `threads` are the numbers of
    threads to time with, None for ONNX Runtime's own choice.
    """

    def __init__(
        self,
        path: Path,
        label: str,
        *,
        verify: bool,
        time: bool,
        providers: Sequence[str] = (),
        threads: Sequence[int | None] = (None,),
    ) -> None:
        self._open = ExitStack()
        self.runner = self._open.enter_context(Isolated())
        self._label = label
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ortisan")
        self._open.callback(self._pool.shutdown, cancel_futures=True)
        self.reference = reference_session(path)
        self._stock = [stock_session(path, threads=number, providers=tuple(providers)) for number in threads]
        wanted = [*([self.reference] if verify else []), *(self._stock if time else [])]
        self._opened = {spec: self._pool.submit(self._begin, spec) for spec in wanted}
        self._expected: Future[Expected] | None = None
        self._timed: Future[list[Case]] | None = None
        self._times = time

    def __enter__(self) -> SourceRuns:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()
        self._open.close()

    def settle(self) -> None:
        """Waits until no session is being opened, so that what follows can be timed undisturbed."""
        wait(self._opened.values())

    def check(self) -> None:
        """Raises the `ArtifactError` of a session that could not be opened."""
        for opened in self._opened.values():
            opened.result()

    def begin_runs(self, cases: Cases, *, first_only: bool = False) -> None:
        """Starts running the reference on these inputs, or on the first of them, and then looks for inputs to time."""
        opened = self._opened.get(self.reference)
        if opened is None:
            return

        def run() -> Expected:
            opened.result()
            return expect(self.runner, self.reference, cases.compared(first_only=first_only), cases)

        def find() -> list[Case]:
            self.expected()  # a sampler serves one after the other
            return self._find_timed(cases)

        self._expected = self._pool.submit(run)
        if self._times:
            self._timed = self._pool.submit(find)

    def expected(self) -> Expected:
        """The reference outputs: the model with optimizations off."""
        if self._expected is None:
            raise ValueError("begin_runs was not called, or verification is off")
        return self._expected.result()

    def stock(self) -> list[SessionSpec]:
        """The sessions with all optimizations, one for each number of threads, all of them opened."""
        for spec in self._stock:
            if spec not in self._opened:
                raise ValueError("timing is off")
            self._opened[spec].result()
        return self._stock

    def timed_cases(self, cases: Cases) -> list[Case]:
        """Inputs worth timing that the source model accepts, the most typical first; found once."""
        if self._timed is None:
            self._timed = self._pool.submit(self._find_timed, cases)
        return self._timed.result()

    def _find_timed(self, cases: Cases) -> list[Case]:
        trials = Trials(self.runner, self.stock()[-1], cases)
        first = trials.first(cases.timed())
        if first is None:
            raise OptionError(trials.none_accepted())
        beside = [trials.first(attempts) for attempts in cases.timed_beside()]
        return list({found.case.label: found.case for found in (first, *beside) if found}.values())

    def _begin(self, spec: SessionSpec) -> None:
        """Opens a session; its error names the source model and offers to build without comparing."""
        try:
            self.runner.open(spec)
        except (ArtifactError, RunFailed) as error:
            what = str(error).replace(f"'{spec.path}'", self._label, 1)
            if isinstance(error, RunFailed):
                what = f"ONNX Runtime can't load {self._label}: {error}"
            raise ArtifactError(
                f"{what}; so there is nothing to compare with; pass verify=False and keep='all' "
                "(--no-verify --keep all) to build anyway"
            ) from error

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Runs other work on one of the background threads."""
        return self._pool.submit(work)
