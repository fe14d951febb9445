"""The execution providers of ONNX Runtime that an artifact needs, as its manifest lists them."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Mapping, Sequence
from typing import Any

from ortisan.errors import ArtifactError
from ortisan.runtime.engine import CPU, onnxruntime

_CUDA = "CUDAExecutionProvider"
_PACKAGES = {_CUDA: "onnxruntime-gpu"}
"""Provider -> the package of ONNX Runtime that has it."""
_FATAL = 4
_IDENTITY = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a0808011204"
    "0a02080142040a001011"
)
"""A model of one Identity node."""


def providers_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What a session is opened with; ONNX Runtime's own ops follow the custom ops."""
    return tuple(manifest.get("providers") or (CPU,))


def why_not_provided(providers: Sequence[str]) -> str | None:
    """Why the installed ONNX Runtime can't run on these, in a few words; None when it can."""
    missing = [name for name in providers if name not in onnxruntime().get_available_providers()]
    return f"this onnxruntime has no {missing[0]}" if missing else None


def package_of(provider: str) -> str:
    return _PACKAGES.get(provider, f"an onnxruntime with {provider}")


def preload(needed: str) -> None:
    """Lets ONNX Runtime find CUDA's libraries among Python packages, where it knows how to."""
    find = getattr(onnxruntime(), "preload_dlls", None)
    if needed == _CUDA and find is not None:
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            find()


@functools.cache
def is_loaded(provider: str) -> bool:
    """Whether a session gets the provider. One that is compiled in is left out when its own libraries are missing."""
    options = onnxruntime().SessionOptions()
    options.log_severity_level = _FATAL
    with contextlib.suppress(Exception):
        return provider in onnxruntime().InferenceSession(_IDENTITY, options, providers=[provider]).get_providers()
    return False


def check_loaded(folder: object, manifest: Mapping[str, Any]) -> None:
    """Raises `ArtifactError` when the provider of the custom ops is there, but does not load."""
    needed = providers_of(manifest)[0]
    if needed != CPU and not is_loaded(needed):
        raise ArtifactError(
            f"'{folder}' is for {manifest['target']}: onnxruntime {onnxruntime().__version__} can't load {needed}; the "
            "driver, CUDA, cuBLAS or cuDNN that it was built for is missing ('pip install onnxruntime-gpu[cuda,cudnn]' "
            "brings all but the driver)"
        )


def check_providers(folder: object, manifest: Mapping[str, Any], chosen: Sequence[Any] | None) -> None:
    """Raises `ArtifactError` when a session of the artifact would lack the provider of its custom ops."""
    needed = providers_of(manifest)[0]
    if needed == CPU:
        return
    if why_not_provided([needed]) is not None:
        raise ArtifactError(
            f"'{folder}' is for {manifest['target']}: install {package_of(needed)}; this artifact needs {needed}, and "
            f"the installed onnxruntime {onnxruntime().__version__} does not have it"
        )
    names = [item if isinstance(item, str) else item[0] for item in chosen or (needed,)]
    if needed not in names:
        raise ArtifactError(f"'{folder}' is for {manifest['target']} and needs {needed}, which providers={names} lack")
