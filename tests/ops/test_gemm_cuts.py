"""Every candidate cut, forced on products of odd sizes through the real emitters: the bits are those of the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ortisan
from ortisan.codegen.cpu.plan import plan_graph
from ortisan.codegen.cpu.tune.blocking import Cut, CutUpTo, Problem, candidates, model_cut
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
    dict.fromkeys(cut for rows in ROWS[1:] for cut in candidates(Problem(DType.FLOAT32, 1601, (67, 18), rows), "auto"))
)
# By the rows: the cut of a kernel changes within one run of the test.
MIXED = (CutUpTo(1, FORCED[1]), CutUpTo(64, FORCED[2]), CutUpTo(None, FORCED[-1]))


@pytest.fixture(scope="module")
def library() -> Any:
    """Graph i of the module is the model with FORCED[i], the last one has a table of several cuts."""
    compiled = ortisan.compile(MODEL, name="cuts")
    tables = [*((CutUpTo(None, cut),) for cut in FORCED), MIXED]
    plans = [plan_graph(compiled.graphs[0], cut_table=lambda _, t=table: t) for table in tables]
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
@pytest.mark.parametrize("cut", [*FORCED, MIXED], ids=lambda cut: "table" if cut is MIXED else str(cut))
def test_no_candidate_changes_a_bit(cut: Cut | tuple[CutUpTo, ...], threads: int, library: Any) -> None:
    index = len(FORCED) if isinstance(cut, tuple) else FORCED.index(cut)
    for rows in ROWS:
        assert run(library, index, rows, threads) == run(library, 0, rows, 1)


def test_the_candidates_are_several() -> None:
    assert len(FORCED) >= 8
    assert FORCED[0] == model_cut(Problem(DType.FLOAT32, 1601, (67, 18), 1))
