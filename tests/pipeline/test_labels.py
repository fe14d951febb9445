"""Builds of models whose inputs share the name of a dim that they need not agree in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ortisan
from tests.models.text import text_model
from tests.tolerances import APPROXIMATE, assert_close

pytestmark = pytest.mark.build

RNG = np.random.default_rng(0)
BODY = """places = Gather<axis = 2>(boxes, first) found = Gather(table, places) sum = Add(features, found)
    y = MatMul(sum, w)"""
CONSTANTS = {
    "first": np.array(0),
    "table": RNG.standard_normal((3, 48)).astype(np.float32),
    "w": RNG.standard_normal((48, 8)).astype(np.float32),
}
MODEL = text_model(
    "(float[batch,height,width] features, int64[batch,height,width] boxes) => (float[batch,height,8] y)",
    BODY,
    constants=CONSTANTS,
)


def feeds(width: int) -> dict[str, np.ndarray]:
    boxes = RNG.integers(0, 3, (2, 5, width))
    return {"features": RNG.standard_normal((2, 5, 48)).astype(np.float32), "boxes": boxes}


@pytest.mark.parametrize("inputs", [None, feeds(8)], ids=["samples", "given"])
def test_a_dim_that_only_shares_its_name_is_freed(inputs: dict[str, np.ndarray] | None, tmp_path: Path) -> None:
    artifact = ortisan.build(MODEL, tmp_path / "a", inputs=inputs, keep="all", tune="off")
    assert len(artifact.ops) == 1
    assert not artifact.manifest["departures"]
    assert artifact.manifest["options"]["dims"] == {"width": "free"}
    session = ortisan.load(artifact.folder)
    for width in (8, 48):
        given = feeds(width)
        expected = (given["features"] + CONSTANTS["table"][given["boxes"][..., 0]]) @ CONSTANTS["w"]
        assert_close(session.run(None, given)[0], expected, f"boxes of width {width}", APPROXIMATE)
    checked = ortisan.verify(artifact.folder, model=MODEL, per_node=True)
    assert checked.verification.passed
    assert checked.departure is None


def test_a_name_that_counts_is_kept(tmp_path: Path) -> None:
    model = text_model("(float[n,4] x, float[n,4] y) => (float[n,4] z)", "z = Add(x, y)")
    artifact = ortisan.build(model, tmp_path / "a", keep="all")
    assert artifact.manifest["options"]["dims"] == {}


def test_a_size_that_only_the_model_has_is_no_label(tmp_path: Path) -> None:
    """The length of what a node that is left makes is a symbol that no input has."""
    body = "found = NonZero(x) rows = Cast<to = 1>(found) y = Exp(rows)"
    model = text_model("(float[n] x) => (float[1,m] y)", body)
    artifact = ortisan.build(model, tmp_path / "a", keep="all")
    assert len(artifact.ops) == 1
    assert artifact.manifest["options"]["dims"] == {}
