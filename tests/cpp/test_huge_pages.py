"""The rule of weights = auto, and what it is told of the machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from ortisan.codegen.render import TEMPLATES

pytestmark = pytest.mark.build

MB = 1 << 20
NONE = 2**64 - 1
ORT = TEMPLATES / "cpu" / "glue"
MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(scope="module")
def lib(compile_driver: Callable[..., Path]) -> ctypes.CDLL:
    found = ctypes.CDLL(str(compile_driver("pages_driver", "-shared", "-fPIC", f"-I{ORT}")))
    for name in ("read_number", "left_of", "free_bytes"):
        getattr(found, name).restype = ctypes.c_uint64
    found.copy_pays.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64]
    found.left_of.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    found.take_pages.argtypes = [ctypes.c_size_t]
    found.take_pages.restype = ctypes.c_void_p
    found.give_pages_back.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


@pytest.mark.parametrize(
    "thin, megabytes, huge_pages, free_megabytes, pays",
    [
        (True, 100, True, 400, True),
        (True, 100, True, 399, False),
        (False, 100, True, 4000, False),
        (True, 100, False, 4000, False),
        (True, 2, True, 4000, True),
        (True, 1, True, 4000, False),
        (True, 100, True, NONE // MB, True),
        (True, 100, True, 0, False),
    ],
)
def test_a_copy_pays_for_few_rows_and_much_memory(
    lib: ctypes.CDLL, thin: bool, megabytes: int, huge_pages: bool, free_megabytes: int, pays: bool
) -> None:
    assert bool(lib.copy_pays(thin, megabytes * MB, huge_pages, free_megabytes * MB)) is pays


@pytest.mark.parametrize(
    "text, key, number",
    [
        ("12345\n", "", 12345),
        ("max\n", "", NONE),
        ("MemTotal: 9 kB\nMemAvailable:    77 kB\n", "MemAvailable:", 77),
        ("MemTotal: 9 kB\n", "MemAvailable:", NONE),
        ("", "", NONE),
    ],
)
def test_numbers_of_files(lib: ctypes.CDLL, tmp_path: Path, text: str, key: str, number: int) -> None:
    (tmp_path / "file").write_text(text)
    assert lib.read_number(str(tmp_path / "file").encode(), key.encode()) == number
    assert lib.read_number(str(tmp_path / "none").encode(), key.encode()) == NONE


@pytest.mark.parametrize("limit, used, left", [(10, 4, 6), (10, 11, 0), (NONE, 4, NONE), (10, NONE, NONE)])
def test_what_a_limit_leaves(lib: ctypes.CDLL, limit: int, used: int, left: int) -> None:
    assert lib.left_of(limit, used) == left


@pytest.mark.skipif(not MODES.is_file(), reason="this kernel has no transparent huge pages")
def test_this_machine(lib: ctypes.CDLL) -> None:
    assert bool(lib.offers_huge_pages()) == ("[never]" not in MODES.read_text())
    total = lib.read_number(b"/proc/meminfo", b"MemTotal:") * 1024
    assert 0 < lib.free_bytes() <= total


@pytest.mark.skipif(not MODES.is_file() or "[never]" in MODES.read_text(), reason="this machine has no huge pages")
@pytest.mark.parametrize("size", [1, 2 * MB, 5 * MB])
def test_pages_start_on_their_boundary_and_can_be_written(lib: ctypes.CDLL, size: int) -> None:
    for _ in range(20):
        start = lib.take_pages(size)
        assert start % (2 * MB) == 0
        ctypes.memset(start, 7, size)
        assert flagged(start)
        lib.give_pages_back(start, size)
        assert not flagged(start)


def test_too_much_is_refused(lib: ctypes.CDLL) -> None:
    assert lib.take_pages(1 << 60) is None


def flagged(start: int) -> bool:
    """Whether memory that asks for huge pages is mapped there."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(number, 16) for number in first.split("-"))
            inside = low <= start < high
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    return False
