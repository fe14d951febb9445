"""Attention's own kernels, executed from their PTX with all checks on, against the op's numpy reference.

Every kernel of every kind runs at every size: both are right wherever they could be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ortisan.emulator import Device, open_device
from ortisan.registry.graph import DimValues
from ortisan.registry.ops import Attention
from tests.gpu.flash import TYPES, Array, Kind, Run, compile_kinds, launch
from tests.tolerances import APPROXIMATE_BY_DTYPE, HALF_SOFTMAX

pytestmark = [pytest.mark.nvcc, pytest.mark.build]

PLAIN = Attention(0.3)
ADDED = Attention(0.3, "additive")
KEPT = Attention(0.3, "boolean")
KINDS = {
    kind.name: kind
    for kind in (
        Kind("float", 64, 64, PLAIN),
        Kind("float", 64, 64, ADDED),
        Kind("float", 32, 16, replace(KEPT, softcap=2.0)),
        Kind("float", 7, 13, replace(KEPT, empty_rows_zero=True)),
        Kind("float", 20, 12, replace(ADDED, causal="lower_right", nan_rows_zero=True)),
        Kind("float", 24, 40, replace(PLAIN, causal="upper_left")),
        Kind("float", 160, 128, replace(PLAIN, scale=0.06, causal="lower_right")),
        Kind("float", 256, 256, replace(ADDED, scale=0.06)),
        Kind("float", 288, 512, replace(PLAIN, scale=0.06)),
        Kind("float", 320, 40, replace(PLAIN, scale=0.05, causal="upper_left")),
        Kind("__half", 64, 64, ADDED),
        Kind("__half", 512, 512, replace(KEPT, scale=0.04)),
        Kind("__half", 40, 72, replace(KEPT, causal="lower_right", empty_rows_zero=True)),
        Kind("__half", 5, 33, replace(PLAIN, causal="upper_left", softcap=3.0)),
        Kind("__half", 256, 136, replace(KEPT, scale=0.06)),
        Kind("__nv_bfloat16", 64, 32, replace(ADDED, causal="lower_right")),
    )
}
SIZES = [(1, 2, 2, 1, 0, 1), (2, 4, 2, 3, 5, 16), (1, 3, 1, 17, 0, 33), (1, 2, 2, 65, 7, 64), (1, 1, 1, 5, 130, 4)]
"""Batch, heads, heads of keys, queries, past and new keys."""


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_kinds(list(KINDS.values()), tmp_path_factory.mktemp("flash"))


@pytest.fixture(scope="module")
def flash(ptx: str) -> Iterator[Device]:
    device = open_device()
    device.load(ptx)
    yield device
    device.forget()


def rows(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, step: int, *, wide: bool) -> Array:
    """[B,H,S,D] as columns of [B,S,more]: each row begins at a multiple of 16 bytes when `wide`, else at none."""
    batch, heads, count, size = shape
    columns = heads * size
    room = columns + (-columns % step + 2 * step if wide else 3)
    memory = random.standard_normal((batch, count, room)).astype(dtype)
    at = step if wide else 1
    return memory[:, :, at : at + columns].reshape(batch, count, heads, size).transpose(0, 2, 1, 3)


def made(kind: Kind, size: tuple[int, ...], *, wide: bool, seed: int = 1) -> Run:
    """Past rows lie head by head, the others where a product of all heads wrote them."""
    batch, heads, groups, queries, past, new = size
    dtype, random = TYPES[kind.element], np.random.default_rng(seed)
    old = [random.standard_normal((batch, groups, past, width)).astype(dtype) for width in (kind.head, kind.value)]
    q = rows(random, (batch, heads, queries, kind.head), dtype, kind.step, wide=wide)
    k, v = (rows(random, (batch, groups, new, width), dtype, kind.step, wide=wide) for width in (kind.head, kind.value))
    y = np.full((batch, queries, heads, kind.value), np.nan, dtype).transpose(0, 2, 1, 3)
    shape = [(1, 1, past + new), (batch, 1, 1, past + new), (batch, heads, queries, past + new), (queries, 1)][seed % 4]
    mask: Array | None = None
    if kind.op.mask == "additive":
        mask = (random.standard_normal(shape) - np.where(random.random(shape) < 0.3, np.inf, 0)).astype(dtype)
    elif kind.op.mask == "boolean":
        mask = random.random(shape) < 0.6
    return Run(q, (old[0], k), (old[1], v), mask, y)


def reference(op: Attention, run: Run) -> Array:
    k, v = (np.concatenate(parts, axis=2) for parts in (run.k, run.v))
    inputs = [run.q, k, v] + ([] if run.mask is None else [run.mask])
    if run.q.dtype == ml_dtypes.bfloat16:
        inputs = [x.astype("f4") if x.dtype == ml_dtypes.bfloat16 else x for x in inputs]
    return op.reference(inputs, DimValues({}))[0].astype("f8")


def check(device: Device, ptx: str, kind: Kind, run: Run, *, wide: bool) -> None:
    want = reference(kind.op, run)
    tolerance = HALF_SOFTMAX if run.q.dtype == np.float16 else APPROXIMATE_BY_DTYPE[run.q.dtype.name]
    for kernel in (*(f"thin{count}" for count in kind.rows), *(("tiles",) if kind.has_tiles else ())):
        run.y[...] = np.nan
        launch(device, ptx, kind, kernel, run, wide=wide)
        np.testing.assert_allclose(run.y.astype("f8"), want, tolerance, tolerance, err_msg=f"{kernel}, {wide=}")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_all_kinds(flash: Device, ptx: str, name: str, size: tuple[int, ...]) -> None:
    kind = KINDS[name]
    for wide in (True, False) if kind.may_be_wide else (False,):
        check(flash, ptx, kind, made(kind, size, wide=wide, seed=sum(size)), wide=wide)


def with_rows(run: Run, mask: Array, **elements: float) -> Run:
    """A mask of its own, and a special number in a key that is not the first."""
    for name, number in elements.items():
        getattr(run, name)[1][0, 0, 2, 3] = number
    return replace(run, mask=mask)


@pytest.mark.parametrize("name", [name for name in KINDS if "additive" in name or "boolean" in name])
def test_rows_without_keys(flash: Device, ptx: str, name: str) -> None:
    """Rows that see nothing are zeros, NaN or the mean of the values, as the op says; NaN stays in its row."""
    kind = KINDS[name]
    run = made(kind, (1, 2, 2, 6, 3, 20), wide=kind.may_be_wide)
    mask = np.ones((1, 1, 6, 23), bool)
    mask[0, 0, 1], mask[0, 0, 2, 1:] = False, False
    if kind.op.mask == "additive":
        numbers = np.where(mask, 0, -np.inf).astype(run.q.dtype)
        numbers[0, 0, 3] = ml_dtypes.finfo(numbers.dtype).min
        numbers[0, 0, 4, 7], numbers[0, 0, 5, 8] = np.nan, np.inf
        run = with_rows(run, numbers)
    else:
        run = with_rows(run, mask, k=np.nan)
    check(flash, ptx, kind, run, wide=kind.may_be_wide)


@pytest.mark.parametrize("name", ["Kfloat_64_64_none_none", "Khalf_40_72_boolean_lower_right_empty"])
def test_no_keys(flash: Device, ptx: str, name: str) -> None:
    kind = KINDS[name]
    check(flash, ptx, kind, made(kind, (2, 2, 1, 5, 0, 0), wide=True), wide=True)


@pytest.mark.parametrize("name", ["Kfloat_64_64_none_none", "Khalf_64_64_additive_none"])
def test_work_grows_with_the_keys(flash: Device, ptx: str, name: str) -> None:
    """One query of a decoder: as many instructions and bytes as there are keys, whatever room a cache has."""
    counts = []
    for keys in (512, 1024):
        run = made(KINDS[name], (1, 1, 1, 1, keys - 1, 1), wide=True)
        flash.reset_counters()
        launch(flash, ptx, KINDS[name], "thin1", run, wide=True)
        counts.append(flash.counters())
    few, many = counts
    assert 1.8 < many.instructions / few.instructions < 2.1
    assert 1.9 < many.global_load_bytes / few.global_load_bytes < 2.1
