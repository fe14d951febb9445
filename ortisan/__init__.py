"""Ortisan compiles ONNX graphs into native ONNX Runtime custom ops.

Names are imported when they are asked for: `load` needs numpy and onnxruntime only, the others need the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ortisan._version import __version__
from ortisan.errors import (
    ArtifactError,
    InternalError,
    ModelError,
    OptionError,
    OrtisanError,
    ToolchainError,
    UnsupportedError,
    VerifyError,
    needs_compiler,
)

if TYPE_CHECKING:
    from ortisan.pipeline.build import build
    from ortisan.pipeline.check import bench, verify
    from ortisan.pipeline.compilation import Compilation
    from ortisan.pipeline.compile import compile
    from ortisan.pipeline.convert import convert_graph
    from ortisan.pipeline.emulated_session import emulate
    from ortisan.pipeline.generate import CustomOpLibrary, generate
    from ortisan.pipeline.inspect import inspect
    from ortisan.runtime.artifact import Artifact, load

_HOMES = {
    "Artifact": "runtime.artifact",
    "Compilation": "pipeline.compilation",
    "CustomOpLibrary": "pipeline.generate",
    "bench": "pipeline.check",
    "build": "pipeline.build",
    "compile": "pipeline.compile",
    "convert_graph": "pipeline.convert",
    "emulate": "pipeline.emulated_session",
    "generate": "pipeline.generate",
    "inspect": "pipeline.inspect",
    "load": "runtime.artifact",
    "verify": "pipeline.check",
}

__all__ = [
    "Artifact",
    "ArtifactError",
    "Compilation",
    "CustomOpLibrary",
    "InternalError",
    "ModelError",
    "OptionError",
    "OrtisanError",
    "ToolchainError",
    "UnsupportedError",
    "VerifyError",
    "__version__",
    "bench",
    "build",
    "compile",
    "convert_graph",
    "emulate",
    "generate",
    "inspect",
    "load",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "torch":
        return importlib.import_module("ortisan.torch")
    if name not in _HOMES:
        raise AttributeError(f"module 'ortisan' has no attribute '{name}'")
    try:
        module = importlib.import_module(f"ortisan.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise needs_compiler(f"ortisan.{name}", error) from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "torch"})
