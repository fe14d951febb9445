"""What the examples build for: their options, and the bounds that a GPU needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import onnx

MOST = {"batch": (1, 8), "past": (0, 256)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="cpu, or cuda:80")
    parser.add_argument("--sources-only", action="store_true", help="write the sources and build nothing")
    parser.add_argument("--out", type=Path, default=Path("build/examples"), help="where --sources-only writes to")


def is_gpu(options: argparse.Namespace) -> bool:
    return str(options.target).startswith("cuda")


def bounds(options: argparse.Namespace, model: Path) -> dict[str, Any]:
    """The keyword `dims`: AITemplate reserves memory for the largest shapes, so each dim of the inputs has a bound."""
    if not is_gpu(options):
        return {}
    inputs = onnx.load(model, load_external_data=False).graph.input
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    plain = [name for name in sorted(names) if name.isidentifier()]
    return {"dims": {name: MOST.get(name.split("_")[0], (1, 512)) for name in plain}}


def only_sources(options: argparse.Namespace, build: Any, model: Path, name: str, **more: Any) -> bool:
    """With --sources-only, writes them and says where; there is nothing to run then."""
    if options.sources_only:
        artifact = build(model, options.out / name, target=options.target, sources_only=True, **more)
        print(f"{artifact}: sources in {artifact.folder / 'src'}")
    return bool(options.sources_only)
