from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused


def _expand(name: str, shape: tuple[int, ...], to: list[int], dtype: object = np.float32, **more: object) -> Case:
    return Case(name, "Expand", {"x": values(*shape, dtype=dtype), "shape": np.array(to)}, constants=("shape",), **more)  # type: ignore[arg-type]


CASES = [
    _expand("rows", (3, 1), [3, 7]), _expand("more_dims", (3, 1), [2, 3, 5]), _expand("fewer_dims", (2, 3, 1), [4]), _expand("scalar", (), [3, 4]),
    _expand("same", (3, 4), [1, 4]), _expand("bool", (1, 5), [4, 5], dtype=bool), _expand("int64", (1, 5), [4, 5], dtype=np.int64), _expand("to_empty", (1, 5), [0, 5]),
    _expand("run_time", (1, 5), [4, 5], dims={"x": ["p", 5]}),
    Case("Tile", "Tile", {"x": values(2, 3), "repeats": np.array([2, 3])}, constants=("repeats",)), Case("Tile_1", "Tile", {"x": values(5), "repeats": np.array([1])}, constants=("repeats",)),
    Case("Tile_rank_4", "Tile", {"x": values(2, 3, 1, 2), "repeats": np.array([1, 2, 3, 2])}, constants=("repeats",)),
    Case("Tile_rank_6", "Tile", {"x": values(2, 1, 2, 1, 2, 3), "repeats": np.array([2, 1, 2, 2, 1, 2])}, constants=("repeats",)),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_expand(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(_expand("sizes", (3, 2), [3, 4], dynamic=False), "broadcast")
