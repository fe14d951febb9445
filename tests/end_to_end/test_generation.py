"""Greedy decoding gives the tokens that stock ONNX Runtime gives, with the cache copied and in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import ortisan
from examples.decoding import greedy
from ortisan.models import Gpt2Size, LlamaSize, gpt2, llama

pytestmark = pytest.mark.build

STEPS = 64
MODELS: dict[str, Callable[[], ir.Model]] = {
    "gpt2": lambda: gpt2(Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=211, positions=128)),
    "llama": lambda: llama(LlamaSize(layers=2, hidden=64, heads=4, kv_heads=2, intermediate=96, vocabulary=211)),
    "gpt2 124m": gpt2,
    "llama 8 layers": lambda: llama(LlamaSize(8, 512, 8, 2, 1376, 8000)),
}


def prompts(batch: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask [batch, 9]; every row but the first is shorter than the one before."""
    ids = np.random.default_rng(batch).integers(0, 200, (batch, 9))
    mask = np.ones_like(ids)
    for row in range(1, batch):
        mask[row, slice(0, 2 * row) if side == "left" else slice(9 - 2 * row, 9)] = 0
    return ids, mask


@pytest.mark.parametrize(
    "name", [name if " " not in name else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_the_same_tokens(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ir.save(MODELS[name](), path, external_data="model.onnx.data")
    stock = onnxruntime.InferenceSession(path)
    copying = ortisan.load(ortisan.build(path, tmp_path / "copying", keep="all", verify=False, tune="off"))
    in_place = ortisan.load(
        ortisan.build(path, tmp_path / "in_place", keep="all", verify=False, tune="off", cache="in-place")
    )
    seen: set[int] = set()
    for batch, side in ((1, "left"), (4, "left"), (4, "right")):
        ids, mask = prompts(batch, side)
        want = np.stack(list(greedy(stock, ids, mask, STEPS)))
        seen |= set(want.ravel().tolist())
        np.testing.assert_array_equal(np.stack(list(greedy(copying, ids, mask, STEPS))), want)
        # The buffer is longer than what is ever filled.
        np.testing.assert_array_equal(np.stack(list(greedy(in_place, ids, mask, STEPS, capacity=80))), want)
    # Random weights repeat themselves, but tokens that are all one would prove nothing.
    assert len(seen) > 5
