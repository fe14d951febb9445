"""Decoders whole, from ids to logits, as one custom op: its kernels executed from their PTX, against the op graph in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.ait.adapter import AitSettings
from ortisan.registry.evaluate import evaluate_graph
from tests.ait.gpu_models import gpu_models
from tests.ait.interpreted import difference
from tests.gpu.emulated_ops import EmulatedOps
from tests.tolerances import APPROXIMATE

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build, pytest.mark.slow]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_prefill_and_steps(name: str, tmp_path: Path) -> None:
    """Padded on the left, on the right and not at all, with a past and without."""
    model = next(each for each in gpu_models() if each.name == name)
    compiled = model.compiled()
    assert not compiled.left_out
    (graph,) = compiled.graphs
    ops = EmulatedOps({name: (graph, AitSettings("80"))}, tmp_path)
    for label, feeds in model.cases.items():
        inputs = [np.array(feeds[value.name]) for value in graph.inputs]
        wanted = evaluate_graph(graph, inputs)
        errors = [difference(have, want, label) for have, want in zip(ops.run(name, inputs), wanted, strict=True)]
        print(f"{name}, {label}: {max(errors):.2g}")
        assert max(errors) <= APPROXIMATE
