"""Models from end to end: built by nvcc for sm_80, their kernels executed from their PTX, against ONNX Runtime.

BERT runs padded on the right and on the left, GPT-2 and Llama with and without a past.
"""

from __future__ import annotations

import pytest

from ortisan.checks.tolerance import tolerance
from ortisan.registry.dtypes import DType
from tests.gpu.emulated_models import Emulated, decode, emulate_model
from tests.gpu.own_process import in_own_process

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]

SLOW = ("gpt2", "llama", "resnet", "diffusion", "bert base, 2 layers")


def check(found: Emulated, most: float) -> None:
    print(found)
    assert found.left == ()
    assert found.errors
    assert max(found.errors.values()) <= most, found.errors
    assert min(found.launches.values()) > 0


def test_two_layers_of_bert() -> None:
    check(in_own_process(emulate_model, "bert", strict=True), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_model(name: str) -> None:
    check(in_own_process(emulate_model, name, strict=True), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "resnet", "diffusion"])
def test_a_model_in_float16(name: str) -> None:
    check(
        in_own_process(emulate_model, name, precision="fp16", strict=True), tolerance(DType.FLOAT16, "close").relative
    )


@pytest.mark.slow
def test_all_layers_of_bert_base() -> None:
    check(in_own_process(emulate_model, "bert base", strict=True), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True], ids=["copied", "in place"])
def test_gpt2_generates_the_same_tokens(in_place: bool) -> None:
    """A prefill, in which one row is padded, and four steps."""
    decoded = in_own_process(decode, 5, in_place=in_place)
    print(decoded)
    assert decoded.tokens == decoded.expected
    assert len(decoded.tokens) == 5
    assert len({tuple(tokens) for tokens in decoded.tokens}) > 1, "a model that always says the same proves little"
    assert len(set(decoded.launches[1:])) == 1, "all steps are alike"
