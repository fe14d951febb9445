"""Backends as objects: the table, what each promises, and a toy that is a file and one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.cli.options import read_target
from ortisan.codegen.backend import BACKENDS, Backend, Kind, Plan, Request, parse_target
from ortisan.pipeline.options import Options
from tests.codegen import toy_backend
from tests.models.mlp import mlp
from tests.ops import test_elementwise, test_gemm
from tests.ops.harness import Batch, Case


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[None]:
    """The one line."""
    BACKENDS["toy"] = Kind(toy_backend.parse, "toy")
    yield
    del BACKENDS["toy"]


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v2", "cpu:aarch64", "cuda:80", "cuda:90,80", "reference", "toy"])
def test_a_backend_prints_what_parses_to_it(target: str) -> None:
    backend = parse_target(target)
    assert parse_target(str(backend)) == backend
    assert backend.providers[-1] == "CPUExecutionProvider"
    assert backend.uses_gpu == (backend.providers[0] != "CPUExecutionProvider")


@pytest.mark.parametrize("target", ["cpu", "reference", "toy"])
def test_a_plan_keeps_its_promises(target: str) -> None:
    options = Options(target=target, tune="off")
    compiled = ortisan.compile(mlp(), target=target)
    plans: tuple[Plan, ...] = compiled.plans
    assert [plan.graph for plan in plans] == list(compiled.graphs)
    for plan in plans:
        assert isinstance(plan.describe()["kernels"], int)
        assert json.dumps([plan.describe(), plan.lines(), list(plan.shared)])
        assert isinstance(plan.digest(), str)
        for weight in plan.stored_weights():
            array = weight.load()
            assert (array.shape, array.nbytes) == (weight.shape, weight.nbytes)
    described = options.backend.describe(plans, options, built=False)
    assert {"machine", "settings", "tuning"} <= described.keys()


def test_unknown_targets_name_the_known_ones() -> None:
    with pytest.raises(ortisan.OptionError, match="there is no target 'tpu'; the targets are cpu, cpu:<instruction"):
        parse_target("tpu")
    with pytest.raises(ortisan.OptionError, match="there is no target 'reference:64'"):
        parse_target("reference:64")


def test_architectures_are_an_option_of_their_own() -> None:
    assert read_target("cpu", "80,90") == read_target("cuda", "80,90") == "cuda:80,90"
    with pytest.raises(ortisan.OptionError, match="write --target cuda:80"):
        read_target("reference", "80")


def test_a_backend_refuses_what_it_has_not(tmp_path: Path) -> None:
    compiled = ortisan.compile(mlp(), target="toy")
    with pytest.raises(ortisan.OptionError, match="can't be looked at for the target toy"):
        compiled.target.trace(compiled.plans, compiled.names)
    with pytest.raises(ortisan.OptionError, match="nothing to generate"):
        ortisan.generate(ortisan.compile(mlp(), target="reference"), tmp_path / "out")


def test_inspecting_for_the_reference_has_rows(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    found = ortisan.inspect(tmp_path / "mlp.onnx", target="reference").to_json()
    assert [op["kernels"] for op in found["ops"]] == [0]


def test_the_default_planner_objects_to_nothing() -> None:
    backend: Backend = parse_target("reference")
    planner = backend.planner(Request(Options(target="reference"), print))
    graphs = ortisan.compile(mlp(), target="reference").graphs
    assert list(planner.objections(graphs)) == [{}]


def toy_cases() -> list[Case]:
    """The cases of products and elementwise functions that the toy takes."""
    cases = [case for case in (*test_gemm.CASES, *test_elementwise.CASES) if isinstance(case, Case)]
    wanted = {"MatMul", "Gemm", "Add", "Sub", "Mul", "Relu", "Exp"}
    floats = [
        case
        for case in cases
        if case.op_type in wanted and all(a is None or a.dtype == np.float32 for a in case.inputs.values())
    ]
    BACKENDS["toy"] = Kind(toy_backend.parse, "toy")
    try:
        return [case for case in floats if _compiles(case)]
    finally:
        del BACKENDS["toy"]


def _compiles(case: Case) -> bool:
    try:
        ortisan.compile(case.model(), whole_graph=True, target="toy")
    except ortisan.OrtisanError:
        return False
    return True


CASES = toy_cases()


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return Batch(CASES, tmp_path_factory.mktemp("toy"), target="toy")


def test_the_toy_takes_enough_cases() -> None:
    assert len(CASES) >= 20
    assert {"MatMul", "Add", "Exp"} <= {case.op_type for case in CASES}


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ops_run_through_the_toy(case: Case, batch: Batch) -> None:
    batch.check(case)


@pytest.mark.build
def test_the_whole_road_with_the_toy(tmp_path: Path) -> None:
    artifact = ortisan.build(mlp(), tmp_path / "out", target="toy", keep="all")
    assert artifact.manifest["target"] == "toy"
    assert artifact.verification is not None
    assert artifact.verification.passed
    assert ortisan.load(artifact.folder).get_outputs()
    with pytest.raises(ortisan.OptionError, match="whose custom ops have no setting 'weights'"):
        ortisan.load(artifact.folder, weights="huge")
