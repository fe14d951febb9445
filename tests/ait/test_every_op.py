"""Proof 1: the real AITemplate generates every op that it has a counterpart of, and infers the shapes that we infer."""

from __future__ import annotations

from typing import Any

import pytest

from ortisan.codegen.ait.adapter import run_worker
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.ops import AIT_OPS
from ortisan.codegen.ait.prepare import Prepared, arrange, prepare
from ortisan.codegen.ait.scalars import COMPOSITIONS, FUNCTIONS
from ortisan.registry.ops import Arange, Elementwise, Full, Size
from ortisan.registry.scalars import SCALARS
from tests.ait.every_op import GRAPHS, every_op
from tests.ait.interpreted import SETTINGS, Run, interpret_all
from tests.ait.op_cases import join
from tests.tolerances import CLOSE, HALF

NUMBERS = {Arange, Full, Size}
KINDS = pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])


@KINDS
def test_the_graphs_use_every_op_that_aitemplate_has(dynamic: bool) -> None:
    graph, _ = join("every_op", list(every_op(dynamic=dynamic)))
    dialect = to_dialect(graph)
    assert not dialect.refused
    used = {type(node.op) for graph in (dialect.graph, arrange(dialect.graph)) for node in graph.nodes}
    called = {op for op, row in AIT_OPS.items() if row.call is not None}
    ours = {op for op, row in AIT_OPS.items() if row.ours is not None}
    assert used >= (called | ours if dynamic else (called | ours) - NUMBERS), "what is fixed of these is a constant"
    functions = {node.op.func for node in dialect.graph.nodes if isinstance(node.op, Elementwise)}
    assert functions >= {*SCALARS} - {*COMPOSITIONS} | {*FUNCTIONS}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """AITemplate's answer and sources for all graphs, fixed and dynamic."""
    prepared: dict[str, Prepared] = {}
    for name, dynamic in (("fixed", False), ("dynamic", True)):
        graph, _ = join(f"every_op_{name}", list(every_op(dynamic=dynamic)))
        prepared[name] = prepare(graph)
    tasks = [{"mode": "generate", "program": each.program.to_json()} for each in prepared.values()]
    folder = tmp_path_factory.mktemp("generated")
    results = run_worker(find_aitemplate(), SETTINGS, tasks, folder)
    return {
        name: (each.program, result, folder / f"src-{index}")
        for index, ((name, each), result) in enumerate(zip(prepared.items(), results, strict=True))
    }


@pytest.mark.aitemplate
@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_aitemplate_generates_every_op_and_infers_our_shapes(generated: dict[str, Any], kind: str) -> None:
    program, result, folder = generated[kind]
    assert result["failures"] == []
    assert result["shapes"] == sum(len(call.results) for call in program.calls) >= len(GRAPHS)
    sources = {path.name.rpartition("_")[0] for path in folder.glob("*.cu")}
    assert {
        "own_attention",
        "own_rotary",
        "layernorm",
        "softmax",
        "fused_elementwise",
        "reduce_sum",
        "pad_last_dim",
    } <= sources
    print(
        f"{kind}: {len(program.calls)} calls generated, {result['shapes']} shapes compared, {len(sources)} kinds of kernels"
    )


@pytest.mark.aitemplate
@KINDS
def test_aitemplates_graph_of_every_op_computes_the_same(dynamic: bool) -> None:
    cases = list(every_op(dynamic=dynamic))
    graph, arrays = join(f"every_op_{dynamic}", cases)
    names = [case.name for case in cases for _ in case.graph.outputs]
    (outcome,) = interpret_all([Run(graph, [arrays], names=names)])
    assert outcome.worst < HALF
    single = [
        error for error, value in zip(outcome.after, graph.outputs, strict=True) if value.dtype.value == "float32"
    ]
    assert max(single) < CLOSE
