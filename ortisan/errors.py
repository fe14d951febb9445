"""Everything Ortisan raises. A message is one sentence or two: what, where, why, what to do next."""

from __future__ import annotations


class OrtisanError(Exception):
    """Base of all errors that Ortisan raises on purpose."""


class ModelError(OrtisanError):
    """The model can't be read, or is not a valid ONNX graph."""


class UnsupportedError(OrtisanError):
    """The model is valid, but a part that was asked for can't be compiled."""


class OptionError(OrtisanError):
    """An argument or option makes no sense, alone or for this model."""


class ToolchainError(OrtisanError):
    """A compiler, CMake or ONNX Runtime is missing, too old, or failed."""


class ArtifactError(OrtisanError):
    """An artifact folder can't be written, read, or does not match its manifest."""


class VerifyError(OrtisanError):
    """The compiled model and ONNX Runtime disagree."""
