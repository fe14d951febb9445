"""What the examples build for: their options, and the bounds that a GPU needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

MOST = {"batch": (1, 8), "past": (0, 256)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="cpu, or cuda:80")
    parser.add_argument("--sources-only", action="store_true", help="write the sources and build nothing")
    parser.add_argument("--out", type=Path, default=Path("build/examples"), help="where --sources-only writes to")


def is_gpu(options: argparse.Namespace) -> bool:
    return str(options.target).startswith("cuda")


def providers(options: argparse.Namespace) -> list[str]:
    """What stock ONNX Runtime is timed on: the same device as the compiled model."""
    return ["CUDAExecutionProvider"] * is_gpu(options) + ["CPUExecutionProvider"]


def check(options: argparse.Namespace) -> None:
    """Ends the program, before minutes of building, where what it builds could not be run."""
    missing = set(providers(options)) - set(onnxruntime.get_available_providers())
    if missing and not options.sources_only:
        sys.exit(
            f"{options.target} needs {missing.pop()}, which onnxruntime {onnxruntime.__version__} does not have: "
            "install onnxruntime-gpu on a machine with a GPU, or write the sources only (--sources-only)"
        )


def show(step: str) -> None:
    """The step of a build, over the one before."""
    print(f"\r{step[:100]:100}", end="\n" if step.startswith("done") else "", file=sys.stderr, flush=True)


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
        artifact = build(model, options.out / name, target=options.target, sources_only=True, on_progress=show, **more)
        print(f"{artifact}: sources in {artifact.folder / 'src'}")
    return bool(options.sources_only)
