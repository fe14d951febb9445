"""compile(target="cuda:80"): AITemplate's sources as plans, the same bytes each time, and what inspect says of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ortisan
from ortisan.codegen.ait.adapter import Adapter
from ortisan.codegen.ait.model import AitModel
from tests.ait.gpu_models import GpuModel, gpu_models

pytestmark = pytest.mark.aitemplate


@pytest.fixture(scope="module")
def model() -> GpuModel:
    return gpu_models()[1]


@pytest.fixture(scope="module")
def inspection(model: GpuModel) -> Any:
    return ortisan.inspect(model.model, target="cuda:80", dims=dict(model.dims))


@pytest.fixture(scope="module")
def plan(inspection: Any) -> AitModel:
    return inspection.compilation.plans[0].model  # type: ignore[no-any-return]


def test_tensors_constants_and_files(plan: AitModel) -> None:
    assert [tensor.name for tensor in plan.inputs] == [f"i{t.index}_" for t in plan.inputs]
    assert [tensor.index for tensor in plan.outputs] == list(range(len(plan.graph.outputs)))
    assert all(
        re.fullmatch(r"c\d+_", constant.name) and constant.data.flags.c_contiguous for constant in plan.constants
    )
    assert {"model_container.cu", "model_interface.cu", "model-generated.h"} <= set(plan.files)
    assert not {"standalone.cu", "windll.cu"} & set(plan.files)
    assert not plan.profiled


def test_weights_are_folded_before_aitemplate_sees_them(plan: AitModel) -> None:
    assert not [name for name in plan.files if name.endswith("_constant_folding.cu")]


def test_no_name_of_the_model_and_no_place_is_in_the_sources(plan: AitModel) -> None:
    text = b"\n".join(plan.files.values())
    for word in (b"past_key_values", b"past_sequence", b"transformer", b"ortisan-ait-", b"/tmp/"):
        assert word not in text


def test_inspect_says_how_attention_is_computed(inspection: Any) -> None:
    (op,) = inspection.to_json()["ops"]
    assert op["profiled"] is False
    assert "2 x attention: own kernel, boolean mask" in op["notes"]
    assert any("cutlass_tensorop" in note for note in op["notes"])


def test_the_same_model_gives_the_same_bytes(plan: AitModel, model: GpuModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adapter, "_made", {})
    again = ortisan.compile(model.model, target="cuda:80", dims=dict(model.dims))
    assert dict(again.plans[0].model.files) == dict(plan.files)
    for have, want in zip(again.plans[0].model.constants, plan.constants, strict=True):
        np.testing.assert_array_equal(have.data, want.data)
