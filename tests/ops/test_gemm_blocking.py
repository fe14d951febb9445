"""Every candidate blocking, forced on products of odd sizes through the real emitters: the bits are those of the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ortisan
from ortisan.codegen.cpu.plan import plan_graph
from ortisan.codegen.cpu.tune.blocking import Blocking, BlockingUpTo, Problem, candidates, model_blocking
from ortisan.codegen.tools.binding import import_binding
from ortisan.pipeline.generate import build_sources, render_sources
from ortisan.registry.dtypes import DType
from tests.models.text import text_model
from tests.ops.arrays import values

# Two products that share an input and run as one, over several blocks of k, with columns that end inside a panel.
MODEL = text_model(
    "(float[B,1601] x) => (float[B,67] y, float[B,18] z)",
    "r = Relu(x) y = MatMul(r, v) z = MatMul(r, t)",
    constants={"v": values(1601, 67), "t": values(1601, 18, seed=1)},
)
ROWS = (0, 1, 2, 3, 7, 64, 131, 300)
FORCED = list(
    dict.fromkeys(
        blocking for rows in ROWS[1:] for blocking in candidates(Problem(DType.FLOAT32, 1601, (67, 18), rows), "auto")
    )
)
# By the rows: the blocking of a kernel changes within one run of the test.
MIXED = (BlockingUpTo(1, FORCED[1]), BlockingUpTo(64, FORCED[2]), BlockingUpTo(None, FORCED[-1]))


@pytest.fixture(scope="module")
def library() -> Any:
    """Graph i of the module is the model with FORCED[i], the last one has a table of several blockings."""
    compiled = ortisan.compile(MODEL, name="blockings")
    tables = [*((BlockingUpTo(None, blocking),) for blocking in FORCED), MIXED]
    plans = [plan_graph(compiled.graphs[0], blocking_table=lambda _, t=table: t) for table in tables]
    assert [product.columns for product in plans[0].products] == [(67, 18)]
    ops = tuple(f"cuts_{index}" for index in range(len(plans)))
    forced = replace(compiled, plans=tuple(plans), ops=ops)
    built = build_sources(forced, render_sources(forced), bindings=True)
    return import_binding(built.binding), plans


def run(library: Any, index: int, rows: int, threads: int) -> list[bytes]:
    module, plans = library
    graph = module.Graph(index, threads=threads)
    graph.set_weights(plans[index].packed_weights())
    return [np.ascontiguousarray(output).tobytes() for output in graph.run([values(rows, 1601)])]


@pytest.mark.build
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "blocking", [*FORCED, MIXED], ids=lambda blocking: "table" if blocking is MIXED else str(blocking)
)
def test_no_candidate_changes_a_bit(blocking: Blocking | tuple[BlockingUpTo, ...], threads: int, library: Any) -> None:
    index = len(FORCED) if isinstance(blocking, tuple) else FORCED.index(blocking)
    for rows in ROWS:
        assert run(library, index, rows, threads) == run(library, 0, rows, 1)


def test_the_candidates_are_several() -> None:
    assert len(FORCED) >= 8
    assert FORCED[0] == model_blocking(Problem(DType.FLOAT32, 1601, (67, 18), 1))
