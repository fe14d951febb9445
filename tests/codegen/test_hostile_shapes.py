"""Shapes that nobody means: zeros beside huge dims, and products that no integer holds. Nothing may be overrun or hang."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ortisan
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.kernels import KERNELS
from ortisan.codegen.cpu.library import render_library
from ortisan.codegen.cpu.plan import GraphPlan
from tests.models.hostile import hostile_models
from tests.sanitized import build_driver, run_driver

OUTCOME = re.compile(r"(\w+): computed (\d+) failed (\d+) idle (\d+) refused (\d+)")


@pytest.fixture(scope="module")
def plans() -> dict[str, GraphPlan]:
    compiled = {name: ortisan.compile(model, whole_graph=True, tune="off") for name, model in hostile_models().items()}
    return {name: plan for name, each in compiled.items() for plan in each.plans}


@pytest.fixture(scope="module")
def driver(plans: dict[str, GraphPlan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    isa = find_isa("native")
    files = render_library(list(plans.values()), name="hostile", domain="hostile", ops=list(plans), isa=isa)
    return build_driver(files, "hostile_driver.cpp", tmp_path_factory.mktemp("hostile"), "address,undefined")


def test_the_models_use_every_op(plans: dict[str, GraphPlan]) -> None:
    assert {type(node.op) for plan in plans.values() for node in plan.graph.nodes} == set(KERNELS)


@pytest.mark.build
@pytest.mark.sanitize
def test_hostile_shapes_end_well(driver: Path, plans: dict[str, GraphPlan]) -> None:
    outcomes = OUTCOME.findall(run_driver(driver, "60", "1"))
    assert [name for name, *_ in outcomes] == list(plans)
    for name, *counts in outcomes:
        computed, failed, idle, refused = map(int, counts)
        assert computed + failed > 0, f"{name} never ran"
        assert idle + refused > 0, f"{name} met no hostile shape"


@pytest.mark.build
@pytest.mark.sanitize
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_thousand_hostile_shapes_end_well(driver: Path, seed: int) -> None:
    assert OUTCOME.findall(run_driver(driver, "400", str(seed)))
