from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import BFLOAT16, special, values
from tests.ops.harness import Case
from tests.tolerances import APPROXIMATE, HALF_SUMS, WIDE

# Below, at and above the register tile (6 x 16) and off it; prime and unit sizes; nothing at all.
SIZES = [(1, 1, 1), (1, 5, 3), (5, 15, 7), (6, 16, 8), (7, 17, 9), (13, 31, 29), (12, 32, 64), (131, 47, 53), (3, 16, 0), (0, 16, 4),
         (2, 100, 800)]  # fmt: skip

CASES = [
    Case(
        f"MatMul_{m}x{n}x{k}",
        "MatMul",
        {"x": values(m, k), "w": values(k, n, seed=1)},
        constants=("w",),
        tolerance=(APPROXIMATE, APPROXIMATE * max(k, 1)),
    )
    for m, n, k in SIZES
]
CASES += [
    Case(
        f"MatMul_3d_{m}x{n}x{k}",
        "MatMul",
        {"x": values(2, m, k), "w": values(k, n, seed=1)},
        constants=("w",),
        tolerance=APPROXIMATE,
    )
    for m, n, k in [(7, 17, 9), (1, 33, 5)]
]
CASES += [
    Case(f"MatMul_{np.dtype(t)}", "MatMul", {"x": values(7, 9, dtype=t), "w": values(9, 19, dtype=t, seed=1)}, constants=("w",),
         ort=t not in (np.float16, BFLOAT16), tolerance=HALF_SUMS if np.dtype(t).itemsize == 2 else APPROXIMATE)
    for t in (np.float64, np.float16, BFLOAT16, np.int32, np.int64, np.uint32)
]  # fmt: skip
CASES += [
    Case("MatMul_special", "MatMul", {"x": special(9, 16), "w": values(16, 20)}, constants=("w",), tolerance=WIDE),
    Case("MatMul_run_time_weight", "MatMul", {"x": values(3, 5, 9), "w": values(9, 17, seed=1)}, tolerance=APPROXIMATE),
    Case(
        "MatMul_vector_left",
        "MatMul",
        {"x": values(9), "w": values(9, 17, seed=1)},
        constants=("w",),
        tolerance=APPROXIMATE,
    ),
    Case(
        "MatMul_vector_right",
        "MatMul",
        {"x": values(4, 9), "w": values(9, seed=1)},
        constants=("w",),
        tolerance=APPROXIMATE,
    ),
    Case(
        "MatMul_two_vectors",
        "MatMul",
        {"x": values(9), "w": values(9, seed=1)},
        constants=("w",),
        tolerance=APPROXIMATE,
    ),
]
GEMMS = {
    "plain": {}, "transB": {"transB": 1}, "transA": {"transA": 1}, "both": {"transA": 1, "transB": 1},
    "alpha": {"alpha": 0.3}, "beta": {"beta": 1.7}, "alpha_beta": {"alpha": 0.3, "beta": 1.7, "transB": 1},
}  # fmt: skip
for _name, _attributes in GEMMS.items():
    _x = values(9, 7) if _attributes.get("transA") else values(7, 9)
    _w = values(19, 9, seed=1) if _attributes.get("transB") else values(9, 19, seed=1)
    for _constant in (("w", "c"), ("w",), ()):
        CASES.append(
            Case(
                f"Gemm_{_name}_{''.join(_constant)}",
                "Gemm",
                {"x": _x, "w": _w, "c": values(19, seed=2)},
                _attributes,
                constants=_constant,
                tolerance=APPROXIMATE,
            )
        )
CASES += [
    Case(
        f"Gemm_c_{i}",
        "Gemm",
        {"x": values(7, 9), "w": values(9, 19, seed=1), "c": c},
        constants=("w", "c"),
        tolerance=APPROXIMATE,
    )
    for i, c in enumerate([values(7, 19), values(7, 1), values(1, 19), values(1), np.float32(3).reshape(())])
]
CASES += [
    Case("Gemm_no_c", "Gemm", {"x": values(7, 9), "w": values(9, 19, seed=1)}, constants=("w",), tolerance=APPROXIMATE)
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gemm(case: Case, batch) -> None:
    batch(CASES).check(case)
