"""gemm.h under every blocking that tuning may try: the bits don't change. And the table of blockings by rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from ortisan.codegen.cpu.tune.blocking import Problem, as_numbers, candidates
from ortisan.registry.dtypes import DType
from tests.cpp.remote import Pointer

pytestmark = pytest.mark.build
RNG = np.random.default_rng(7)
SIZES = [(1, 33, 900), (1, 130, 64), (2, 50, 801), (3, 100, 40), (7, 65, 1100), (131, 40, 300), (259, 31, 70)]


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("product_driver")
    lib.packed_count.restype = ctypes.c_int64
    return lib


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("rows, columns, depth", SIZES)
def test_no_candidate_changes_a_bit(
    rows: int, columns: int, depth: int, dtype: DType, threads: int, driver: ctypes.CDLL
) -> None:
    a, b, bias = (RNG.normal(size=size).astype(dtype.numpy) for size in ((rows, depth), (depth, columns), columns))
    name = dtype.value.encode()
    driver.set_threads(threads)
    packed = np.zeros(driver.packed_count(name, ctypes.c_int64(depth), ctypes.c_int64(columns)), dtype.numpy)
    sizes = [ctypes.c_int64(size) for size in (rows, columns, depth)]
    steps = [ctypes.c_int64(step) for step in (depth, columns, 1)]
    results = set()
    for blocking in candidates(Problem(dtype, depth, (columns,), rows), "full"):
        out = np.full((rows, columns), 99).astype(dtype.numpy)
        numbers = [ctypes.c_int64(int(number)) for number in as_numbers(blocking)]
        lda, *strides = steps
        arrays = [Pointer(array) for array in (a, b, bias, packed, out)]
        assert driver.gemm_array(name, *sizes, arrays[0], lda, arrays[1], *strides, *arrays[2:], *numbers) == 1
        results.add(out.tobytes())
    driver.set_threads(1)
    assert len(results) == 1
