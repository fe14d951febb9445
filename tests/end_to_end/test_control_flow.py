"""Custom ops in bodies of If, Loop and Scan, in one artifact, against stock ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.pipeline.check import verify
from tests.models.control_flow import PARTS, Array, control_flow_model
from tests.models.sessions import open_session
from tests.models.text import random_feeds
from tests.pipeline import faults
from tests.tolerances import SAME

pytestmark = pytest.mark.build

SWITCHES = {"branch_c": True, "nested_c": True, "nested_d": True, "rank_c": True}
TURNS = {"loop_m": 3, "carry_m": 2, "grow_m": 2, "deep_m": 2, "left_m": 2}
CASES = {
    "all branches taken": {},
    "no branch taken": dict.fromkeys(SWITCHES, False),
    "the inner branch not taken": {"nested_d": False},
    "one turn": dict.fromkeys(TURNS, 1),
    "no turn at all": dict.fromkeys(TURNS, 0),
    "ended by the condition": {"loop_most": 0.5, "loop_m": 50},
}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return control_flow_model()


@pytest.fixture(scope="module")
def artifact(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> ortisan.Artifact:
    folder = tmp_path_factory.mktemp("control_flow") / "out"
    return ortisan.build(model, folder, keep="all", tune="off", verify=False, name="flow")


@pytest.fixture(scope="module")
def sessions(model: onnx.ModelProto, artifact: ortisan.Artifact) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    return ortisan.load(artifact.folder), open_session(model, plain=True)


def feeds(model: onnx.ModelProto, rows: int, **given: object) -> dict[str, Array]:
    found = random_feeds(model, n=rows, k=4)
    for name, value in {"loop_most": 1e9, **SWITCHES, **TURNS, **given}.items():
        found[name] = np.array(value, found[name].dtype)
    return found


def test_every_part_is_compiled_as_far_as_it_can(artifact: ortisan.Artifact) -> None:
    assert len(artifact.ops) == sum(part.ops for part in PARTS.values())


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("case", CASES)
def test_all_outputs_agree(
    sessions: tuple[ort.InferenceSession, ort.InferenceSession], model: onnx.ModelProto, case: str, rows: int
) -> None:
    given = feeds(model, rows, **CASES[case])
    ours, theirs = (session.run(None, given) for session in sessions)
    for output, have, want in zip(model.graph.output, ours, theirs, strict=True):
        assert have.shape == want.shape, output.name
        np.testing.assert_allclose(have, want, rtol=SAME, atol=SAME, err_msg=output.name)


def test_weights_lie_in_the_graph_of_their_op(artifact: ortisan.Artifact) -> None:
    """ONNX Runtime before 1.31 gives the kernels of a body none of the initializers around it."""
    graph = onnx.load(artifact.model, load_external_data=False).graph
    (node,) = (node for node in graph.node if node.op_type == "Scan")
    (body,) = (attribute.g for attribute in node.attribute if attribute.name == "body")
    (op,) = (inner for inner in body.node if inner.domain == artifact.domain)
    assert {tensor.name for tensor in body.initializer} == set(op.input[2:])
    assert all(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in body.initializer)


def test_an_artifact_of_control_flow_verifies(tmp_path: Path) -> None:
    model = control_flow_model("branches", "scan")
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off", dims={"n": (1, 64)})
    assert artifact.verification is not None
    assert artifact.verification.passed
    assert verify(artifact.folder, model=model, per_node=True).passed


def test_a_wrong_op_inside_is_left_and_the_rest_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.inject(monkeypatch, {2: faults.SIGN})
    model = control_flow_model("branches", "scan")
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off", name="flow")
    assert artifact.ops == ("flow_0", "flow_1")
    (left,) = artifact.manifest["departures"]
    assert left["op"] == "flow_2"
    assert "because of it" in left["reason"]
