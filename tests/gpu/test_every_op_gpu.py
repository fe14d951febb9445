"""Every op that AITemplate has, its kernels executed from their PTX, against the op's numpy reference.

Products are 3xTF32, TF32 or float16; dims are fixed, or dynamic and run at several sizes, odd ones and their bounds
among them. The first test compiles a few of the ops, the others all of them (marked `slow`: it takes long).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.ait.adapter import AitSettings
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph
from tests.ait.every_op import FLOAT_FUNCTIONS, SIZES, every_op, functions, sized_arrays
from tests.ait.interpreted import difference
from tests.ait.op_cases import Written, fixed, join
from tests.gpu.emulated_ops import EmulatedOps
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


def check(ops: EmulatedOps, name: str, cases: Sequence[Written], tolerance: float) -> None:
    graph = ops.models[name].graph
    owners = [case.name for case in cases for _ in case.graph.outputs]
    errors = dict.fromkeys(owners, 0.0)
    every_size = (SIZES, *OTHER_SIZES) if graph.symbols else (SIZES,)
    for sizes in every_size:
        inputs = sized_arrays(graph, sizes)
        wanted = evaluate_graph(graph, inputs)
        for owner, have, want in zip(owners, ops.run(name, inputs), wanted, strict=True):
            errors[owner] = max(errors[owner], difference(have, want, f"{owner} at {sizes}"))
    print(
        f"{name}: {ops.models[name].kernels} kernels, {len(owners)} outputs, {len(every_size)} sizes, errors {errors}"
    )
    assert {owner: error for owner, error in errors.items() if error > tolerance} == {}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[EmulatedOps, list[Written]]:
    cases = [case for case in every_op(dynamic=True) if case.name in FEW]
    folder = tmp_path_factory.mktemp("few")
    return EmulatedOps({"few": (joined("few", cases), AitSettings("80"))}, folder), cases


def test_a_few_ops(few: tuple[EmulatedOps, list[Written]]) -> None:
    ops, cases = few
    check(ops, "few", cases, APPROXIMATE)


def test_an_index_out_of_range_is_a_status(few: tuple[EmulatedOps, list[Written]]) -> None:
    """It names the node, and the run after it is as ever."""
    ops, _ = few
    graph = ops.models["few"].graph
    inputs = sized_arrays(graph, SIZES)
    places = [place for place, value in enumerate(graph.inputs) if value.dtype is DType.INT64]
    wrong = [np.full_like(array, 8) if place == places[0] else array for place, array in enumerate(inputs)]
    with pytest.raises(Exception, match="an index of node 'index_select_run_time' is out of range"):
        ops.run("few", wrong)
    for have, want in zip(ops.run("few", inputs), evaluate_graph(graph, inputs), strict=True):
        assert difference(have, want, "the run after") <= APPROXIMATE


@pytest.mark.slow
@pytest.mark.parametrize("family, variant", ALL)
def test_every_op(family: str, variant: str, tmp_path: Path) -> None:
    settings, tolerance = VARIANTS[variant]
    taken = cases(family, dynamic=variant != "fixed")
    name = f"{family}_{variant}"
    check(EmulatedOps({name: (joined(name, taken), settings)}, tmp_path), name, taken, tolerance)
