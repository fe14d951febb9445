"""Ortisan compiles ONNX graphs into native ONNX Runtime custom ops."""

from __future__ import annotations

from typing import Any

from ortisan._version import __version__
from ortisan.errors import (
    ArtifactError,
    ModelError,
    OptionError,
    OrtisanError,
    ToolchainError,
    UnsupportedError,
    VerifyError,
)
from ortisan.pipeline.build import build
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import CustomOpLibrary, compile, convert_graph, generate
from ortisan.runtime.artifact import Artifact, load

__all__ = [
    "Artifact",
    "ArtifactError",
    "Compilation",
    "CustomOpLibrary",
    "ModelError",
    "OptionError",
    "OrtisanError",
    "ToolchainError",
    "UnsupportedError",
    "VerifyError",
    "__version__",
    "build",
    "compile",
    "convert_graph",
    "generate",
    "load",
]


def __getattr__(name: str) -> Any:
    """`ortisan.torch` is imported when it is asked for."""
    if name == "torch":
        import importlib

        return importlib.import_module("ortisan.torch")
    raise AttributeError(f"module 'ortisan' has no attribute '{name}'")
