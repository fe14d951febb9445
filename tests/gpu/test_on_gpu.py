"""On a real GPU: what is compiled gives what stock ONNX Runtime gives on the CPU. `make gpu-test` runs it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import ortisan
from ortisan.checks.samples import Sampler
from ortisan.codegen.tools.toolchain import gpu_architectures
from ortisan.models import bert, gpt2
from tests.gpu.test_big_models_gpu import BERT_DIMS, GPT2_DIMS, NARROW_BERT, NARROW_GPT2
from tests.gpu.test_gpu_artifact import mlp

pytestmark = [pytest.mark.gpu, pytest.mark.aitemplate, pytest.mark.nvcc]

MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp, {"batch": (1, 64)}),
    "bert": (lambda: bert(NARROW_BERT), BERT_DIMS),
    "gpt2": (lambda: gpt2(NARROW_GPT2), GPT2_DIMS),
}
VARIANTS: dict[str, dict[str, Any]] = {"fp32": {}, "tf32": {"tf32": True}, "fp16": {"precision": "fp16"}}


def target() -> str:
    return f"cuda:{gpu_architectures()[0]}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MODELS)
def test_results_agree(name: str, variant: str, tmp_path: Path) -> None:
    """`build` verifies on samples of several sizes, and fails where they differ by more than the tolerance."""
    make, dims = MODELS[name]
    model = make()
    if isinstance(model, ir.Model):
        ir.save(model, tmp_path / f"{name}.onnx", external_data=f"{name}.onnx.data")
        model = tmp_path / f"{name}.onnx"
    artifact = ortisan.build(
        model, tmp_path / "out", target=target(), dims=dims, keep="all", tune="off", **VARIANTS[variant]
    )
    assert artifact.verification is not None
    print(f"{name} {variant}: {artifact!r}")


def test_many_threads_and_sessions(tmp_path: Path) -> None:
    artifact = ortisan.build(mlp(), tmp_path / "out", target=target(), dims={"batch": (1, 64)}, keep="all", tune="off")
    sessions = [ortisan.load(artifact) for _ in range(2)]
    feeds = next(iter(Sampler(mlp(), {"batch": (1, 64)}).timed())).feeds
    expected = sessions[0].run(None, feeds)[0]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            if not np.array_equal(sessions[number % 2].run(None, feeds)[0], expected):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
