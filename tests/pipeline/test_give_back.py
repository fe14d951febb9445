"""keep="faster": what is slower than ONNX Runtime goes back to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.checks.bench import Bench, Timing
from ortisan.pipeline import give_back
from ortisan.pipeline.check import bench, verify
from tests.tolerances import SAME

pytestmark = pytest.mark.build


@pytest.mark.parametrize(
    "ratio, reason", [(1.0, None), (0.96, None), (0.8, "slower than ONNX Runtime: 1.25 times its time")]
)
def test_only_what_is_clearly_slower(ratio: float, reason: str | None) -> None:
    assert give_back.slower_reason(ratio) == reason


def timed(*ratios: float) -> tuple[Bench, ...]:
    """Timings with one thread and with all, at these speeds."""
    numbers = (1, None)[-len(ratios) :]
    return tuple(
        Bench("a case", threads, 5, Timing(1.0, 1.0), Timing(ratio, ratio), "onnxruntime")
        for threads, ratio in zip(numbers, ratios, strict=True)
    )


@pytest.mark.parametrize(
    "ratios, words",
    [
        ((1.2, 1.3), ""),
        ((1.2, 1.0), ""),
        ((1.2, 0.9), "slower than ONNX Runtime: 1.11 times its time"),
        ((0.8, 2.0), "slower than ONNX Runtime: 1.25 times its time with 1 thread"),
        ((1.01, 1.0), "no faster than ONNX Runtime: 1.01 times its speed"),
    ],
)
def test_the_whole_has_to_gain_somewhere_and_to_lose_nowhere(ratios: tuple[float, ...], words: str) -> None:
    assert give_back.verdict(timed(*ratios)) == words


def test_a_loss_at_another_size_counts_and_is_named() -> None:
    (large,) = timed(1.5)
    small = replace(large, case="a small case", ort=Timing(0.5, 0.5))
    assert give_back.verdict([large, small]) == "slower than ONNX Runtime: 2.00 times its time at a small case"


def test_everything_goes_back(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(give_back, "verdict", lambda benches: "slower than ONNX Runtime: 2.00 times its time")
    artifact = ortisan.build(model_file, tmp_path / "out")
    assert artifact.ops == ()
    assert artifact.library is None
    assert "nothing compiled: ONNX Runtime is faster" in repr(artifact)
    assert artifact.given_back == ("layers_0: slower than ONNX Runtime: 2.00 times its time",)
    assert [node.op_type for node in onnx.load(artifact.model).graph.node] == [
        "MatMul",
        "Add",
        "Relu",
        "Softmax",
        "MatMul",
    ]
    assert ortisan.load(artifact.folder).get_inputs()[0].name == "x"
    assert not (artifact.folder / "src").exists()
    assert verify(artifact.folder).verification.passed


def test_one_of_two_goes_back(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: dict[str, np.ndarray]
) -> None:
    """Each subgraph is timed on its own, on what it gets in the model."""
    found: list[dict[int, float]] = []

    def parts(*rest: Any) -> dict[int, float]:
        found.append(real(*rest))
        return {0: 0.5, 1: 2.0}

    real = give_back.time_parts
    monkeypatch.setattr(give_back, "time_parts", parts)
    monkeypatch.setattr(give_back, "verdict", lambda benches: "")
    artifact = ortisan.build(model_file, tmp_path / "out", exclude="Softmax")
    assert [sorted(ratios) for ratios in found] == [[0, 1]]
    assert all(ratio > 0 for ratio in found[0].values())
    assert artifact.ops == ("layers_1",)
    assert artifact.given_back == ("layers_0: slower than ONNX Runtime: 2.00 times its time",)
    benches = artifact.manifest["benches"]
    assert [bench["threads"] for bench in benches] == [1, None] * (len(benches) // 2)
    assert len({bench["case"] for bench in benches}) == 3, "the typical size, a batch, a short item"
    reasons = {group["op_type"]: group["reason"] for group in artifact.manifest["left_out"]}
    assert reasons["Softmax"] == "excluded"
    assert reasons["Relu"].startswith("slower than")
    expected = ort.InferenceSession(model_file).run(None, x)[0]
    np.testing.assert_allclose(ortisan.load(artifact.folder).run(None, x)[0], expected, atol=SAME)
    assert verify(artifact.folder, per_node=True).departure is None


def test_fewer_subgraphs_are_tried_before_all_go_back(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves both gain, the whole does not; then the one that gains most is tried alone."""
    tried: list[frozenset[int]] = []

    def whole(draft: object, job: object, case: object, kept: frozenset[int]) -> tuple[Bench, ...]:
        tried.append(kept)
        return timed(1.5 if kept == {1} else 0.5)

    monkeypatch.setattr(give_back, "time_parts", lambda *_: {0: 1.1, 1: 1.12})
    monkeypatch.setattr(give_back, "_time_whole", whole)
    artifact = ortisan.build(model_file, tmp_path / "out", exclude="Softmax")
    assert tried == [{0, 1}, {1}]
    assert artifact.ops == ("layers_1",)
    assert artifact.given_back == ("layers_0: the model is faster without it",)


def test_bench_of_a_folder(built: ortisan.Artifact) -> None:
    result = bench(built.folder, threads=1, runs=3)
    assert (result.threads, result.runs, result.case) == (1, 3, "batch=1, seq=128")
    assert result.ratio == pytest.approx(result.ort.median / result.compiled.median)
    assert result.compiled.best <= result.compiled.median


@pytest.mark.parametrize(
    "options, words",
    [
        ({"against": "openvino"}, "can't time against 'openvino'"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"runs": -1}, "runs must be at least 1"),
    ],
)
def test_bench_options(options: dict[str, object], words: str, built: ortisan.Artifact) -> None:
    with pytest.raises(ortisan.OptionError, match=words):
        bench(built.folder, **options)  # type: ignore[arg-type]
