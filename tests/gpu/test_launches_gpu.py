"""How many kernels a layer launches, and how much a decoder's step works, counted by the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ortisan.checks.work import KernelWork
from ortisan.codegen.ait.adapter import AitSettings
from ortisan.models import BertSize, Gpt2Size, bert, gpt2
from ortisan.registry.dims import evaluate
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph
from tests.ait.gpu_models import HEADS, SIZE, VOCABULARY, GpuModel
from tests.ait.interpreted import difference
from tests.gpu.emulated_ops import EmulatedOps
from tests.tolerances import BLOCK

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build, pytest.mark.slow]

LENGTH = 1024
ENCODER = {"batch": (1, 2), "sequence": (1, 24)}
DECODER = {"batch": (1, 2), "sequence": (1, 24), "past_sequence": (0, LENGTH), "total_sequence": (1, LENGTH + 24)}
_RANDOM = np.random.default_rng(3)


@dataclass(frozen=True)
class Done:
    error: float
    kernels: Sequence[KernelWork]

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels)

    def of(self, name: str) -> KernelWork:
        (found,) = (kernel for kernel in self.kernels if name in kernel.kernel)
        return found


def graph_of(layers: int, kind: str) -> Graph:
    width = HEADS * SIZE
    if kind == "bert":
        model = GpuModel(kind, bert(BertSize(layers, width, HEADS, 128, VOCABULARY, 32)), ENCODER, {})
    else:
        model = GpuModel(kind, gpt2(Gpt2Size(layers, width, HEADS, VOCABULARY, 2 * LENGTH)), DECODER, {})
    (subgraph,) = model.compiled().subgraphs
    return subgraph.graph


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> EmulatedOps:
    graphs = {f"{kind}_{layers}": graph_of(layers, kind) for kind in ("bert", "gpt2") for layers in (1, 2)}
    settings = AitSettings("80")
    return EmulatedOps({name: (graph, settings) for name, graph in graphs.items()}, tmp_path_factory.mktemp("launches"))


def inputs_of(graph: Graph, sizes: Mapping[str, int]) -> list[Any]:
    """Ids, positions, a mask that hides the last token of the first row, and a past."""
    found = []
    for value in graph.inputs:
        shape = [evaluate(dim, sizes) for dim in value.shape]
        if value.dtype.is_float:
            found.append(_RANDOM.standard_normal(shape).astype(np.float32))
        elif "mask" in value.name:
            found.append(np.ones(shape, np.int64))
            found[-1][0, shape[1] // 2] = 0
        else:
            found.append(_RANDOM.integers(0, 2 if "type" in value.name else VOCABULARY, shape))
    return found


def run(ops: EmulatedOps, name: str, **sizes: int) -> Done:
    graph = ops.models[name].graph
    inputs = inputs_of(graph, {"total_sequence": sizes["sequence"] + sizes.get("past_sequence", 0), **sizes})
    wanted = evaluate_graph(graph, inputs)
    made = ops.run(name, inputs)
    error = max(difference(have, want, name) for have, want in zip(made, wanted, strict=True))
    done = Done(error, ops.kernels)
    print(f"{name} {sizes}: {done.launches} launches, error {error:.2g}")
    for kernel in done.kernels:
        print(f"  {kernel.launches} x {kernel.kernel}, {kernel.instructions} instructions, {kernel.loaded} bytes")
    return done


def layer(ops: EmulatedOps, kind: str, **sizes: int) -> int:
    """What a second layer adds."""
    one, two = (run(ops, f"{kind}_{layers}", **sizes) for layers in (1, 2))
    assert max(one.error, two.error) <= BLOCK
    return two.launches - one.launches


def test_a_layer_of_bert(ops: EmulatedOps) -> None:
    assert 0 < layer(ops, "bert", batch=2, sequence=20) <= 9


def test_a_layer_of_a_step_of_gpt2(ops: EmulatedOps) -> None:
    assert 0 < layer(ops, "gpt2", batch=1, sequence=1, past_sequence=11) <= 10


def test_a_step_works_as_much_as_there_are_keys_and_not_as_there_may_be(ops: EmulatedOps) -> None:
    short, half, long = (
        run(ops, "gpt2_1", batch=1, sequence=1, past_sequence=past) for past in (15, LENGTH // 2 - 1, LENGTH - 1)
    )
    few, some, many = (done.of("flash_thin") for done in (short, half, long))
    assert many.instructions > 1.8 * some.instructions > 10 * few.instructions
    assert many.loaded > 1.8 * some.loaded > 10 * few.loaded
    assert short.error <= BLOCK
    assert long.error <= BLOCK
