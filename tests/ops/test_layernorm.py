from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case
from tests.tolerances import BLOCK


def _norm(name: str, shape: tuple[int, ...], axis: int = -1, **more: object) -> Case:
    normal = shape[axis:]
    inputs = {"x": values(*shape), "scale": values(*normal, seed=1), "bias": values(*normal, seed=2)}
    return Case(name, "LayerNormalization", inputs, {"axis": axis}, tolerance=BLOCK, dynamic=False, **more)  # type: ignore[arg-type]


CASES = [_norm(f"rows_{n}", (3, n)) for n in (1, 7, 8, 9, 67, 768)]
CASES += [
    _norm("axis_1", (3, 5, 7), 1),
    _norm("one_row", (9,)),
    _norm("empty", (0, 9)),
    _norm("outputs", (2, 3, 9), outputs=3),
]
CASES += [
    Case("dynamic_rows", "LayerNormalization", {"x": values(2, 5, 16), "scale": values(16), "bias": values(16)}, constants=("scale", "bias"), tolerance=BLOCK,
         dims={"x": ["b", "s", 16]}),
    Case("no_bias", "LayerNormalization", {"x": values(3, 16), "scale": values(16, seed=1)}, {"epsilon": 1e-3}, tolerance=BLOCK),
    Case("float64", "LayerNormalization", {k: values(*s, dtype=np.float64) for k, s in {"x": (3, 16), "scale": (16,), "bias": (16,)}.items()}),
    Case("float16", "LayerNormalization", {k: values(*s, dtype=np.float16) for k, s in {"x": (3, 16), "scale": (16,), "bias": (16,)}.items()}, ort=False, tolerance=(1e-2, 1e-2)),
    Case("far_from_zero", "LayerNormalization", {"x": values(3, 64) + 1e3, "scale": values(64), "bias": values(64)}, tolerance=(1e-3, 1e-3)),
    Case("special", "LayerNormalization", {"x": np.float32([[1, np.nan, 2], [np.inf, 0, 1], [0, 0, 0]]), "scale": values(3), "bias": values(3)}, ort=False),
    Case("BatchNormalization", "BatchNormalization", {"x": values(2, 5, 7), "s": values(5), "b": values(5), "m": values(5), "v": values(5, low=0.1)}, tolerance=BLOCK),
    Case("BatchNormalization_constants", "BatchNormalization", {"x": values(2, 5), "s": values(5), "b": values(5), "m": values(5), "v": values(5, low=0.1)}, constants=("s", "b", "m", "v"), tolerance=BLOCK),
    Case("InstanceNormalization", "InstanceNormalization", {"x": values(2, 5, 7, 3), "s": values(5), "b": values(5, seed=1)}, tolerance=BLOCK),
    Case("GroupNormalization", "GroupNormalization", {"x": values(2, 6, 7, 3), "s": values(6), "b": values(6, seed=1)}, {"num_groups": 3}, opset=21, dynamic=False, tolerance=BLOCK),
    Case("LpNormalization_2", "LpNormalization", {"x": values(3, 9)}, {"axis": 1}), Case("LpNormalization_1", "LpNormalization", {"x": values(3, 9)}, {"axis": 0, "p": 1}),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_layernorm(case: Case, batch) -> None:
    batch(CASES).check(case)
