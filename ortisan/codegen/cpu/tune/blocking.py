"""How matrix products are blocked: `Blocking` of templates/cpu/products/blocking.h as data. Results never depend on it.

A blocking is chosen for a product (its element type, depth and columns) and a number of rows. Where the rows are
symbolic, one is chosen for each of a few numbers of rows, and the kernel picks by the rows it gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Literal, TypeAlias

from ortisan.codegen.cpu.packing import panel_width
from ortisan.registry.dtypes import DType

VERSION = 3
"""Raise it when the candidates or the cost model change: choices made among others don't count."""

_PANEL_BYTES = 48 << 10
"""What a panel of one block of k may have to stay near: in an L1 cache of 32 KB and a part of an L2 cache of 512 KB."""
_LARGEST = 2**31 - 1
LARGEST_BAND = 256
"""Bands of more rows are cut to it: `largest_band` of templates/cpu/products/launch.h."""
_ROWS = ((1, 3), (8, 16), (32, 64), (128, 256), (512, None))
"""Rows that a blocking is chosen at, and the most rows it serves: up to the geometric mean with the next."""


@dataclass(frozen=True)
class Blocking:
    """`depth`: k per block. `band`: rows of a task. `work`: multiplications of a task. `prefetch`: the next panel."""

    depth: int
    band: int
    work: int
    prefetch: bool

    def __post_init__(self) -> None:
        for number in (self.depth, self.band, self.work):
            if not isinstance(number, int) or not 1 <= number <= _LARGEST:
                raise ValueError(f"{number!r} is no number of a blocking, which are 1 to {_LARGEST}")


DEFAULT = Blocking(768, 128, 100_000, True)


@dataclass(frozen=True)
class BlockingUpTo:
    """A row of a kernel's table; `rows` None serves any number."""

    rows: int | None
    blocking: Blocking


BlockingTable: TypeAlias = tuple[BlockingUpTo, ...]


@dataclass(frozen=True)
class Problem:
    """A product of one size; several `columns` are products of one input that run as one."""

    dtype: DType
    depth: int
    columns: tuple[int, ...]
    rows: int

    @property
    def panels(self) -> int:
        width = panel_width(self.dtype)
        return sum(-(-n // width) for n in self.columns)

    @property
    def weight_bytes(self) -> int:
        return self.panels * panel_width(self.dtype) * self.depth * self.dtype.size

    @property
    def work(self) -> int:
        return self.rows * self.depth * sum(self.columns)

    def __str__(self) -> str:
        return f"{self.dtype.value} {self.rows}x{self.depth}x{'+'.join(map(str, self.columns))}"


@dataclass(frozen=True)
class Product:
    """A product of a graph, whose rows are between `low` and `high` (None: any number)."""

    dtype: DType
    depth: int
    columns: tuple[int, ...]
    low: int
    high: int | None

    def sizes(self) -> Iterator[tuple[Problem, int | None]]:
        """What to choose blockings for, and the most rows each choice serves."""
        low = max(self.low, 1)
        high = None if self.high is None else max(self.high, low)
        if low == high:
            yield self._problem(low), None
            return
        for rows, last in _ROWS:
            if last is not None and last < low:
                continue
            end = last is None or (high is not None and last >= high)
            yield self._problem(max(low, rows if high is None else min(rows, high))), None if end else last
            if end:
                return

    def _problem(self, rows: int) -> Problem:
        return Problem(self.dtype, self.depth, self.columns, rows)


Choose: TypeAlias = Callable[[Problem], Blocking]


def model_blocking(problem: Problem) -> Blocking:
    """The cost model: what is used where nothing is measured.

    A sum is added up in blocks of k as equal as can be, of about the depth whose panel has 48 KB: 768 for float32. A
    short block would spend its time on starting. Types that are converted to compute with have a depth of their own in
    the kernel. The other numbers are the same for all sizes: they matter less than measurements scatter.
    """
    depth = DEFAULT.depth
    if not _is_converted(problem.dtype):
        most = _PANEL_BYTES // (panel_width(problem.dtype) * problem.dtype.size)
        blocks = max(1, round(problem.depth / most))
        depth = most if problem.depth <= most else _up_to_eight(-(-problem.depth // blocks))
    return replace(DEFAULT, depth=depth)


def _is_converted(dtype: DType) -> bool:
    return dtype in (DType.FLOAT16, DType.BFLOAT16)


def _up_to_eight(number: int) -> int:
    return -(-number // 8) * 8


def table(product: Product, choose: Choose = model_blocking) -> BlockingTable:
    """The blockings of a product by its rows; equal neighbours are one row."""
    rows: list[BlockingUpTo] = []
    for problem, last in product.sizes():
        blocking = choose(problem)
        if rows and rows[-1].blocking == blocking:
            rows.pop()
        rows.append(BlockingUpTo(last, blocking))
    return tuple(rows)


def candidates(problem: Problem, mode: Literal["auto", "full"]) -> tuple[Blocking, ...]:
    """The blockings to try, the cost model's first. Some may come to the same: see `distinct`."""
    model = model_blocking(problem)
    tried = _neighbours(model) if mode == "auto" else _grid(problem, model)
    return tuple(dict.fromkeys((model, *tried)))


def distinct(blockings: Sequence[Blocking], launches: Sequence[tuple[object, ...]]) -> tuple[Blocking, ...]:
    """The first blocking of each launch, which is what a blocking comes to in the kernels."""
    first: dict[tuple[object, ...], Blocking] = {}
    for blocking, launch in zip(blockings, launches, strict=True):
        first.setdefault(launch, blocking)
    return tuple(first.values())


def _neighbours(model: Blocking) -> Sequence[Blocking]:
    half, double = _up_to_eight(model.depth // 2), 2 * model.depth
    return (
        replace(model, depth=half),
        replace(model, depth=double),
        replace(model, band=64),
        replace(model, band=LARGEST_BAND),
        replace(model, work=25_000),
        replace(model, work=400_000),
        replace(model, work=2_000_000),
        replace(model, work=8_000_000),
        replace(model, prefetch=False),
        replace(model, depth=half, band=64),
    )


def _grid(problem: Problem, model: Blocking) -> Iterator[Blocking]:
    depths = (model.depth, 256, 512, 768, 1024, 1536, max(_up_to_eight(problem.depth), 8))
    bands, works = (128, 48, 96, 192, LARGEST_BAND), (100_000, 25_000, 400_000, 2_000_000, 8_000_000)
    return itertools.starmap(Blocking, itertools.product(depths, bands, works, (True, False)))


def as_numbers(blocking: Blocking) -> tuple[int, int, int, bool]:
    depth, band, work, prefetch = astuple(blocking)
    return depth, band, work, prefetch
