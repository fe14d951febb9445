"""The execution providers of ONNX Runtime that an artifact needs, as its manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ortisan.errors import ArtifactError
from ortisan.runtime.engine import CPU, onnxruntime

_PACKAGES = {"CUDAExecutionProvider": "onnxruntime-gpu"}
"""Provider -> the package of ONNX Runtime that has it."""


def providers_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What a session is opened with; ONNX Runtime's own ops follow the custom ops."""
    return tuple(manifest.get("providers") or (CPU,))


def why_not_provided(providers: Sequence[str]) -> str | None:
    """Why the installed ONNX Runtime can't run on these, in a few words; None when it can."""
    missing = [name for name in providers if name not in onnxruntime().get_available_providers()]
    return f"this onnxruntime has no {missing[0]}" if missing else None


def package_of(provider: str) -> str:
    return _PACKAGES.get(provider, f"an onnxruntime with {provider}")


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
