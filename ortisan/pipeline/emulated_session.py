"""emulate: a session of an artifact for GPUs on a machine without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ortisan.checks.isolated import Isolated
from ortisan.checks.session import compiled_session
from ortisan.checks.work import KernelWork
from ortisan.pipeline.emulate import Emulator, emulate_artifact
from ortisan.pipeline.unforeseen import raises_ortisan_errors
from ortisan.runtime.artifact import Artifact, check_content, open_artifact
from ortisan.runtime.engine import onnxruntime


class EmulatedSession:
    """ONNX Runtime's session, on the CPU, with all that it has; the custom ops' kernels are executed by an emulator."""

    def __init__(self, session: Any, emulator: Emulator) -> None:
        self._session, self._emulator = session, emulator
        self.kernels: tuple[KernelWork, ...] = ()
        """What the last run launched."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        results: list[Any] = self._execute(self._session.run, output_names, feeds, run_options)
        return results

    def run_with_iobinding(self, binding: Any, run_options: Any = None) -> None:
        self._execute(self._session.run_with_iobinding, binding, run_options)

    def _execute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._emulator.executing():
            results = function(*arguments)
        self.kernels = self._emulator.work()
        return results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@raises_ortisan_errors
def emulate(
    folder: str | os.PathLike[str] | Artifact, *, on_progress: Callable[[str], None] | None = None
) -> EmulatedSession:
    """A session of an artifact for GPUs that runs here: its kernels are executed from their PTX, which takes long.

    It has what an `onnxruntime.InferenceSession` on the CPU has, and `kernels`, what the last run launched. One session
    runs at a time. The artifact's `src/`, AITemplate and nvcc are needed.
    """
    onnxruntime()
    artifact = open_artifact(folder)
    check_content(artifact)
    emulator = emulate_artifact(artifact, Isolated(), on_progress or (lambda _: None))
    return EmulatedSession(emulator.session(compiled_session(artifact)), emulator)
