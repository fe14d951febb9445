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


class EmulationError(OrtisanError):
    """A CUDA kernel did what it must not, as the emulator ran it; with its line, block and thread."""


class InternalError(OrtisanError):
    """What Ortisan did not foresee; `__cause__` is the exception, and `report` a file with all that is known of it."""

    def __init__(self, message: str, report: str | None = None) -> None:
        super().__init__(message)
        self.report = report


def needs_compiler(what: str, error: ModuleNotFoundError) -> ToolchainError:
    """The error for a missing package of the compiler; a missing module of our own is a bug, and raised as it is."""
    if error.name is None or error.name.partition(".")[0] == "ortisan":
        raise error
    return ToolchainError(
        f"{what} needs the compiler's packages, and '{error.name}' is not installed; pip install 'ortisan[compile]'"
    )
