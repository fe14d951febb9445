"""A compiled model in a CPU session over the CUDA runtime that stands in: its kernels do nothing, its launches are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

import ortisan
from ortisan.codegen.ait.model import AitInstall
from ortisan.converter.save import save_with_external_data
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.generate import render_sources
from tests.gpu.stand_in import StandIn
from tests.gpu.tiny_gpu import build_both, open_stand_in

Bounds = Mapping[str, "int | tuple[int, int]"]


@dataclass(frozen=True)
class Twin:
    compiled: ortisan.Compilation
    session: ort.InferenceSession
    stand_in: StandIn


def open_twin(model: Any, dims: Bounds, install: AitInstall, folder: Path, **options: Any) -> Twin:
    """The real library is registered on the way."""
    compiled = ortisan.compile(model, target="cuda:80", dims=dims, **options)
    products, steps, seconds = build_both(render_sources(compiled), compiled.name, install)
    library = products / f"lib{compiled.name}.so"
    share = compiled.flops_share()
    print(
        f"{compiled.name}: {len(steps) - 1} steps in {seconds:.0f} s, {library.stat().st_size / 1e6:.1f} MB, {share:.2%}"
    )
    assert share > 0.95
    ort.SessionOptions().register_custom_ops_library(str(library))
    stand_in = open_stand_in(products)
    save_with_external_data(substitute_ops(compiled), folder, compiled.name)
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 3
    chosen.register_custom_ops_library(str(products / f"lib{compiled.name}_stand_in.so"))
    path = str(folder / f"{compiled.name}.onnx")
    return Twin(compiled, ort.InferenceSession(path, chosen, providers=["CPUExecutionProvider"]), stand_in)
