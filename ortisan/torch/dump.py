"""Writes what was exported and built: one folder for each graph."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from ortisan.converter.save import save_with_external_data
from ortisan.errors import ArtifactError
from ortisan.runtime.artifact import Artifact


@dataclass(frozen=True, eq=False)
class Dump:
    """What to dump of a graph: `text` is its FX form, `inputs` those of the call it was built for."""

    model: ir.Model
    artifact: Artifact
    text: str
    inputs: Mapping[str, Any]


def dump_graph(place: Path, title: str, dump: Dump) -> Path:
    """Writes exported.onnx, graph.txt, inputs.pt and artifact/: the converted model, its sources and the report."""
    try:
        folder = _new_folder(place, _stem(title))
        save_with_external_data(dump.model.clone(), folder, "exported")
        (folder / "graph.txt").write_text(dump.text + "\n", encoding="utf-8")
        torch.save(dict(dump.inputs), folder / "inputs.pt")
        shutil.copytree(dump.artifact.folder, folder / "artifact")
    except OSError as error:
        raise _not_written(place, error) from error
    return folder


def dump_text(place: Path, title: str, text: str, reason: str) -> Path:
    """Writes graph.txt and reason.txt of a graph that runs eager."""
    try:
        folder = _new_folder(place, _stem(title))
        (folder / "graph.txt").write_text(text + "\n", encoding="utf-8")
        (folder / "reason.txt").write_text(reason + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(place, error) from error
    return folder


def _stem(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")


def _not_written(place: Path, error: OSError) -> ArtifactError:
    return ArtifactError(f"the dump folder '{place}' can't be written: {error.strerror or error}")


def _new_folder(place: Path, stem: str) -> Path:
    for number in itertools.count():
        folder = place / (stem if number == 0 else f"{stem}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not place.is_dir():
                raise
            continue
        return folder
    raise AssertionError("unreachable")
