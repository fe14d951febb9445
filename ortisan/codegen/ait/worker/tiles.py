"""Chooses the tile of a matrix product by its size, where no GPU can time them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TILE = re.compile(r"(\d+)x(\d+)_(\d+)x(\d+)")
_AIM = {True: (128, 128), False: (64, 64)}
_STAGES = 3


def problem_size(workload: str) -> tuple[int, int]:
    """The upper ends of M and N in a key such as 'M >= 1 && M <= 512 && N == 768'."""
    sizes = {}
    for name in ("M", "N"):
        numbers = [int(n) for n in re.findall(rf"\b{name} (?:==|<=) (\d+)", workload)]
        sizes[name] = max(numbers, default=1)
    return sizes["M"], sizes["N"]


def choose_tile(names: Sequence[str], size: tuple[int, int] | None) -> str:
    """A tile no larger than the product calls for, with a few stages; a fixed order where several are alike."""
    rows, columns = size or (128, 128)
    aim = tuple(_AIM[extent > 96][0] if extent > 32 else 32 for extent in (rows, columns))

    def cost(name: str) -> tuple[int, int, int, str]:
        match = _TILE.search(name)
        if match is None:
            return (10**6, 0, 0, name)
        m, n, k, stages = (int(number) for number in match.groups())
        return (abs(m - aim[0]) + abs(n - aim[1]), abs(k - 32), abs(stages - _STAGES), name)

    return min(names, key=cost)
