"""build --verify emulate and verify --emulate: custom ops for GPUs on a machine without one.

They are linked once more, from the same objects, with a CUDA runtime of host memory. Launches go to the emulator, which
executes the PTX that nvcc put into the library. The session is stock ONNX Runtime's, on the CPU.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ortisan.checks.isolated import RUN_SECONDS, Run, Runner
from ortisan.checks.session import SessionSpec
from ortisan.checks.work import KernelWork
from ortisan.codegen.backend import Backend, Built, Sources, Twin, parse_target
from ortisan.emulator import open_device, translate
from ortisan.emulator.fatbin import ptx_of
from ortisan.errors import ArtifactError, EmulationError, OptionError
from ortisan.pipeline.estimate import Estimate
from ortisan.runtime.artifact import Artifact
from ortisan.runtime.engine import Feeds, RunFailed, run, sentence

SMALL = 6
"""What dims are kept to, unless more was asked for: an emulated kernel takes seconds."""
Say = Callable[[str], None]
_Watch = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TOLD_SECONDS = 0.5


def small_dims(dims: Mapping[str, Any]) -> dict[str, Any]:
    """Ranges without their large ends."""
    found = dict(dims)
    for name, bound in dims.items():
        if isinstance(bound, (tuple, list)):
            low, high = bound
            found[name] = (low, min(high, max(low, SMALL)))
    return found


class Emulator:
    """Runs sessions with a library for GPUs in this process, and all others in a child process.

    `what` it executes stands in manifests.
    """

    def __init__(self, target: Backend, child: Runner, say: Say) -> None:
        self._target, self._child, self._say = target, child, say
        self._architecture = target.emulated()
        self._device = open_device(say)
        self._sessions: dict[Any, Any] = {}
        self._library: Path | None = None
        self._programs: tuple[str, ...] = ()
        self._runtime: ctypes.CDLL | None = None
        self._estimate = Estimate(0)

    @property
    def what(self) -> str:
        return f"PTX, sm_{self._architecture}"

    def use(self, sources: Sources, name: str) -> Built:
        """Builds a library, whose twin runs from now on in the place of whatever library a session asks for."""
        twin = self._target.twin(sources, name=name, on_progress=self._say)
        self._programs = self._translated(twin)
        self._runtime = open_runtime(twin.runtime)
        self._library = twin.library
        self._sessions.clear()
        return twin.built

    def _translated(self, twin: Twin) -> tuple[str, ...]:
        own = [part.text for part in ptx_of(twin.library) if part.architecture == self._architecture]
        if not own:
            raise ArtifactError(
                f"the library '{twin.built.library.name}' holds no PTX for sm_{self._architecture}, which emulation "
                "executes; build it again without compiler flags of your own"
            )
        programs = []
        for number, text in enumerate(own, 1):
            self._say(f"translating PTX {number}/{len(own)}")
            programs.append(translate(text))
        return tuple(programs)

    def announce(self, runs: int) -> None:
        """Tells how many runs come next, from which the time that is left is estimated."""
        self._estimate = Estimate(runs)

    def open(self, spec: SessionSpec) -> list[str]:
        if spec.library is None:
            return self._child.open(spec)
        return [output.name for output in self.session(spec).get_outputs()]

    def run(self, spec: SessionSpec, feeds: Feeds, seconds: float = RUN_SECONDS) -> Run:
        """The outputs; no emulated run is too slow."""
        if spec.library is None:
            return self._child.run(spec, feeds, seconds)
        session = self.session(spec)
        begin = time.perf_counter()
        try:
            with self.executing():
                outputs = run(session, feeds)
        except EmulationError as failed:
            raise RunFailed(str(failed)) from failed
        return Run(outputs, time.perf_counter() - begin, self.work())

    def work(self) -> tuple[KernelWork, ...]:
        """What was launched in the last run."""
        return tuple(
            KernelWork(
                shown,
                symbol,
                done.launches,
                done.blocks,
                done.instructions,
                done.global_load_bytes,
                done.global_store_bytes,
            )
            for symbol, (shown, done) in self._device.kernel_counters().items()
        )

    def forget(self, spec: SessionSpec) -> None:
        self._child.forget(spec)
        for key in [key for key in self._sessions if key[0] == spec]:
            del self._sessions[key]

    def session(self, spec: SessionSpec) -> Any:
        """To be run by this emulator, or inside of `executing`."""
        key = (spec, spec.stamp())
        if key not in self._sessions:
            self._sessions[key] = replace(spec, library=self._library, providers=()).open()
        return self._sessions[key]

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Inside, a session of `session` is run once. An `EmulationError` says why a launch failed."""
        runtime = self._runtime
        assert runtime is not None
        refused = runtime.ortisan_cuda_refusals()
        self._device.use(self._programs)  # kernels of another library may have the same names
        self._device.reset_counters()
        estimate, told = self._estimate, time.perf_counter()

        def watch(kernel: bytes) -> None:
            nonlocal told
            estimate.count()
            now = time.perf_counter()
            if now - told > _TOLD_SECONDS:
                told = now
                self._say(f"emulating kernel {estimate}")

        callback = _Watch(watch)
        runtime.ortisan_cuda_watch(callback)
        try:
            yield
        except Exception as failed:
            if runtime.ortisan_cuda_refusals() == refused:
                raise
            # Generated code has words of its own for any CUDA error.
            raise EmulationError(f"{sentence(failed)}: {_refusal(runtime)}") from failed
        finally:
            runtime.ortisan_cuda_watch(_Watch())
            estimate.end_run()


_RUNTIMES: list[ctypes.CDLL] = []


def open_runtime(path: Path) -> ctypes.CDLL:
    """A process has one runtime, the first, under the name that all twins ask for."""
    if not _RUNTIMES:
        runtime = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        runtime.ortisan_cuda_emulate()
        runtime.ortisan_cuda_watch.argtypes = [_Watch]
        runtime.ortisan_cuda_refusals.restype = ctypes.c_int64
        runtime.ortisan_cuda_refusal.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        _RUNTIMES.append(runtime)
    return _RUNTIMES[0]


def _refusal(runtime: ctypes.CDLL) -> str:
    """Why the last launch failed."""
    text = ctypes.create_string_buffer(2000)
    runtime.ortisan_cuda_refusal(text, len(text))
    return text.value.decode(errors="replace")


def emulate_artifact(artifact: Artifact, child: Runner, say: Say) -> Emulator:
    """An emulator of an artifact's custom ops, built from its own sources."""
    if artifact.library is None:
        raise OptionError(f"'{artifact.folder}' has no custom ops: there is nothing to emulate")
    emulator = Emulator(parse_target(artifact.target), child, say)
    source = artifact.folder / "src"
    if not source.is_dir():
        raise ArtifactError(f"'{artifact.folder}' lacks 'src', which emulation links its library from")
    files: dict[str, str | bytes] = {
        file.relative_to(source).as_posix(): file.read_bytes() for file in source.rglob("*") if file.is_file()
    }
    emulator.use(files, artifact.library.name.removeprefix("lib").removesuffix(".so"))
    return emulator
