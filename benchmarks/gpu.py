"""Builds BERT and GPT-2 for this machine's GPU and times them against ONNX Runtime's own CUDA kernels.

`python -m benchmarks.gpu` writes a table, and everything that there is to report to build/bench-gpu/results.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import onnx_ir as ir

import ortisan
from ortisan.cli.doctor import examine_machine
from ortisan.codegen.tools.toolchain import gpu_architectures, gpus
from ortisan.errors import OrtisanError
from ortisan.models import bert, gpt2
from ortisan.runtime.providers import why_not_provided

DIMS = {
    "bert": {"batch": (1, 8), "sequence": (1, 512)},
    "gpt2": {"batch": (1, 8), "sequence": (1, 128), "past_sequence": (0, 896), "total_sequence": (1, 1024)},
}
VARIANTS: dict[str, dict[str, Any]] = {"fp32": {}, "tf32": {"tf32": True}, "fp16": {"precision": "fp16"}}


def why_not() -> str | None:
    """Why nothing can be timed here."""
    if not gpus():
        return "There is no GPU on this machine (nvidia-smi lists none), so there is nothing to time; see docs/gpu.md."
    if reason := why_not_provided(["CUDAExecutionProvider"]):
        return f"There is a GPU, but {reason}: install onnxruntime-gpu in place of onnxruntime."
    return None


def measure(name: str, model: Path, folder: Path, target: str, options: dict[str, Any]) -> dict[str, Any]:
    """The manifest of one build, or the sentence that it failed with."""
    try:
        artifact = ortisan.build(model, folder, target=target, dims=DIMS[name], keep="all", on_progress=_say, **options)
    except OrtisanError as error:
        return {"error": str(error)}
    return dict(artifact.manifest)


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


def row(label: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{label:12} failed: {result['error'].splitlines()[0]}"
    bench, figures = result["bench"], result["verification"]["figures"]
    worst = max(figure["difference"]["max_abs"] for figure in figures)
    ours, theirs = bench["compiled"]["median"], bench["ort"]["median"]
    return f"{label:12} {ours:8.2f} ms   ORT {theirs:8.2f} ms   {theirs / ours:5.2f}x   max abs error {worst:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=DIMS, default=list(DIMS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--target", help="cuda:80 and so on; this machine's GPU if not given")
    parser.add_argument("--out", type=Path, default=Path("build/bench-gpu"))
    options = parser.parse_args()
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    target = options.target or f"cuda:{gpu_architectures()[0]}"
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"gpus": gpus(), "machine": [vars(finding) for finding in examine_machine()]}
    for name in options.models:
        path = options.out / f"{name}.onnx"
        ir.save({"bert": bert, "gpt2": gpt2}[name](), path, external_data=f"{name}.onnx.data")
        for variant in options.variants:
            label = f"{name} {variant}"
            results[label] = measure(name, path, options.out / f"{name}-{variant}", target, VARIANTS[variant])
            print(row(label, results[label]))
            (options.out / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
