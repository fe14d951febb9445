"""Scratch bytes in the manifest: the numbers that the generated code asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ortisan
from ortisan.codegen.cpu.scratch import largest_scratch, scratch_bytes, typical_scratch
from ortisan.codegen.tools.binding import import_binding
from ortisan.models import BertSize, bert
from ortisan.pipeline.manifest import describe_compilation

SIZE = BertSize(layers=1, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=256)


@pytest.mark.parametrize(
    "dims, typical, most",
    [
        ({}, {"batch": 1, "sequence": 128}, None),
        ({"sequence": (1, 64)}, {"batch": 1, "sequence": 64}, None),
        ({"sequence": (200, 256), "batch": (2, 4)}, {"batch": 2, "sequence": 200}, {"batch": 4, "sequence": 256}),
        ({"sequence": 7}, {"batch": 1}, None),
        ({"sequence": 7, "batch": 3}, {}, {}),
    ],
)
def test_the_manifest_says_for_which_dims(
    dims: dict[str, int | tuple[int, int]], typical: dict[str, int], most: dict[str, int] | None
) -> None:
    compiled = ortisan.compile(bert(SIZE), dims=dims)
    scratch = describe_compilation(compiled)["ops"][0]["scratch"]
    assert scratch["typical"]["dims"] == typical
    assert scratch["typical"]["bytes"] == scratch_bytes(compiled.plans[0], typical) > 0
    upper = scratch["at_upper_bounds"]
    assert (upper and upper["dims"]) == most
    if upper:
        assert upper["bytes"] >= scratch["typical"]["bytes"]


@pytest.mark.build
def test_the_code_asks_for_as_much(tmp_path: Path) -> None:
    compiled = ortisan.compile(bert(SIZE), dims={"sequence": (1, 33), "batch": (1, 3)}, whole_graph=True)
    library = ortisan.generate(compiled, tmp_path / "out", bindings=True)
    module = import_binding(library.binding)
    plan = compiled.plans[0]
    graph = module.Graph(0)
    graph.set_weights(plan.packed_weights())
    upper = largest_scratch(plan)
    assert upper is not None
    for scratch in (typical_scratch(plan), upper):
        shape = [scratch.dims[name] for name in ("batch", "sequence")]
        inputs = [np.ones(shape, np.int64) for _ in plan.graph.inputs]
        assert graph.trace(inputs)[1].nbytes == scratch.bytes
