"""Every op that AITemplate has, its kernels executed from their PTX, against the op's numpy reference.

Products are 3xTF32, TF32 or float16; dims are fixed, or dynamic and run at several sizes, odd ones and their bounds
among them. The first test compiles a few of the ops, the others all of them (marked `slow`: it takes long).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.ait.adapter import AitSettings
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph
from ortisan.runtime.engine import RunFailed
from tests.ait.every_op import FLOAT_FUNCTIONS, SIZES, every_op, functions, sized_arrays
from tests.ait.interpreted import difference
from tests.ait.op_cases import Written, fixed, join
from tests.gpu.emulated_ops import EmulatedOps
from tests.gpu.own_process import in_own_process
from tests.tolerances import APPROXIMATE, HALF, HALF_SUMS

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]

OTHER_SIZES = ({"b": 1, "s": 1, "p": 0}, {"b": 3, "s": 7, "p": 1}, {"b": 4, "s": 8, "p": 8})
"""1 and nothing, primes, and the bounds."""
FEW = ("gemm_rcr_bias", "bmm_rrr", "layernorm", "softmax", "reduce_mean", "add", "gelu", "gather", "concatenate")
FEW += ("slice_first", "permute_three", "index_select_run_time", "chain_causal_mask")
FAMILIES = {
    "products": ("gemm", "bmm"),
    "attention": ("attention", "rotary", "cache"),
    "rows": ("layernorm", "rms_norm", "softmax", "log_softmax"),
    "reductions": ("reduce",),
    "functions": ("functions", "where", "cast"),
    "chains": ("chain", "trilu"),
    "images": ("conv2d", "max_pool2d", "avg_pool2d"),
    "moves": (),
}
"""How the names of a family's ops begin; the last has all others."""
VARIANTS = {
    "fixed": (AitSettings("80"), APPROXIMATE),
    "dynamic": (AitSettings("80"), APPROXIMATE),
    "tf32": (AitSettings("80", tf32=True), HALF),
    "fp16": (AitSettings("80", half=True), HALF_SUMS),
}
ROUNDED = {"products", "attention", "images"}
"""The families that TF32 makes a difference to."""
ALL = [
    pytest.param(family, variant, id=f"{family}-{variant}")
    for family in FAMILIES
    for variant in VARIANTS
    if variant != "tf32" or family in ROUNDED
]


def cases(family: str, *, dynamic: bool) -> list[Written]:
    """Functions share their inputs."""
    alone = {func.lower() for func in FLOAT_FUNCTIONS}
    every = [*(case for case in every_op(dynamic=True) if case.name not in alone), functions()]
    found = [case for case in every if _family(case.name) == family]
    return found if dynamic else [fixed(case) for case in found]


def _family(name: str) -> str:
    return next((family for family, starts in FAMILIES.items() if name.startswith(starts)), "moves")


def joined(name: str, cases: Sequence[Written]) -> Graph:
    graph, _ = join(name, cases)
    return replace(graph, output_names=tuple(f"y{index}" for index in range(len(graph.outputs))))


@dataclass(frozen=True)
class Found:
    kernels: int
    """Sources that nvcc compiled."""
    launched: int
    """Kernels that ran."""
    sizes: int
    errors: dict[str, float]
    """The largest of each op, over all sizes, of its largest element."""


def run_ops(taken: str, variant: str) -> Found:
    """Runs the ops of a family, or a few, each against its numpy reference, at all sizes."""
    chosen = few() if taken == "few" else cases(taken, dynamic=variant != "fixed")
    settings, _ = VARIANTS[variant]
    name = f"{taken}_{variant}"
    graph = joined(name, chosen)
    with tempfile.TemporaryDirectory() as folder:
        ops = EmulatedOps({name: (graph, settings)}, Path(folder))
        graph = ops.models[name].graph
        owners = [case.name for case in chosen for _ in case.graph.outputs]
        errors = dict.fromkeys(owners, 0.0)
        every_size = (SIZES, *OTHER_SIZES) if graph.symbols else (SIZES,)
        launched: set[str] = set()
        for sizes in every_size:
            inputs = sized_arrays(graph, sizes)
            wanted = evaluate_graph(graph, inputs)
            made = ops.run(name, inputs)
            launched |= {kernel.symbol for kernel in ops.kernels}
            for owner, have, want in zip(owners, made, wanted, strict=True):
                errors[owner] = max(errors[owner], difference(have, want, f"{owner} at {sizes}"))
        return Found(ops.models[name].kernels, len(launched), len(every_size), errors)


def few() -> list[Written]:
    return [case for case in every_op(dynamic=True) if case.name in FEW]


def check(taken: str, variant: str) -> None:
    found = in_own_process(run_ops, taken, variant)
    print(f"{taken}, {variant}: {found}")
    assert {op: error for op, error in found.errors.items() if error > VARIANTS[variant][1]} == {}


def test_a_few_ops() -> None:
    check("few", "dynamic")


def out_of_range() -> tuple[str, float]:
    """What a run with a wrong index says, and the largest error of the run after it."""
    with tempfile.TemporaryDirectory() as folder:
        ops = EmulatedOps({"few": (joined("few", few()), AitSettings("80"))}, Path(folder))
        graph = ops.models["few"].graph
        inputs = sized_arrays(graph, SIZES)
        places = [place for place, value in enumerate(graph.inputs) if value.dtype is DType.INT64]
        wrong = [np.full_like(array, 8) if place == places[0] else array for place, array in enumerate(inputs)]
        said = ""
        try:
            ops.run("few", wrong)
        except RunFailed as failed:
            said = str(failed)
        pairs = zip(ops.run("few", inputs), evaluate_graph(graph, inputs), strict=True)
        return said, max(difference(have, want, "the run after") for have, want in pairs)


def test_an_index_out_of_range_is_a_status() -> None:
    """It names the node, and the run after it is as ever."""
    said, error = in_own_process(out_of_range)
    assert "an index of node 'index_select_run_time' is out of range" in said
    assert error <= APPROXIMATE


@pytest.mark.slow
@pytest.mark.parametrize("family, variant", ALL)
def test_every_op(family: str, variant: str) -> None:
    check(family, variant)
