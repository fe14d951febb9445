from __future__ import annotations

import numpy as np
import pytest

from ortisan.registry.ops import Attention
from ortisan.registry.refusal import Refused
from tests.ops.arrays import values
from tests.ops.harness import Case
from tests.ops.op_graphs import GraphBatch, GraphCase
from tests.tolerances import APPROXIMATE, HALF_SOFTMAX, SAME


def _case(name: str, b: int, h: int, s: int, t: int, d: int, e: int, mask: np.ndarray | None = None, kind: str = "none",
          empty: str = "softmax", causal: str = "none", dtype: object = np.float32, tolerance: float = APPROXIMATE) -> Case:  # fmt: skip
    inputs = {
        "q": values(b, h, s, d, dtype=dtype, high=2, low=-2), "k": values(b, h, t, d, dtype=dtype, seed=1, high=2, low=-2),
        "v": values(b, h, t, e, dtype=dtype, seed=2),
    }  # fmt: skip
    if mask is not None:
        inputs["mask"] = mask
    attributes = {"scale": d**-0.5, "mask": kind, "causal": causal, "guarded": int(empty == "zero"),
                  "hidden": float("-inf") if empty == "zero" else float(np.finfo(np.float32).min)}  # fmt: skip
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
    _case("float64", 2, 3, 5, 9, 8, 8, dtype=np.float64), _case("float16", 2, 3, 5, 9, 8, 8, dtype=np.float16, tolerance=HALF_SOFTMAX),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Case, batch) -> None:
    batch(CASES).check(case)


def _grouped(name: str, heads: int, group: int, s: int, t: int, d: int = 8, mask: np.ndarray | None = None, dtype: object = np.float32,
             dims: object = None, tolerance: float = APPROXIMATE, **options: object) -> GraphCase:  # fmt: skip
    inputs = {
        "q": values(2, heads, s, d, dtype=dtype, high=2, low=-2), "k": values(2, heads // group, t, d, dtype=dtype, seed=1, high=2, low=-2),
        "v": values(2, heads // group, t, d, dtype=dtype, seed=2),
    }  # fmt: skip
    if mask is not None:
        inputs["mask"] = mask
        options["mask"] = "boolean" if mask.dtype == bool else "additive"
    op = Attention(d**-0.5, **options)  # type: ignore[arg-type]
    return GraphCase(name, inputs, lambda b, *v: b.add(op, *v), dims or {}, tolerance)  # type: ignore[arg-type]


GROUPS = [_grouped(f"group_{group}_of_{heads}_{s}x{t}", heads, group, s, t) for group, heads in ((1, 2), (2, 4), (4, 4), (8, 16))
          for s, t in ((1, 65), (3, 9), (67, 70))]  # fmt: skip
GROUPS += [
    _grouped("group_mask", 6, 3, 5, 70, mask=values(2, 6, 5, 70, dtype=bool), empty_rows_zero=True),
    _grouped("group_causal", 6, 3, 5, 70, causal="lower_right"), _grouped("group_head_64", 4, 2, 2, 200, 64), _grouped("group_head_300", 4, 2, 2, 70, 300),
    _grouped("group_float16", 4, 2, 2, 70, 64, dtype=np.float16, tolerance=HALF_SOFTMAX), _grouped("group_float64", 4, 2, 2, 70, dtype=np.float64),
    _grouped("group_symbolic", 4, 2, 3, 9, dims={"q": ["b", "h", "s", 8], "k": ["b", "g", "t", 8], "v": ["b", "g", "t", 8]}),
    _grouped("softcap", 4, 1, 5, 70, softcap=0.5), _grouped("softcap_wide", 4, 2, 67, 70, softcap=50.0), _grouped("softcap_causal", 4, 2, 5, 70, softcap=0.5, causal="lower_right"),
    _grouped("softcap_boolean", 4, 2, 5, 70, mask=values(2, 1, 5, 70, dtype=bool), softcap=0.5), _grouped("softcap_additive", 4, 2, 5, 70, mask=_additive(5, 70), softcap=0.5),
    _grouped("softcap_bias", 4, 2, 1, 70, mask=values(4, 1, 70), softcap=0.5), _grouped("softcap_float16", 4, 2, 5, 9, softcap=0.5, dtype=np.float16, tolerance=HALF_SOFTMAX),
    _grouped("softcap_float64", 4, 2, 5, 9, softcap=0.5, dtype=np.float64),
]  # fmt: skip
GROUP_BATCH = GraphBatch(GROUPS, "attention_groups")


@pytest.mark.build
@pytest.mark.parametrize("case", GROUPS, ids=str)
def test_grouped_and_capped_attention(case: GraphCase) -> None:
    GROUP_BATCH.check(case)


def test_grouped_heads_mean_repeated_heads() -> None:
    case = _grouped("groups", 6, 3, 2, 5)
    inputs = dict(case.inputs)
    for name in "kv":
        inputs[name] = np.repeat(inputs[name], 3, axis=1)
    whole = GraphCase("whole", inputs, lambda b, *v: b.add(Attention(8**-0.5), *v))
    np.testing.assert_allclose(case.reference()[0], whole.reference()[0], SAME)


def test_softcap_bounds_the_logits_before_the_mask() -> None:
    """With a small cap all visible keys weigh nearly the same; hidden ones still have no weight."""
    mask = np.arange(9).reshape(1, 1, 1, 9) < 4
    (got,) = _grouped("capped", 2, 1, 3, 9, mask=mask, softcap=1e-4).reference()
    v = values(2, 2, 9, 8, seed=2)
    np.testing.assert_allclose(got, np.repeat(v[:, :, :4].mean(2, keepdims=True), 3, axis=2), atol=1e-3)


@pytest.mark.parametrize(
    ("case", "reason"),
    [(_grouped("uneven", 3, 1, 2, 5, dims={"q": [2, 4, 2, 8]}), "4 is not a multiple of 3"), (_grouped("cap", 2, 1, 2, 5, softcap=-1.0), "softcap that is 0 or positive")],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(case: GraphCase, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        case.graph  # noqa: B018
