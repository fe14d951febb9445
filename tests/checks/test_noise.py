"""The noise of a model: how far it moves by itself, and what that lets through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ortisan.checks.compare import compare
from ortisan.checks.expected import expect
from ortisan.checks.isolated import Isolated
from ortisan.checks.noise import Noise, measure_noise
from ortisan.checks.samples import Case
from ortisan.checks.session import reference_session, stock_session
from ortisan.converter.passes.move_weights import move_array, move_weights
from tests.models.text import text_model


def measured(body: str, tmp_path: Path, feeds: dict[str, np.ndarray], **constants: np.ndarray) -> Noise:
    model = text_model("(float[n] x) => (float[n] y)", body, constants=constants)
    onnx.save(model, tmp_path / "model.onnx")
    spec = reference_session(tmp_path / "model.onnx")
    with Isolated() as runner:
        expected = expect(runner, spec, [[Case("one", feeds)]])
        return measure_noise(runner, expected, [spec], [stock_session(spec.path)])["one", "y"]


def test_a_plain_model_moves_by_an_ulp_or_two(tmp_path: Path) -> None:
    x = np.linspace(1, 2, 64, dtype=np.float32)
    noise = measured("y = Add(x, x)", tmp_path, {"x": x})
    assert 0 < noise.max_rel < 1e-6
    assert noise.off == 0


def test_a_model_that_rounds_jumps(tmp_path: Path) -> None:
    """Half of these lie on the edge of a step: an ulp decides."""
    x = np.tile(np.array([0.5, 1.25], np.float32), 32)
    noise = measured("y = Round(x)", tmp_path, {"x": x})
    assert noise.max_abs == 1
    assert 0.05 < noise.off < 0.5


def test_zero_and_infinity_do_not_move() -> None:
    x = np.array([0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)
    moved = move_array(x, np.random.default_rng(0))
    np.testing.assert_array_equal(moved[:4], x[:4])
    assert moved[4] != 1.5
    assert abs(moved[4] - 1.5) < 2e-7


def test_whole_numbers_do_not_move_because_they_may_be_indices() -> None:
    x = np.array([1, 5, 7], np.float32)
    np.testing.assert_array_equal(move_array(x, np.random.default_rng(0)), x)


def test_floats_move_by_at_most_so_many_ulps() -> None:
    x = np.linspace(1.1, 1.9, 500, dtype=np.float32)
    steps = np.rint((move_array(x, np.random.default_rng(0), 4) - x) / np.spacing(np.float32(1)))
    assert {*np.abs(steps)} == {1, 2, 3, 4}


def test_weights_move_wherever_they_are() -> None:
    """Some exporters write weights as constants, and bodies have weights of their own."""
    weights = ", ".join(f"{0.1 * number:.1f}" for number in range(1, 9))
    body = f"""c = Constant<value = float[8] {{{weights}}}>() a = Mul(x, w) b = Add(a, c) e = Mul(b, few)
        y = If (flag) <then_branch = g () => (float[8] p) {{d = Constant<value = float[8] {{{weights}}}>() p = Add(e, d)}},
        else_branch = g () => (float[8] q) {{q = Identity(e)}}>"""
    constants = {"w": np.linspace(0.1, 0.9, 8, dtype=np.float32), "few": np.float32(0.5)}
    model = ir.from_proto(text_model("(float[8] x, bool flag) => (float[8] y)", body, constants=constants))
    before = dict(floats(model))
    assert move_weights(model) == 3
    after = dict(floats(model))
    assert sorted(array.size for array in after.values()) == [1, 8, 8, 8]
    for place, moved in after.items():
        assert (moved != before[place]).all() == (moved.size == 8)
        np.testing.assert_allclose(moved, before[place], rtol=5e-7)


def floats(model: ir.Model) -> Iterator[tuple[object, np.ndarray]]:
    """The constants of a model, by place."""
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            yield (graph, name), value.const_value.numpy()
        for node in graph:
            if node.op_type == "Constant":
                yield node, node.attributes["value"].as_tensor().numpy()


EXPECTED = np.round(np.linspace(-10, 10, 1000)).astype(np.float32)


@pytest.mark.parametrize(
    "wrong, covered",
    [
        (5, True),  # as many steps as the model itself jumps
        (500, False),  # far more elements than that
    ],
)
def test_how_many_elements_may_differ(wrong: int, covered: bool) -> None:
    noise = Noise(max_abs=1.0, max_rel=0.2, off=0.005, elements=1000)
    actual = EXPECTED.copy()
    actual[:wrong] += 1
    assert noise.covers(compare(actual, EXPECTED)) is covered


def test_how_far_they_may_differ() -> None:
    noise = Noise(max_abs=1e-4, max_rel=1e-3, off=1.0, elements=1000)
    assert noise.covers(compare(EXPECTED + np.float32(2e-4), EXPECTED))
    assert not noise.covers(compare(EXPECTED + np.float32(0.1), EXPECTED))


def test_a_shape_of_its_own_is_never_covered_unless_the_model_changes_it_too() -> None:
    wrong = compare(EXPECTED[:-1], EXPECTED)
    assert not Noise(1.0, 1.0, 1.0, 1000).covers(wrong)
    assert Noise(1.0, 1.0, 1.0, 1000, unstable="the shape is [999], expected [1000]").covers(wrong)


def test_noise_that_cannot_be_measured_excuses_no_number() -> None:
    unstable = Noise(elements=1000).with_run(compare(EXPECTED[:-1], EXPECTED))
    assert unstable.covers(compare(EXPECTED[:-2], EXPECTED))
    assert not unstable.covers(compare(EXPECTED + np.float32(0.1), EXPECTED))
