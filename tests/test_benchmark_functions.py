"""What benchmarks.functions times is what it says; nothing here depends on how fast anything is."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.functions import BEGIN, END, FUNCTIONS, Speed, build, measure, table
from benchmarks.tables import put_between_marks
from ortisan.errors import OptionError
from ortisan.registry.scalars import SCALARS
from tests.tolerances import SAME

MEANINGS = {row.cpp: row.reference for row in SCALARS.values()}
MEANINGS |= {"expm1": np.expm1, "log1p": np.log1p}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("functions"))


def run(library: ctypes.CDLL, name: str, x: Any, z: Any) -> Any:
    y = np.full(x.size + 1, 7, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, z, y)]
    assert library.seconds_of(name.encode(), ctypes.c_int64(x.size), *pointers, ctypes.c_int64(1)) >= 0
    assert y[-1] == 7
    return y[:-1]


@pytest.mark.build
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_computes_what_its_name_says(name: str, library: ctypes.CDLL) -> None:
    function = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    for length in (0, 1, 9, 512, 1031):
        x, z = (rng.uniform(function.low, function.high, length).astype(np.float32) for _ in range(2))
        operands = [array.astype(np.float64) for array in (x, z)[: function.arity]]
        expected = np.asarray(MEANINGS[name](*operands), np.float64) if length else np.empty(0)
        np.testing.assert_allclose(run(library, name, x, z), expected, SAME, SAME, err_msg=f"{name} of {length}")


@pytest.mark.build
def test_a_function_that_numpy_lacks_is_timed_without_it(library: ctypes.CDLL) -> None:
    speed = measure(library, "erf", 0.01)
    assert speed.numpy is None
    assert speed.ort is not None
    assert math.isfinite(speed.ours)


@pytest.mark.build
def test_an_unknown_function_is_named(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "nothing", FUNCTIONS["erf"])
    with pytest.raises(OptionError, match=r"'nothing' is in benchmarks/functions\.py and not in"):
        measure(library, "nothing", 0.01)


def test_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    text = table([Speed("erf", 0.5, None, 1.0)])
    assert text.splitlines()[-1] == "| erf | 0.50 | - | 1.00 | - | 2.0 |"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put_between_marks(page, text, BEGIN, END)
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n{text}\n\n{END}\nafter\n"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(OptionError, match="lacks the lines"):
        put_between_marks(page, text, BEGIN, END)
