"""A kernel that is wrong, crashes or hangs: its subgraph is left and named, the rest is kept, the artifact is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.checks import verify
from tests.models.text import random_feeds
from tests.pipeline import faults
from tests.pipeline.fault_models import MODELS, three_parts, two_inputs
from tests.tolerances import BLOCK, SAME

pytestmark = pytest.mark.build

RNG = np.random.default_rng(1)


def _is_softmax(node: object) -> bool:
    return getattr(node, "op_type", "") == "Softmax"


def build(model: onnx.ModelProto, folder: Path, **options: object) -> ortisan.Artifact:
    return ortisan.build(model, folder, keep="all", tune="off", exclude=_is_softmax, **options)  # type: ignore[arg-type]


def is_right(artifact: ortisan.Artifact, model: onnx.ModelProto) -> bool:
    session = ort.InferenceSession(model.SerializeToString())
    feeds = {value.name: RNG.standard_normal((5, value.shape[1])).astype(np.float32) for value in session.get_inputs()}
    ours, theirs = ortisan.load(artifact.folder).run(None, feeds), session.run(None, feeds)
    return all(np.allclose(a, b, atol=SAME) for a, b in zip(ours, theirs, strict=True))


FAULTS = {
    "off by a little": faults.OFF_BY_A_LITTLE,
    "sign": faults.SIGN,
    "nan": faults.NAN,
    "crash": faults.CRASH,
    "abort": faults.ABORT,
    "refusal": faults.REFUSAL,
    "wrong weight": faults.wrong_weight,
}


@pytest.mark.parametrize("fault", ["off by a little", "crash"])
def test_one_of_three_is_left(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = three_parts()
    faults.inject(monkeypatch, {1: FAULTS[fault]})
    artifact = build(model, tmp_path / "out", name="net")
    assert artifact.ops == ("net_0", "net_2")
    (left,) = artifact.manifest["departures"]
    assert left["op"] == "net_1"
    assert "killed by SIGSEGV" in left["reason"] if fault == "crash" else "departs" in left["reason"]
    assert is_right(artifact, model)
    reproducer = artifact.folder / left["reproducer"]
    assert {"theirs.onnx", "inputs.npz", "expected.npz"} <= {file.name for file in reproducer.iterdir()}
    with np.load(reproducer / "inputs.npz") as inputs, np.load(reproducer / "expected.npz") as expected:
        again = ort.InferenceSession(reproducer / "theirs.onnx").run(None, dict(inputs))
        np.testing.assert_allclose(again[0], expected[expected.files[0]], atol=SAME)
    assert ortisan.build(model, artifact.folder, keep="all", tune="off").ops, "a folder with reproducers is replaced"


def test_strict_makes_it_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.inject(monkeypatch, {0: faults.SIGN})
    with pytest.raises(ortisan.VerifyError, match="disagree in 1 output; the worst is 'y'"):
        build(two_inputs(), tmp_path / "out", strict=True)
    assert not (tmp_path / "out").exists()


def test_a_swapped_input_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_inputs()
    faults.inject(monkeypatch, {0: faults.swapped_inputs})
    artifact = build(model, tmp_path / "out", name="net")
    assert artifact.ops == ()
    assert artifact.manifest["departures"][0]["op"] == "net_0"
    assert is_right(artifact, model)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_in_every_part(fault: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "wrong weight" and part:
        pytest.skip("only the first product has a bias")
    model = three_parts()
    faults.inject(monkeypatch, {part: FAULTS[fault]})
    artifact = build(model, tmp_path / "out", name="net")
    assert artifact.ops == tuple(f"net_{index}" for index in range(3) if index != part)
    assert [left["op"] for left in artifact.manifest["departures"]] == [f"net_{part}"]
    assert is_right(artifact, model)


SWEEP = {
    "off by 1e-3": faults.OFF_BY_A_LITTLE,
    "swapped input": faults.swapped_inputs,
    "crash": faults.CRASH,
    "endless loop": faults.ENDLESS,
    "wrong shape": faults.wrong_shape,
}


def sweep(name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is left and named, the others are kept, and the artifact is right."""
    monkeypatch.setattr(verify, "PATIENCE_SECONDS", 3.0)
    chosen = MODELS[name]
    model = chosen.make()
    options = {"exclude": list(chosen.left), "tune": "off", "name": "net"}
    ops = ortisan.compile(model, **options).ops  # type: ignore[arg-type]
    faults.inject(monkeypatch, {chosen.part: SWEEP[fault]})
    artifact = ortisan.build(model, tmp_path / "out", keep="all", quick=True, **options)  # type: ignore[arg-type]
    assert [left["op"] for left in artifact.manifest["departures"]] == [ops[chosen.part]]
    assert artifact.ops == tuple(op for op in ops if op != ops[chosen.part])
    assert (artifact.folder / artifact.manifest["departures"][0]["reproducer"] / "inputs.npz").exists()
    feeds = random_feeds(model, seed=3, sequence=3, past_sequence=2, total_sequence=5)
    theirs = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    ours = ortisan.load(artifact.folder).run(None, feeds)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=BLOCK, rtol=BLOCK)


def test_an_endless_loop_and_a_wrong_shape_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for fault in ("endless loop", "wrong shape"):
        with monkeypatch.context() as patch:
            sweep("three parts", fault, tmp_path / fault, patch)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fault", SWEEP)
def test_faults_in_ten_models(name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "swapped input" and not MODELS[name].swaps:
        pytest.skip("it has no two inputs of one type")
    sweep(name, fault, tmp_path, monkeypatch)
