"""Proof 2: AITemplate's own graph, before and after its passes, computes what the op graph's numpy reference computes.

All graphs go through one worker: the graphs of the op tests, every op, and two layers of BERT, GPT-2 and Llama.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortisan.codegen.ait.prepare import prepare
from ortisan.registry.evaluate import evaluate_graph
from tests.ait.gpu_models import GpuModel, gpu_models
from tests.ait.interpreted import Outcome, Run, difference, interpret_all
from tests.ait.op_cases import Written, fixed, join, op_names, written_cases
from tests.tolerances import APPROXIMATE, CLOSE, HALF, HALF_SUMS

pytestmark = pytest.mark.aitemplate

_BATCH = 75


def taken_cases(*, every: bool) -> list[Written]:
    """Cases that AITemplate can be given and numpy compared on: as they are, else (or also, if `every`) with fixed dims."""
    taken = []
    for case in written_cases():
        if not _comparable(case):
            continue
        as_written = not prepare(case.graph).refused
        if as_written:
            taken.append(case)
        if case.graph.symbols and (every or not as_written):
            numbers = fixed(case)
            if not prepare(numbers.graph).refused:
                taken.append(numbers)
    return taken


def _comparable(case: Written) -> bool:
    """NaN and infinity count in masks only: what AITemplate's functions make of them is its own affair."""
    if case.dtypes & {"bfloat16", "float64"}:
        return False
    pairs = zip(case.graph.inputs, case.inputs, strict=True)
    return all("mask" in v.name or x.dtype.kind != "f" or np.isfinite(x).all() for v, x in pairs)


def batches(cases: list[Written]) -> list[tuple[Run, list[Written]]]:
    made = []
    for start in range(0, len(cases), _BATCH):
        part = cases[start : start + _BATCH]
        graph, arrays = join(f"batch_{start}", part)
        names = [case.name for case in part for _ in case.graph.outputs]
        made.append((Run(graph, [arrays], names=names), part))
    return made


@pytest.fixture(scope="module")
def ops() -> tuple[list[Written], list[Outcome]]:
    cases = taken_cases(every=False)
    return cases, interpret_all([run for run, _ in batches(cases)])


def _check(cases: list[Written], outcomes: list[Outcome]) -> None:
    outputs = [value for run, _ in batches(cases) for value in run.graph.outputs]
    errors = [max(pair) for outcome in outcomes for pair in zip(outcome.before, outcome.after, strict=True)]
    names = [case.name for case in cases for _ in case.graph.outputs]
    worst = {"float32": 0.0, "float16": 0.0}
    for name, value, error in zip(names, outputs, errors, strict=True):
        dtype = str(value.dtype.value)
        assert error <= {"float32": CLOSE, "float16": HALF}.get(dtype, 0.0), f"{name}: {error}"
        worst[dtype] = max(worst.get(dtype, 0.0), error)
    shapes = sum(outcome.shapes for outcome in outcomes)
    print(f"{len(cases)} graphs of the op tests, {shapes} shapes, largest errors {worst}, {dict(op_names(cases))}")


def test_the_op_tests_graphs(ops: tuple[list[Written], list[Outcome]]) -> None:
    _check(*ops)


def test_what_the_passes_fuse_is_among_what_is_run(ops: tuple[list[Written], list[Outcome]]) -> None:
    fused = {name for outcome in ops[1] for name in outcome.ops}
    assert {
        "fused_elementwise",
        "gemm_rcr_bias",
        "own_attention",
        "bmm_rrr",
        "pad_last_dim",
        "group_layernorm",
    } <= fused


@pytest.mark.slow
def test_the_op_tests_graphs_with_fixed_dims_too() -> None:
    cases = taken_cases(every=True)
    _check(cases, interpret_all([run for run, _ in batches(cases)]))


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[GpuModel, Run, Any, Outcome, Outcome]]:
    """For each model: its run, ONNX Runtime's own outputs, and the outcomes in float32 and in float16."""
    made = [(model, *model.run()) for model in gpu_models()]
    halves = [Run(run.graph, run.cases, half=True, names=run.names) for _, run, _ in made]
    outcomes = interpret_all([*(run for _, run, _ in made), *halves])
    pairs = zip(made, outcomes[: len(made)], outcomes[len(made) :], strict=True)
    return {model.name: (model, run, expected, single, half) for (model, run, expected), single, half in pairs}


MODELS = pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "resnet"])


@MODELS
def test_models(models: dict[str, Any], name: str) -> None:
    _, run, _, single, half = models[name]
    print(f"{name}: {len(run.cases)} cases, {single.shapes} shapes, errors {max(single.before):.2g} before and "
          f"{max(single.after):.2g} after the passes, in float16 {half.worst:.2g}; {dict(single.ops)}")  # fmt: skip
    assert single.worst <= CLOSE
    assert half.worst <= HALF_SUMS  # float16 throughout: 2 layers of sums of some hundred products


@MODELS
def test_the_reference_of_what_is_cut_out_is_onnx_runtimes_result(models: dict[str, Any], name: str) -> None:
    """So the interpreter's outputs are the model's, with masks and past as ONNX Runtime computes and hands them over."""
    _, run, expected, _, _ = models[name]
    for case, wanted in zip(run.cases, expected, strict=True):
        for have, want in zip(evaluate_graph(run.graph, list(case)), wanted, strict=True):
            assert difference(have, want, name) < APPROXIMATE


@MODELS
def test_all_of_a_model_is_one_custom_op(models: dict[str, Any], name: str) -> None:
    """Embeddings, masks and logits included: its inputs are the model's."""
    model, run, _, _, _ = models[name]
    compiled = model.compiled()
    assert not compiled.left_out
    assert compiled.flops_share() == 1.0
    assert {value.name for value in run.graph.inputs} == {value.name for value in model.model.graph.inputs}
