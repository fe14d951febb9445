"""The caller's model, read once: what every step of a compilation or a build needs of it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir

from ortisan.checks.samples import Sampler
from ortisan.converter.passes import cleanup
from ortisan.converter.passes.freeze import freeze_overridable
from ortisan.converter.passes.kv_cache import Cache, put_cache_in_place
from ortisan.converter.passes.move_weights import move_weights
from ortisan.converter.passes.origin import record_origins
from ortisan.converter.read.labels import mere_labels
from ortisan.converter.read.load import copy_model, external_files, load_model
from ortisan.converter.read.model_hash import model_hash
from ortisan.converter.read.symbols import Bounds
from ortisan.converter.save import save_with_external_data
from ortisan.errors import ArtifactError, ModelError
from ortisan.pipeline.options import Options
from ortisan.registry.dtypes import Array
from ortisan.runtime.manifest import Manifest, sha256

Model: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | ir.Model"


class Source:
    """A model as the caller gave it, with its caches in place and its overridable inputs frozen if that was asked for.
    Never changed.

    As a context manager it removes the file that it may have written for ONNX Runtime.
    """

    def __init__(self, model: Model, cache: Cache = "as-is", *, freeze_inputs: bool = False) -> None:
        self.given = model
        self._loaded = load_model(model)
        if cache == "in-place":
            put_cache_in_place(self._loaded)
        frozen = freeze_overridable(self._loaded) if freeze_inputs else 0
        self._is_unchanged = cache == "as-is" and not frozen
        self.hash = model_hash(self._loaded)
        """The identity of the graph; weights are no part of it."""
        self._files = ExitStack()

    @classmethod
    def of(cls, model: Model, options: Options) -> Source:
        """The model as a compilation with these options reads it."""
        return cls(model, options.cache, freeze_inputs=options.freeze_inputs)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def path(self) -> Path | None:
        """The caller's file; None for a model in memory."""
        return Path(self.given) if isinstance(self.given, (str, os.PathLike)) else None

    @property
    def name(self) -> str:
        return self.path.stem if self.path is not None else self._loaded.graph.name or "model"

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"the source model '{self.path}'" if self.path is not None else "the source model"

    @functools.cached_property
    def _inlined(self) -> tuple[ir.Model, int]:
        model = copy_model(self._loaded)
        return model, cleanup.inline_functions(model)

    @property
    def inlined(self) -> int:
        """How many calls of functions the model had."""
        return self._inlined[1]

    def copy(self) -> ir.Model:
        """A copy to change, its functions inlined."""
        return copy_model(self._inlined[0])

    def original(self) -> ir.Model:
        """A copy to change, as it was given."""
        return copy_model(self._loaded)

    def sampler(self, dims: Bounds) -> Sampler:
        return Sampler(self._inlined[0], dims)

    def mere_labels(self, feeds: Mapping[str, Array]) -> set[str]:
        """The names of dims that have several sizes in these inputs."""
        return mere_labels(self._loaded.graph.inputs, {name: array.shape for name, array in feeds.items()})

    @functools.cached_property
    def op_types(self) -> dict[str, str]:
        """Op type by node name, with the names that the passes know the nodes by."""
        model = self.copy()
        record_origins(model)
        return {node.name or "": node.op_type for node in model.graph.all_nodes()}

    @functools.cached_property
    def file(self) -> Path:
        """A file that ONNX Runtime can read the model from: the caller's own, or one that goes with the source."""
        if self.path is not None and self._is_unchanged:
            return self.path
        return self._write(self.original())

    @functools.cached_property
    def moved_file(self) -> Path:
        """A file of the model with each weight moved by a few ulps; it goes with the source."""
        model = self.original()
        move_weights(model)
        return self._write(model)

    def write_unchanged(self, folder: Path, name: str) -> None:
        """Writes the model as NAME.onnx: the caller's own bytes, where they are in one file."""
        if self.path is not None and self._is_unchanged and not external_files(self._loaded):
            shutil.copyfile(self.path, folder / f"{name}.onnx")
        else:
            save_with_external_data(self.original(), folder, name)

    def _write(self, model: ir.Model) -> Path:
        folder = Path(self._files.enter_context(tempfile.TemporaryDirectory(prefix="ortisan-model-")))
        save_with_external_data(model, folder, "model")
        return folder / "model.onnx"

    def content_hash(self) -> str | None:
        """The sha256 of the caller's file, and of all files when weights lie in others; None for a model in memory."""
        if self.path is None:
            return None
        hashes = [sha256(self.path), *map(sha256, external_files(self._loaded))]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """What the manifest says: the absolute path, the hash of the content and that of the graph without weights."""
        path = str(self.path.absolute()) if self.path is not None else None
        return {"path": path, "sha256": self.content_hash(), "graph": self.hash}


def find_source(manifest: Manifest, folder: Path, model: Model | None) -> Source:
    """`model` when it is given, else the recorded one, when it is still there and the same."""
    recorded, options = manifest.get("source") or {}, manifest["options"]
    read = functools.partial(Source, cache=options["cache"], freeze_inputs=options.get("freeze_inputs", False))
    if model is not None:
        given = read(model)
        if recorded.get("graph") not in (None, given.hash):
            raise ArtifactError(f"{given.label} is not the one that '{folder}' was built from: its graph is another")
        return given
    path = recorded.get("path")
    how = "pass the model it was built from (--model FILE, or model=)"
    if path is None:
        raise ArtifactError(f"'{folder}' was built from a model in memory; {how}")
    if not Path(path).is_file():
        raise ArtifactError(f"'{folder}' was built from '{path}', which is not there; {how}")
    changed = f"'{path}' has changed since '{folder}' was built from it; build again, or {how}"
    try:
        source = read(path)
    except ModelError as error:
        raise ArtifactError(f"{changed} ({error})") from error
    if source.content_hash() != recorded.get("sha256"):
        raise ArtifactError(changed)
    return source
