"""Ops that opsets 23 and 24 brought: Attention, RMSNormalization, RotaryEmbedding, TensorScatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, compiles, refused
from tests.tolerances import APPROXIMATE, HALF_SOFTMAX


def _visible(*shape: int) -> np.ndarray:
    """Booleans in which every row has one that is true, but the first of all."""
    mask = values(*shape, dtype=bool, seed=7)
    mask[..., -1] = True
    mask[(0,) * (len(shape) - 1)] = False
    return mask


def _attention(
    name: str, sizes: str, *, mask: np.ndarray | None = None, past: int | None = None, counts: list[int] | None = None,
    dtype: Any = np.float32, opset: int = 24, ort: bool = True, outputs: int | None = None, **attributes: Any,
) -> Case:  # fmt: skip
    """`sizes` is "B H G S L D E": batch, query heads, key heads, queries, new keys, head sizes of keys and of values."""
    b, h, g, s, n, d, e = map(int, sizes.split())
    inputs: dict[str, np.ndarray | None] = {
        "q": values(b, h, s, d, dtype=dtype, low=-2, high=2), "k": values(b, g, n, d, dtype=dtype, seed=1, low=-2, high=2),
        "v": values(b, g, n, e, dtype=dtype, seed=2), "mask": mask,
        "past_k": None if past is None else values(b, g, past, d, dtype=dtype, seed=3, low=-2, high=2),
        "past_v": None if past is None else values(b, g, past, e, dtype=dtype, seed=4),
        "counts": None if counts is None else np.array(counts),
    }  # fmt: skip
    dims = {"q": ["B", h, "S", d], "k": ["B", g, "L" if n != s else "S", d], "v": ["B", g, "L" if n != s else "S", e],
            "past_k": ["B", g, "P", d], "past_v": ["B", g, "P", e], "counts": ["B"]}  # fmt: skip
    if attributes.pop("flat", False):
        for key, heads, size in (("q", h, d), ("k", g, d), ("v", g, e)):
            x = inputs[key]
            assert x is not None
            inputs[key] = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(b, x.shape[2], heads * size)
            dims[key] = ["B", dims[key][2], heads * size]
        attributes = {"q_num_heads": h, "kv_num_heads": g} | attributes
    while inputs and next(reversed(inputs.values())) is None:
        inputs.popitem()
    tolerance = HALF_SOFTMAX if dtype == np.float16 else APPROXIMATE
    return Case(
        name, "Attention", inputs, attributes, outputs=outputs or (1 if past is None else 3), opset=opset, dims=dims,
        tolerance=tolerance, ort=ort,
    )  # fmt: skip


# ONNX Runtime 1.31 refuses masks of one row, masks that are shorter than the keys, and windows.
ATTENTION = [
    _attention("plain", "2 3 3 5 7 8 6"), _attention("one", "1 1 1 1 1 1 1"), _attention("grouped", "2 6 2 5 5 8 8", scale=0.3),
    _attention("one_key_head", "2 4 1 1 67 64 64"), _attention("flat", "2 3 3 5 7 8 6", flat=True), _attention("flat_grouped", "1 6 2 3 3 4 4", flat=True),
    _attention("mask_2d", "2 3 3 5 7 8 8", mask=_visible(5, 7)), _attention("mask_3d", "2 3 3 5 7 8 8", mask=_visible(3, 5, 7)),
    _attention("mask_4d", "2 6 3 5 7 8 8", mask=_visible(2, 1, 5, 7)), _attention("mask_rows", "2 3 3 5 7 8 8", mask=_visible(2, 1, 1, 7), ort=False),
    _attention("added", "2 3 3 5 7 8 8", mask=values(3, 5, 7)), _attention("added_infinite", "2 3 3 5 7 8 8", mask=np.where(_visible(2, 3, 5, 7), 0.5, -np.inf).astype(np.float32)),
    _attention("added_lowest", "2 3 3 5 7 8 8", mask=np.where(_visible(2, 3, 5, 7), 0.5, np.finfo(np.float32).min).astype(np.float32)),
    _attention("causal", "2 3 3 5 5 8 8", is_causal=1), _attention("causal_mask", "2 3 3 5 5 8 8", mask=_visible(5, 5), is_causal=1),
    _attention("causal_long_keys", "2 3 3 3 7 8 8", is_causal=1), _attention("past", "2 6 2 3 3 8 6", past=4),
    _attention("past_causal", "2 3 3 5 5 8 8", past=9, is_causal=1, mask=values(5, 14)), _attention("past_one", "1 4 2 1 1 16 16", past=66, is_causal=1),
    _attention("past_empty", "1 2 2 3 3 8 8", past=0, is_causal=1), _attention("past_flat", "2 4 2 3 3 8 8", past=4, flat=True, is_causal=1),
    _attention("past_other_length", "2 3 3 2 5 8 8", past=4, is_causal=1), _attention("softcap", "2 3 3 5 7 8 8", softcap=1.5, mask=values(5, 7)),
    _attention("counts", "3 4 2 1 9 8 8", counts=[9, 1, 4]), _attention("counts_causal", "3 4 2 2 9 8 8", counts=[9, 2, 4], is_causal=1),
    _attention("counts_few", "2 2 2 3 5 8 8", counts=[1, 5], is_causal=1), _attention("counts_mask", "2 2 2 3 5 8 8", counts=[2, 5], mask=_visible(3, 5)),
    _attention("counts_short_mask", "2 2 2 3 5 8 8", counts=[2, 4], mask=values(3, 4), ort=False),
    _attention("half", "2 3 3 5 7 8 8", dtype=np.float16), _attention("precise", "2 3 3 5 7 8 8", softmax_precision=11),
    _attention("half_precise", "2 3 3 5 7 8 8", dtype=np.float16, softmax_precision=1),
    _attention("window", "2 3 3 9 9 8 8", opset=25, is_causal=1, left_window_size=2, ort=False),
    _attention("window_right", "2 3 3 4 9 8 8", opset=25, left_window_size=0, right_window_size=3, ort=False),
]  # fmt: skip


INFINITE = values(4, 16)
INFINITE[[0, 1, 2], [3, 4, 5]] = np.nan, np.inf, -np.inf


def _rms(name: str, x: np.ndarray, axis: int, scale: np.ndarray, **attributes: Any) -> Case:
    return Case(f"rms_{name}", "RMSNormalization", {"x": x, "scale": scale}, {"axis": axis, **attributes}, opset=24, tolerance=HALF_SOFTMAX if x.dtype == np.float16 else None)  # fmt: skip


RMS = [
    _rms("last", values(3, 5, 17), -1, values(17)), _rms("wide", values(2, 67), 1, values(67), epsilon=0.1), _rms("one", values(5, 1), -1, values(1)),
    _rms("two", values(2, 3, 5), 1, values(3, 5)), _rms("broadcast", values(2, 3, 5), 1, values(5)), _rms("infinite", INFINITE, -1, values(16)),
    _rms("none", values(0, 7), -1, values(7)), _rms("half", values(3, 33, dtype=np.float16), -1, values(33, dtype=np.float16)),
]  # fmt: skip


def _rotary(name: str, x: np.ndarray, dims: list[str | int | None], width: int, ids: np.ndarray | None, **attributes: Any) -> Case:  # fmt: skip
    rows = (12,) if ids is not None else (x.shape[0], x.shape[-2] if x.ndim == 4 else x.shape[1])
    inputs = {"x": x, "cos": values(*rows, width, seed=1), "sin": values(*rows, width, seed=2)}
    shapes: dict[str, list[str | int | None]] = {
        "x": dims,
        "cos": ["B", "S", width],
        "sin": ["B", "S", width],
        "ids": ["B", "S"],
    }
    if ids is not None:
        inputs["ids"] = ids
        shapes |= {"cos": ["M", width], "sin": ["M", width]}
    return Case(f"rotary_{name}", "RotaryEmbedding", inputs, attributes, opset=24, dims=shapes)


IDS = np.array([[0, 5, 11], [3, 3, 1]])
ROTARY = [
    _rotary("4d", values(2, 3, 3, 16), ["B", 3, "S", 16], 8, IDS), _rotary("3d", values(2, 3, 48), ["B", "S", 48], 8, IDS, num_heads=3),
    _rotary("part", values(2, 3, 3, 16), ["B", 3, "S", 16], 3, IDS, rotary_embedding_dim=6),
    _rotary("interleaved", values(2, 3, 3, 10), ["B", 3, "S", 10], 5, IDS, interleaved=1),
    _rotary("interleaved_part", values(2, 3, 30), ["B", "S", 30], 2, IDS, interleaved=1, rotary_embedding_dim=4, num_heads=3),
    _rotary("given", values(2, 3, 5, 8), ["B", 3, "S", 8], 4, None), _rotary("given_3d", values(2, 5, 24), ["B", "S", 24], 4, None, num_heads=3),
    _rotary("nothing", values(2, 3, 0, 8), ["B", 3, "S", 8], 4, None),
]  # fmt: skip


def _scatter(
    name: str, past: tuple[int, ...], rows: int, starts: list[int] | None, axis: int = -2, **attributes: Any
) -> Case:
    update = list(past)
    update[axis] = rows
    inputs = {"past": values(*past), "update": values(*update, seed=1)}
    dims: dict[str, list[str | int | None]] = {key: [f"{key if i == axis % len(past) else ''}{i}" for i in range(len(past))] for key in inputs}  # fmt: skip
    if starts is not None:
        inputs["starts"] = np.array(starts)
        dims["starts"] = ["0"]
    return Case(f"scatter_{name}", "TensorScatter", inputs, {"axis": axis, **attributes}, opset=24, dims=dims)


SCATTER = [
    _scatter("front", (2, 3, 9, 5), 2, None), _scatter("starts", (3, 2, 9, 5), 2, [0, 7, 4]), _scatter("whole", (2, 4, 5), 4, [0, 0]),
    _scatter("circular", (3, 2, 9, 5), 4, [7, 0, 8], mode="circular"), _scatter("axis", (2, 9, 3, 5), 1, [8, 3], axis=1), _scatter("nothing", (2, 4, 5), 0, [4, 2]),
]  # fmt: skip

CASES = [*ATTENTION, *RMS, *ROTARY, *SCATTER]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiles(case: Case) -> None:
    """`batch` leaves out what does not."""
    assert compiles(case)


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ops(case: Case, batch) -> None:
    batch(CASES).check(case)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (_attention("logits", "1 2 2 3 3 4 4", outputs=4), "query-key output"),
        (_attention("heads", "1 3 2 3 3 4 4"), "not a multiple"),
        (_attention("no_heads", "1 1 1 3 3 4 4", flat=True, q_num_heads=0), "into"),
        (_attention("precision", "1 2 2 3 3 4 4", softmax_precision=6), "softmax_precision"),
        (_rotary("wide", values(2, 3, 3, 8), ["B", 3, "S", 8], 5, IDS), "not half as wide"),
        (_scatter("batch", (2, 3, 4), 1, None, axis=0), "batch axis"),
        (_scatter("mode", (2, 3, 4), 1, None, mode="other"), "mode"),
    ],
    ids=str,
)
def test_refused(case: Case, reason: str) -> None:
    refused(case, reason)
