"""gemm.h under every blocking that tuning may try: the bits don't change. What blockings come to, and what Python repeats."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.cpu.isa import ISAS
from ortisan.codegen.cpu.packing import panel_width
from ortisan.codegen.cpu.tune.blocking import (
    DEFAULT,
    LARGEST_BAND,
    Blocking,
    Problem,
    as_numbers,
    candidates,
    distinct,
)
from ortisan.codegen.tools.toolchain import Compiler
from ortisan.registry.dtypes import DType
from tests.cpp.conftest import FLAGS, HEADERS
from tests.cpp.remote import Pointer

pytestmark = pytest.mark.build
RNG = np.random.default_rng(7)
SIZES = [(1, 33, 900), (1, 130, 64), (2, 50, 801), (3, 100, 40), (7, 65, 1100), (131, 40, 300), (259, 31, 70)]


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("product_driver")
    lib.packed_count.restype = ctypes.c_int64
    return lib


def launch(
    driver: ctypes.CDLL, dtype: DType, rows: int, columns: int, depth: int, blocking: Blocking
) -> tuple[int, ...]:
    out = np.zeros(4, np.int64)
    numbers = [ctypes.c_int64(int(number)) for number in (rows, columns, depth, *as_numbers(blocking))]
    driver.launch_of(dtype.value.encode(), *numbers, Pointer(out))
    return tuple(out.tolist())


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
    tried = candidates(Problem(dtype, depth, (columns,), rows), "full")
    launches = [launch(driver, dtype, rows, columns, depth, blocking) for blocking in tried]
    for blocking in distinct(tried, launches):
        out = np.full((rows, columns), 99).astype(dtype.numpy)
        numbers = [ctypes.c_int64(int(number)) for number in as_numbers(blocking)]
        lda, *strides = steps
        arrays = [Pointer(array) for array in (a, b, bias, packed, out)]
        assert driver.gemm_array(name, *sizes, arrays[0], lda, arrays[1], *strides, *arrays[2:], *numbers) == 1
        results.add(out.tobytes())
    driver.set_threads(1)
    assert len(results) == 1


def test_python_repeats_the_limits_of_the_kernels(driver: ctypes.CDLL) -> None:
    limits = np.zeros(5, np.int64)
    driver.blocking_limits(Pointer(limits))
    assert tuple(limits) == (*as_numbers(DEFAULT), LARGEST_BAND)
    driver.panel_width_of.restype = ctypes.c_int64
    for dtype in (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16, DType.INT32, DType.INT8, DType.UINT64):
        assert driver.panel_width_of(dtype.value.encode()) == panel_width(dtype)


LAUNCHES = """
#include "launch.h"
using namespace ortisan;
constexpr bool same(const Launch& a, const Launch& b) {
  return a.depth == b.depth && a.bands == b.bands && a.groups == b.groups && a.prefetch == b.prefetch;
}
constexpr Blocking model = {768, 128, 100000, true}, half_depth = {384, 128, 100000, true}, silent = {768, 128, 100000, false};
template <class T = float>
constexpr bool alike(int64_t rows, int64_t panels, const Blocking& other) {
  return same(launch<T>(rows, 768, panels, model), launch<T>(rows, 768, panels, other));
}
"""
EVERYWHERE = """
static_assert(!alike(128, 48, half_depth) && !alike(1, 48, half_depth), "where there is one tile or many, depth counts");
static_assert(alike(1, 48, silent) && alike(6, 48, silent), "a single tile fetches nothing");
static_assert(alike<half>(128, 48, half_depth), "converted types have a depth of their own");
static_assert(alike<double>(128, 48, silent), "only tiles in assembly fetch");
"""
OF_ISA = {
    "x86-64-v2": """
static_assert(!alike(5, 48, half_depth), "one panel at a time");
static_assert(alike(128, 48, silent), "the tile in C++ does not fetch");
""",
    "x86-64-v3": """
static_assert(alike(4, 48, half_depth) && alike(5, 48, half_depth) && alike(6, 48, half_depth), "two thin tiles have a depth");
static_assert(!alike(5, 47, half_depth), "but the last panel is alone");
static_assert(!alike(3, 48, half_depth) && !alike(7, 48, half_depth), "one tile has not");
static_assert(!alike(128, 48, silent) && !alike<half>(128, 48, silent), "many tiles fetch");
""",
    "x86-64-v4": """
static_assert(!alike(5, 48, half_depth), "one tile over two panels");
static_assert(!alike(128, 48, silent), "many tiles fetch");
""",
}


@pytest.mark.parametrize("name", OF_ISA)
def test_what_blockings_come_to(name: str, compiler: Compiler, tmp_path: Path) -> None:
    if compiler.machine != ISAS[name].machine:
        pytest.skip(f"{compiler.argv[0]} does not build for {name}")
    source = tmp_path / "launches.cpp"
    source.write_text(LAUNCHES + EVERYWHERE + OF_ISA[name], encoding="utf-8")
    includes = [f"-I{folder}" for folder in HEADERS]
    command = [*compiler.argv, *FLAGS, *ISAS[name].flags, *includes, "-fsyntax-only", str(source)]
    subprocess.run(command, check=True)


def test_a_shape_that_no_tile_has_does_not_compile(compiler: Compiler, tmp_path: Path) -> None:
    source = tmp_path / "shape.cpp"
    call = "(1, 1, nullptr, 1, nullptr, 1, 1, nullptr, 1, false, {})"
    for shape, error in (("float, 1, 4", ""), ("float, 2, 4", "no register tile"), ("half, 1, 1", "no register tile")):
        text = f'#include "tile.h"\nvoid f() {{ using namespace ortisan; detail::add_shape<{shape}>{call}; }}\n'
        source.write_text(text, encoding="utf-8")
        command = [*compiler.argv, "-std=c++17", "-fsyntax-only", *(f"-I{folder}" for folder in HEADERS), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (error == ""), done.stderr
        assert error in done.stderr
