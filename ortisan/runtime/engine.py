"""ONNX Runtime as Ortisan uses it: sessions with fixed settings, and its errors as one sentence."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from ortisan.errors import ArtifactError, ToolchainError

Array: TypeAlias = "np.ndarray[Any, Any]"
Feeds: TypeAlias = "Mapping[str, Array]"
Optimizations: TypeAlias = Literal["none", "all"]

OLDEST_ORT = (1, 18)
CPU = "CPUExecutionProvider"
_FATAL = 4
_MAX_SENTENCE = 500


def onnxruntime() -> Any:
    """The onnxruntime module, or a `ToolchainError` when it is missing or too old."""
    try:
        module = importlib.import_module("onnxruntime")
        version = str(module.__version__)
    except (ImportError, AttributeError) as error:
        raise ToolchainError(
            "onnxruntime is not installed; 'pip install ortisan[cpu]' brings it, or 'pip install ortisan[gpu]' for GPUs"
        ) from error
    if version_of(version) < OLDEST_ORT:
        oldest = ".".join(map(str, OLDEST_ORT))
        raise ToolchainError(
            f"onnxruntime {version} is too old: custom ops need {oldest}; 'pip install -U onnxruntime'"
        )
    return module


def version_of(text: str) -> tuple[int, ...]:
    """The first two numbers of a version: (1, 18) of "1.18.1"."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def quiet_options(*, optimizations: Optimizations = "all", threads: int | None = None) -> Any:
    """Session options that log nothing; `threads` is the number of threads inside an op, None what ORT chooses."""
    ort = onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    if optimizations == "none":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
    return options


def open_session(path: Path, options: Any, providers: Sequence[Any] | None = None) -> Any:
    """An `InferenceSession`; what ORT raises becomes an `ArtifactError`."""
    ort = onnxruntime()
    try:
        return ort.InferenceSession(str(path), options, providers=list(providers or (CPU,)))
    except Exception as error:
        shown, said = _shown(path), sentence(error)
        raise ArtifactError(f"ONNX Runtime can't load {shown}: {said.replace(str(path), path.name)}") from error


def _shown(path: Path) -> str:
    """What messages call a file; the folder of an unfinished build is gone when they are read."""
    return f"the converted model '{path.name}'" if path.parent.suffix == ".partial" else f"'{path}'"


def register(options: Any, library: Path) -> None:
    try:
        options.register_custom_ops_library(_unmistakable(library))
    except Exception as error:
        raise ArtifactError(f"ONNX Runtime can't register {_shown(library)}: {sentence(error)}") from error


_files_of: dict[str, list[tuple[int, int]]] = {}
"""The files that this process has registered under a path, in order."""


def _unmistakable(library: Path) -> str:
    """The path, spelled differently for each file that has been there.

    The dynamic linker goes by the spelling: it would give a library that is still loaded for one that took its place.
    """
    path = library.absolute()
    status = path.stat()
    files = _files_of.setdefault(str(path), [])
    if (status.st_dev, status.st_ino) not in files:
        files.append((status.st_dev, status.st_ino))
    return os.sep.join([str(path.parent), *["."] * files.index((status.st_dev, status.st_ino)), path.name])


class RunFailed(Exception):
    """ONNX Runtime refused to run a model on some inputs."""


def run(session: Any, feeds: Feeds) -> list[Array]:
    """All outputs of a session. Raises `RunFailed`."""
    settings = onnxruntime().RunOptions()
    settings.log_severity_level = _FATAL
    try:
        outputs: list[Array] = session.run(None, dict(feeds), settings)
    except Exception as error:
        raise RunFailed(sentence(error)) from error
    return outputs


def caller(session: Any, feeds: Feeds, shared: Mapping[str, str]) -> Callable[[], object]:
    """Runs a session on these inputs. Those of `shared` (input -> output) are copied once and written in place."""
    if not shared:
        values = dict(feeds)
        return lambda: session.run(None, values)
    ort, binding = onnxruntime(), session.io_binding()
    places = {name: ort.OrtValue.ortvalue_from_numpy(feeds[name].copy()) for name in shared}
    for name, array in feeds.items():
        if name in places:
            binding.bind_ortvalue_input(name, places[name])
        else:
            binding.bind_cpu_input(name, array)
    writes = {output: places[name] for name, output in shared.items()}
    for value in session.get_outputs():
        if value.name in writes:
            binding.bind_ortvalue_output(value.name, writes[value.name])
        else:
            binding.bind_output(value.name)
    return lambda: session.run_with_iobinding(binding)


def sentence(error: Exception) -> str:
    """What ORT has to say, without its codes, source positions and line breaks."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"/\S+\.(cc|h):\d+ [^ ].*?\)(?= [A-Z\[(\w])", "", text, count=1).strip()
    return text[:_MAX_SENTENCE] or type(error).__name__
