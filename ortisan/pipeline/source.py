"""The model an artifact was built from: recorded at build time, found again for verify and bench."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from ortisan.errors import ArtifactError
from ortisan.runtime.manifest import Manifest, sha256


def describe_source(model: Any) -> dict[str, Any]:
    """The path as it was given, and the hash of the file; neither for a model in memory."""
    if isinstance(model, (onnx.ModelProto, ir.Model)):
        return {"path": None, "sha256": None}
    return {"path": os.fspath(model), "sha256": sha256(Path(model))}


def find_source(manifest: Manifest, folder: Path, model: Any = None) -> Any:
    """`model` when it is given, else the recorded one, when it is still there and the same."""
    if model is not None:
        return model
    source = manifest.get("source") or {}
    path = source.get("path")
    how = "pass the model it was built from (--model FILE, or model=)"
    if path is None:
        raise ArtifactError(f"'{folder}' was built from a model in memory; {how}")
    if not Path(path).is_file():
        raise ArtifactError(f"'{folder}' was built from '{path}', which is not there; {how}")
    if sha256(Path(path)) != source.get("sha256"):
        raise ArtifactError(f"'{path}' has changed since '{folder}' was built from it; build again, or {how}")
    return Path(path)
