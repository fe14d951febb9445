"""float32 is multiplied as three products of TF32, with tf32=True as TF32, and never in a narrower type by accident."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ortisan
from ortisan.codegen.ait.adapter import run_worker
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.prepare import prepare
from tests.ait.arithmetic import PLAIN, THREE_TIMES_TF32, arithmetic
from tests.ait.every_op import every_op
from tests.ait.gpu_models import gpu_models
from tests.ait.interpreted import SETTINGS
from tests.ait.op_cases import join

pytestmark = pytest.mark.aitemplate

OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "fp32": ({}, THREE_TIMES_TF32),
    "tf32": ({"tf32": True}, PLAIN),
    "fp16": ({"precision": "fp16"}, PLAIN),
}


@pytest.mark.parametrize(("options", "wanted"), OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.name)
def test_products_of_models(model: Any, options: dict[str, Any], wanted: str) -> None:
    compiled = ortisan.compile(model.model, target="cuda:80", dims=dict(model.dims), **options)
    (plan,) = compiled.plans
    found = arithmetic(plan.model.files)
    assert found
    assert all(operations == {wanted} for operations in found.values()), found
    names = " ".join(plan.model.notes)
    assert "bf16" not in names
    assert ("tf32" in names) == ("tf32" in options)


@pytest.mark.parametrize("tf32", [False, True])
def test_products_of_every_op(tf32: bool, tmp_path: Path) -> None:
    graph, _ = join("every_op", list(every_op(dynamic=True)))
    task = {"mode": "generate", "program": prepare(graph).program.to_json()}
    run_worker(find_aitemplate(), replace(SETTINGS, tf32=tf32), [task], tmp_path)
    files = {path.name: path.read_bytes() for path in (tmp_path / "src-0").glob("*.cu")}
    for name, operations in arithmetic(files).items():
        half = b"cutlass::half_t" in files[name]
        assert operations == {PLAIN if tf32 or half else THREE_TIMES_TF32}, name
