"""Graphs are prepared once for each adapter, and what is refused leaves a legal graph."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ortisan.codegen.ait import adapter as module
from ortisan.codegen.ait.adapter import Adapter, AitSettings
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.dims import with_derived_bounds
from ortisan.codegen.ait.prepare import prepare
from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, TensorType
from ortisan.registry.ops import Bmm, Concatenate
from ortisan.registry.verify import verify_graph

S = symbol("s")


def half_refused() -> Graph:
    """exp(x x') and exp(x): nobody has products with a dynamic inner size."""
    b = Builder("refused")
    x = b.input("x", TensorType(DType.FLOAT32, (2, 4, S)))
    b.origin = "product"
    y = b.add(Bmm("rcr"), x, x)
    b.origin = "exp"
    return b.finish([b.elementwise("EXP", y), b.elementwise("EXP", x)], bounds={"s": (1, 8)})


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Graph]]:
    """The graphs that were prepared."""
    seen: list[Any] = []

    def count(graph: Graph, **settings: Any) -> Any:
        seen.append(graph.bounds)
        return prepare(graph, **settings)

    monkeypatch.setattr(module, "prepare", count)
    return seen


def open_adapter() -> Adapter:
    return Adapter(None, AitSettings("80"), print)  # type: ignore[arg-type]


def test_a_graph_is_prepared_once_for_each_adapter(prepared: list[Any]) -> None:
    adapter, graph = open_adapter(), half_refused()
    copy = replace(graph, bounds=dict(graph.bounds))
    answers = [adapter.rules(copy), *adapter.refusals([graph]), adapter.rules(graph)]
    assert [list(answer) for answer in answers] == [["product"]] * 3
    assert len(prepared) == 1
    adapter.rules(replace(graph, bounds={"s": (1, 9)}))
    open_adapter().rules(graph)
    assert len(prepared) == 3


def test_graphs_that_are_gone_are_not_held(prepared: list[Any]) -> None:
    adapter = open_adapter()
    adapter.rules(half_refused())
    gc.collect()
    assert not len(adapter._prepared)


def test_what_is_refused_is_an_input_of_what_comes_after_it() -> None:
    graph = half_refused()
    dialect = to_dialect(graph)
    assert list(dialect.refused) == ["product"]
    verify_graph(dialect.graph)
    assert len(dialect.graph.inputs) == 2
    assert [node.inputs[0] for node in dialect.graph.nodes] == list(reversed(dialect.graph.inputs))


def test_a_dim_that_must_equal_others_needs_no_bounds_of_its_own() -> None:
    b = Builder("bounds")
    past, new, mask = (b.input(name, TensorType(DType.FLOAT32, (symbol(name), 4))) for name in ("p", "s", "t"))
    b.origin = "join"
    joined = b.add(Concatenate(1), b.add(Concatenate(0), past, new), mask)
    graph = b.finish([joined], bounds={"p": (0, 8), "s": (1, 4)})
    assert with_derived_bounds(graph).bounds == {"p": (0, 8), "s": (1, 4), "t": (1, 12)}
    assert not prepare(graph).refused
