from __future__ import annotations

import numpy as np
import pytest
from arrays import values
from harness import Case

CLOSE = (1e-5, 1e-5)


def _case(name: str, b: int, h: int, s: int, t: int, d: int, e: int, mask: np.ndarray | None = None, kind: str = "none",
          empty: str = "softmax", causal: str = "none", dtype: object = np.float32, tolerance: tuple[float, float] = CLOSE) -> Case:  # fmt: skip
    inputs = {
        "q": values(b, h, s, d, dtype=dtype, high=2, low=-2), "k": values(b, h, t, d, dtype=dtype, seed=1, high=2, low=-2),
        "v": values(b, h, t, e, dtype=dtype, seed=2),
    }  # fmt: skip
    if mask is not None:
        inputs["mask"] = mask
    attributes = {"scale": d**-0.5, "mask": kind, "fully_masked": empty, "causal": causal}
    return Case(name, "Attention", inputs, attributes, domain="ortisan", ort=False, tolerance=tolerance)


def _additive(*shape: int, low: float = -3.4028235e38) -> np.ndarray:
    return np.where(values(*shape, dtype=bool, seed=5), 0.0, low).astype(np.float32)


def _all_masked(value: float) -> np.ndarray:
    mask = _additive(2, 1, 5, 9, low=value)
    mask[1, :, 2] = value
    return mask


CASES = [
    _case("tiny", 1, 1, 1, 1, 1, 1), _case("odd", 2, 3, 5, 7, 9, 11), _case("head_64", 2, 2, 33, 33, 64, 64), _case("blocks", 1, 2, 67, 129, 16, 16),
    _case("at_blocks", 1, 1, 66, 64, 32, 32), _case("head_256", 1, 1, 3, 70, 256, 256), _case("head_300", 1, 1, 3, 7, 300, 290),
    _case("no_queries", 1, 2, 0, 5, 8, 8), _case("no_keys", 1, 2, 3, 0, 8, 8), _case("no_batch", 0, 2, 3, 4, 8, 8),
    _case("additive_full", 2, 3, 5, 9, 8, 8, _additive(2, 3, 5, 9), "additive"),
    _case("additive_padding", 2, 3, 5, 9, 8, 8, _additive(2, 1, 1, 9), "additive"),
    _case("additive_2d", 2, 3, 5, 9, 8, 8, _additive(5, 9), "additive"),
    _case("additive_bias", 2, 3, 5, 9, 8, 8, values(1, 3, 5, 9), "additive"),
    _case("additive_infinite", 2, 3, 5, 9, 8, 8, _all_masked(-np.inf), "additive", "zero"),
    _case("additive_infinite_nan", 2, 3, 5, 9, 8, 8, _all_masked(-np.inf), "additive"),
    _case("additive_finite_row", 2, 3, 5, 9, 8, 8, _all_masked(-3.4028235e38), "additive"),
    _case("boolean", 2, 3, 5, 130, 8, 8, values(2, 1, 5, 130, dtype=bool), "boolean"),
    _case("boolean_empty_row", 2, 3, 5, 9, 8, 8, np.zeros((2, 1, 1, 9), bool), "boolean", "zero"),
    _case("boolean_empty_row_mean", 2, 3, 5, 70, 8, 8, np.zeros((2, 1, 1, 70), bool), "boolean"),
    _case("causal", 2, 3, 5, 5, 8, 8, causal="upper_left"), _case("causal_blocks", 1, 2, 140, 140, 16, 16, causal="upper_left"),
    _case("causal_past", 2, 3, 5, 12, 8, 8, causal="lower_right"), _case("causal_one_query", 2, 3, 1, 67, 8, 8, causal="lower_right"),
    _case("causal_past_blocks", 1, 2, 70, 140, 16, 16, causal="lower_right"), _case("causal_no_past_long_keys", 1, 2, 3, 140, 8, 8, causal="upper_left"),
    _case("causal_and_mask", 2, 3, 5, 9, 8, 8, _additive(2, 1, 5, 9), "additive", causal="lower_right"),
    _case("causal_and_padding", 2, 3, 9, 9, 8, 8, np.arange(9).reshape(1, 1, 1, 9) > 2, "boolean", "zero", causal="upper_left"),
    _case("causal_nothing_seen", 1, 1, 9, 4, 8, 8, causal="lower_right", empty="zero"), _case("causal_nothing_seen_nan", 1, 1, 9, 4, 8, 8, causal="lower_right"),
    _case("float64", 2, 3, 5, 9, 8, 8, dtype=np.float64), _case("float16", 2, 3, 5, 9, 8, 8, dtype=np.float16, tolerance=(5e-3, 5e-3)),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Case, batch) -> None:
    batch(CASES).check(case)
