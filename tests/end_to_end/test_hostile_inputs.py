"""Inputs without elements may carry any other dims: a call answers at once, or says what is too large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import ortisan
from tests.models.hostile import hostile_models
from tests.models.text import run_ort

pytestmark = pytest.mark.build
Load = Callable[[str], ort.InferenceSession]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """A session of one of the models, compiled whole."""

    def build(name: str) -> ort.InferenceSession:
        folder: Path = tmp_path_factory.mktemp(name) / "artifact"
        ortisan.build(hostile_models()[name], folder, whole_graph=True, tune="off", keep="all", verify=False)
        return ortisan.load(folder)

    return build


@pytest.mark.parametrize(
    "name, shape",
    [
        ("trilu", (3, 2**55, 0)),
        ("cumsum", (1, 0, 2**60)),
        ("softmax", (2**52, 0)),
    ],
)
def test_what_has_no_elements_is_answered_at_once(load: Load, name: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    (expected,) = run_ort(hostile_models()[name], {"x": x})
    (got,) = load(name).run(None, {"x": x})
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype


def test_a_kernel_inside_the_graph_has_nothing_to_do(load: Load) -> None:
    """Its output has no elements, that of the graph has one."""
    (got,) = load("trilu_sum").run(None, {"x": np.zeros((2**44, 0), np.float32)})
    assert got == 0


@pytest.mark.parametrize("rows", [90425216047595841, 2**55])
def test_dims_that_no_memory_holds_are_named(load: Load, rows: int) -> None:
    """64 bytes times the rows are a small number again in 64 bits."""
    with pytest.raises(
        Exception, match=rf"the inputs are too large: '\w+' would be 0 x {rows} x 64, which is over 2\^47"
    ):
        load("block_sum").run(None, {"x": np.zeros((0, rows, 8), np.float32)})
