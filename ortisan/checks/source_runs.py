"""The source model in stock ONNX Runtime, as a build needs it: each session opened once, beside other work."""

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
    """Opens the sessions and runs the reference on threads of its own; what goes wrong there is raised on asking.

    Only ONNX Runtime and numpy work on those threads. `path` is the model's file, which nothing is opened from when
    there is nothing to verify and to time; `label` is what messages call it. `providers` are those of the session that
    is timed against; the reference runs on the CPU.
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
        """Waits until nothing is being opened, for what must have the machine for itself."""
        wait([opened for opened in (self._reference, self._stock) if opened is not None])

    def begin_runs(self, cases: Iterable[Iterable[Case]]) -> None:
        """Runs the reference on these inputs from now on."""
        reference = self._reference
        if reference is not None:
            self._expected = self._pool.submit(lambda: expect(reference.result(), cases))

    def expected(self) -> Expected:
        """What the model gives with optimizations off."""
        if self._expected is None:
            raise ValueError("begin_runs has not been called, or nothing was to be verified")
        return self._expected.result()

    def stock(self) -> Any:
        """A session with all optimizations."""
        if self._stock is None:
            raise ValueError("nothing was to be timed")
        return self._stock.result()

    def _begin(self, opened: Callable[[], Any]) -> Future[Any]:
        """A session; an error says that it is the source model that ONNX Runtime refuses."""

        def begin() -> Any:
            try:
                return opened()
            except ArtifactError as error:
                what = str(error).replace(f"'{self._path}'", self._label, 1)
                raise ArtifactError(
                    f"{what}; so there is nothing to compare with: verify=False and keep='all' "
                    "(--no-verify --keep all) build without"
                ) from error

        return self._pool.submit(begin)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Does other work on one of the threads."""
        return self._pool.submit(work)
