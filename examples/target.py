"""What the examples build for: their options, and the bounds that a GPU needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

import ortisan

MOST = {"batch": (1, 8), "past": (0, 256)}
FEW = {"batch": (1, 4), "past": (0, 64), "total": (1, 128)}  # for emulation, whose time grows with the bounds


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="cpu, or cuda:80")
    parser.add_argument("--emulate", action="store_true", help="run a GPU's kernels on this CPU, from their PTX")
    parser.add_argument("--sources-only", action="store_true", help="write the sources and build nothing")
    parser.add_argument("--out", type=Path, default=Path("build/examples"), help="where --sources-only writes to")


def is_gpu(options: argparse.Namespace) -> bool:
    return str(options.target).startswith("cuda")


def providers(options: argparse.Namespace) -> list[str]:
    """What stock ONNX Runtime is timed on: the same device as the compiled model."""
    return ["CUDAExecutionProvider"] * (is_gpu(options) and not options.emulate) + ["CPUExecutionProvider"]


def check(options: argparse.Namespace) -> None:
    """Ends the program, before minutes of building, where what it builds could not be run."""
    if options.emulate and not is_gpu(options):
        sys.exit(f"--emulate runs the kernels of a GPU, and {options.target} has none: add --target cuda:80")
    missing = set(providers(options)) - set(onnxruntime.get_available_providers())
    if missing and not options.sources_only:
        sys.exit(
            f"{options.target} needs {missing.pop()}, which onnxruntime {onnxruntime.__version__} does not have: "
            "install onnxruntime-gpu on a machine with a GPU, or emulate one (--emulate)"
        )


def show(step: str) -> None:
    """The step of a build, over the one before."""
    print(f"\r{step[:100]:100}", end="\n" if step.startswith("done") else "", file=sys.stderr, flush=True)


def build(options: argparse.Namespace, model: Path, folder: Path, **more: Any) -> Any:
    """With --emulate the artifact is verified by emulation, on one set of inputs."""
    how: dict[str, Any] = {"verify": "emulate", "quick": True} if options.emulate else {}
    return ortisan.build(model, folder, target=options.target, on_progress=show, **how, **more)


def session(options: argparse.Namespace, artifact: Any) -> Any:
    return ortisan.emulate(artifact, on_progress=show) if options.emulate else ortisan.load(artifact)


def bounds(options: argparse.Namespace, model: Path) -> dict[str, Any]:
    """The keyword `dims`: AITemplate reserves memory for the largest shapes, so each dim of the inputs has a bound."""
    if not is_gpu(options):
        return {}
    inputs = onnx.load(model, load_external_data=False).graph.input
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    plain = [name for name in sorted(names) if name.isidentifier()]
    known, largest = (FEW, 64) if options.emulate else (MOST, 512)
    return {"dims": {name: known.get(name.split("_")[0], (1, largest)) for name in plain}}


def only_sources(options: argparse.Namespace, model: Path, name: str, **more: Any) -> bool:
    """With --sources-only, writes them and says where; there is nothing to run then."""
    how: dict[str, Any] = {"target": options.target, "sources_only": True, "on_progress": show}
    if options.sources_only:
        artifact = ortisan.build(model, options.out / name, **how, **more)
        print(f"{artifact}: sources in {artifact.folder / 'src'}")
    return bool(options.sources_only)
