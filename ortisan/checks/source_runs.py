"""Runs the source model in stock ONNX Runtime for a build: each session is opened once, in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from ortisan.checks.samples import Case
from ortisan.checks.verify import Expected, expect, open_reference
from ortisan.errors import ArtifactError
from ortisan.runtime.engine import open_session, quiet_options

T = TypeVar("T")


class SourceRuns:
    """Opens sessions and runs the reference on background threads; their errors are raised when a result is requested.

    Only ONNX Runtime and numpy run on those threads. `path` is the model's file, which is not opened if there is
    nothing to verify or time; `label` names it in messages. `providers` are those of the session to time against; the
    reference runs on the CPU.
    """

    def __init__(
        self, path: Path, label: str, *, verify: bool, time: bool, providers: Sequence[str] | None = None
    ) -> None:
        self._open = ExitStack()
        self._path, self._label = path, label
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="ortisan")
        self._open.callback(self._pool.shutdown, cancel_futures=True)
        self._reference = self._begin(lambda: open_reference(self._path)) if verify else None
        self._stock = self._begin(lambda: open_session(self._path, quiet_options(), providers)) if time else None
        self._expected: Future[Expected] | None = None

    def __enter__(self) -> SourceRuns:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def settle(self) -> None:
        """Waits until no session is being opened, so that what follows can be timed undisturbed."""
        wait([opened for opened in (self._reference, self._stock) if opened is not None])

    def begin_runs(self, cases: Iterable[Iterable[Case]]) -> None:
        """Starts running the reference on these inputs."""
        reference = self._reference
        if reference is not None:
            self._expected = self._pool.submit(lambda: expect(reference.result(), cases))

    def expected(self) -> Expected:
        """The reference outputs: the model with optimizations off."""
        if self._expected is None:
            raise ValueError("begin_runs was not called, or verification is off")
        return self._expected.result()

    def stock(self) -> Any:
        """A session with all optimizations."""
        if self._stock is None:
            raise ValueError("timing is off")
        return self._stock.result()

    def _begin(self, opened: Callable[[], Any]) -> Future[Any]:
        """Opens a session in the background; its error names the source model and offers to build without comparing."""

        def begin() -> Any:
            try:
                return opened()
            except ArtifactError as error:
                what = str(error).replace(f"'{self._path}'", self._label, 1)
                raise ArtifactError(
                    f"{what}; so there is nothing to compare with; pass verify=False and keep='all' "
                    "(--no-verify --keep all) to build anyway"
                ) from error

        return self._pool.submit(begin)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Runs other work on one of the background threads."""
        return self._pool.submit(work)
