"""verify --emulate: an artifact for GPUs on a machine without one.

Its custom ops are linked once more, from the same objects, with a CUDA runtime of host memory. Launches go to the
emulator, which executes the PTX that nvcc put into the library. The session is stock ONNX Runtime's, on the CPU.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ortisan.checks.isolated import Run
from ortisan.checks.session import SessionSpec
from ortisan.codegen.backend import parse_target
from ortisan.emulator import open_device
from ortisan.emulator.fatbin import ptx_of
from ortisan.errors import ArtifactError, OptionError
from ortisan.runtime.artifact import Artifact
from ortisan.runtime.engine import run

SMALL = 6
"""What dims are kept to, unless more was asked for: an emulated kernel takes seconds."""
Say = Callable[[str], None]
_Watch = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TOLD_SECONDS = 0.5


def small_dims(dims: Mapping[str, Any]) -> dict[str, Any]:
    """Ranges without their large ends."""
    found: dict[str, Any] = {}
    for name, bound in dims.items():
        low, high = (bound, bound) if isinstance(bound, int) else bound
        found[name] = bound if isinstance(bound, int) else (low, min(high, max(low, SMALL)))
    return found


class Emulated:
    """Runs an artifact's own library in this process, in place of a child process with a GPU."""

    def __init__(self, artifact: Artifact, say: Say) -> None:
        if artifact.library is None:
            raise OptionError(f"'{artifact.folder}' has no custom ops: there is nothing to emulate")
        source = artifact.folder / "src"
        if not source.is_dir():
            raise ArtifactError(f"'{artifact.folder}' lacks 'src', which emulation links its library from")
        files: dict[str, str | bytes] = {
            file.relative_to(source).as_posix(): file.read_bytes() for file in source.rglob("*") if file.is_file()
        }
        name = artifact.library.name.removeprefix("lib").removesuffix(".so")
        library, runtime = parse_target(artifact.target).twin(files, name=name, on_progress=say)
        device = open_device(say)
        self._runtime = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        self._runtime.ortisan_cuda_watch.argtypes = [_Watch]
        parts = ptx_of(library)
        self.architecture = min((part.architecture for part in parts), key=int)
        own = [part.text for part in parts if part.architecture == self.architecture]
        for number, text in enumerate(own, 1):
            say(f"translating PTX {number}/{len(own)}")
            device.load(text)
        self._spec = SessionSpec(artifact.model, library=library)
        self._session: Any = None
        self._say = say

    def run(self, spec: SessionSpec, feeds: Mapping[str, Any], seconds: float = 0) -> Run:
        """The outputs; nothing is too slow."""
        begin = time.perf_counter()
        if self._session is None:
            self._session = self._spec.open()
        with self._watched():
            outputs = run(self._session, feeds)
        return Run(outputs, time.perf_counter() - begin)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        begin = told = time.perf_counter()
        count = 0

        def watch(kernel: bytes) -> None:
            nonlocal told, count
            count += 1
            now = time.perf_counter()
            if now - told > _TOLD_SECONDS:
                told = now
                self._say(f"emulating kernel {count} after {now - begin:.0f} s")

        callback = _Watch(watch)
        self._runtime.ortisan_cuda_watch(callback)
        try:
            yield
        finally:
            self._runtime.ortisan_cuda_watch(_Watch())
