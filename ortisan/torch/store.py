"""The on-disk tier of the session cache: artifacts keyed by the exported graph, its weights and the options.

It lives in `torch/` of the cache folder. Processes that want the same artifact at once wait for the one that builds it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ortisan._version import __version__
from ortisan.codegen.tools.build_cache import cache_key
from ortisan.codegen.tools.cache_place import cache_folder, make_cache_folder
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.converter.read.model_hash import model_hash
from ortisan.errors import ArtifactError, OptionError, UnsupportedError
from ortisan.pipeline.build import build_at_once, build_with
from ortisan.pipeline.kept import all_kept, kept_folder
from ortisan.registry.snippets import DOMAIN as SNIPPETS
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.runtime.engine import onnxruntime
from ortisan.runtime.manifest import MANIFEST
from ortisan.torch.options import NAME, FrontOptions

_DEFAULT_LIMIT_MB = 20_000


def artifact_of(model: ir.Model, options: FrontOptions) -> tuple[Artifact, bool]:
    """The artifact of an exported model, and whether it was there already."""
    folder = kept_folder(cache_folder()) / artifact_key(model, options)
    try:
        make_cache_folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            found = _look_up(folder)
            if found is not None:
                return found, True
            shutil.rmtree(folder, ignore_errors=True)
            built = _build(model, folder, options)
        _trim(keep=folder)
    except (OSError, ArtifactError) as error:
        if os.access(folder.parent, os.W_OK):
            raise
        warnings.warn(f"'{folder.parent}' can't be written ({error}), so this build is not cached", stacklevel=2)
        kept = Path(tempfile.mkdtemp(prefix="ortisan-torch-"))
        atexit.register(shutil.rmtree, kept, ignore_errors=True)
        return _build(model, kept / NAME, options), False
    return built, False


def artifact_key(model: ir.Model, options: FrontOptions) -> str:
    """Hashes the graph, every byte of every weight, the options and the versions that build it."""
    parts: dict[str, str | bytes] = {
        "graph": model_hash(model),
        "weights": _tensor_digest(model),
        "options": json.dumps(options.build.to_json(), sort_keys=True, default=str),
        "ortisan": __version__,
        "onnxruntime": str(onnxruntime().__version__),
        "compiler": find_compiler().version,
    }
    return cache_key(parts)


def _tensor_digest(model: ir.Model) -> str:
    digest = hashlib.sha256()
    for graph in model.graphs():
        for name in sorted(graph.initializers):
            _update(digest, name, graph.initializers[name].const_value)
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                _update(digest, attribute.name, attribute.as_tensor())
    return digest.hexdigest()


def _update(digest: Any, name: str, tensor: ir.TensorProtocol | None) -> None:
    digest.update(f"{name}\n".encode("utf-8", "surrogatepass"))
    if tensor is None:
        return
    digest.update(f"{tensor.dtype}{list(tensor.shape)}\n".encode())
    if tensor.dtype == ir.DataType.STRING:
        digest.update(repr(tensor.numpy().tolist()).encode("utf-8", "surrogatepass"))
    else:
        digest.update(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data)


def _build(model: ir.Model, folder: Path, options: FrontOptions) -> Artifact:
    chosen = options.build
    if chosen.keep == "faster" and not _has_snippets(model):
        # Nothing may be compiled, or samples may not suit the model: then nothing is timed.
        with contextlib.suppress(UnsupportedError, OptionError):
            return build_with(model, folder, chosen)
    return build_at_once(model, folder, chosen)


def _has_snippets(model: ir.Model) -> bool:
    """Whether ONNX Runtime can't run the model, so that there is nothing to compare speed with."""
    return any(node.domain == SNIPPETS for node in model.graph.all_nodes())


def _look_up(folder: Path) -> Artifact | None:
    try:
        artifact = open_artifact(folder)
        os.utime(folder / MANIFEST)
    except (ArtifactError, OSError):
        return None
    return artifact


@contextlib.contextmanager
def _alone(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Locks the artifact against other processes. Raises `BlockingIOError` if it is locked and `wait` is False."""
    with open(folder.with_name(folder.name + ".lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _trim(keep: Path) -> None:
    """Evicts the least recently used artifacts until the rest fits into `ORTISAN_TORCH_CACHE_MB`."""
    limit = int(os.environ.get("ORTISAN_TORCH_CACHE_MB", _DEFAULT_LIMIT_MB)) * 1_000_000
    with contextlib.suppress(OSError):
        kept = all_kept(cache_folder())
        total = sum(artifact.bytes for artifact in kept)
        for artifact in kept:
            if total <= limit:
                return
            if artifact.folder != keep:
                with contextlib.suppress(BlockingIOError), _alone(artifact.folder, wait=False):
                    shutil.rmtree(artifact.folder, ignore_errors=True)
                    total -= artifact.bytes
