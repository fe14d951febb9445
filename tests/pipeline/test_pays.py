"""What can't make a model faster is not built, and what stays in ONNX Runtime is still optimized there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.pipeline.pays import cannot_pay, costliest_left
from tests.models.text import text_model

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def convolutions(tail: str = "") -> onnx.ModelProto:
    """Two convolutions with steps that ONNX Runtime fuses with them or runs in their layout."""
    body = (
        "a = Conv<pads=[1,1,1,1]>(x, v, b) c = BatchNormalization(a, s, b, m, r) d = Relu(c) e = Mul(d, d) f = Exp(e)"
        f"g = Conv<pads=[1,1,1,1]>(f, w, b) y0 = Relu(g) {tail or 'y = Identity(y0)'}"
    )
    constants = {"v": weights(16, 3, 3, 3), "w": weights(16, 16, 3, 3), "b": weights(16), "s": weights(16)}
    constants |= {"m": weights(16), "r": np.abs(weights(16)) + 1, "flat": np.array([0, -1])}
    constants |= {"big": weights(16 * 256, 512), "bias": weights(512)} if tail else {}
    outputs = "float[batch,512] y" if tail else "float[batch,16,16,16] y"
    return text_model(f"(float[batch,3,16,16] x) => ({outputs})", body, constants=constants)


def test_steps_beside_convolutions_are_left() -> None:
    compiled = ortisan.compile(convolutions(), name="net", exclude=["Conv"])
    assert compiled.ops
    reasons = cannot_pay(compiled)
    assert sorted(reasons) == list(range(len(compiled.ops)))
    assert {reason.partition(",")[0] for reason in reasons.values()} <= {
        "steps beside Conv",
        "too small to make the model faster",
    }


def test_a_product_behind_convolutions_is_kept() -> None:
    compiled = ortisan.compile(
        convolutions("h = Reshape(y0, flat) i = MatMul(h, big) y = Add(i, bias)"), name="net", exclude=["Conv"]
    )
    kept = [index for index in range(len(compiled.ops)) if index not in cannot_pay(compiled)]
    assert [any("gemm" in node.op.name for node in compiled.graphs[index].nodes) for index in kept] == [True]


def test_a_small_part_of_a_large_model_is_left() -> None:
    """The sum at the end is nothing beside a recurrent net."""
    body = "a, b = LSTM<hidden_size=256>(x, w, r) y = ReduceSum<keepdims=0>(a)"
    model = text_model(
        "(float[100,1,256] x) => (float y)", body, constants={"w": weights(1, 1024, 256), "r": weights(1, 1024, 256)}
    )
    compiled = ortisan.compile(model, name="net")
    assert list(cannot_pay(compiled).values()) == ["too small to make the model faster"]
    first = costliest_left(compiled)[0]
    assert first["op_type"] == "LSTM"
    assert float(str(first["share"])) > 0.9


@pytest.mark.build
def test_a_build_leaves_them_and_says_why(tmp_path: Path) -> None:
    artifact = ortisan.build(convolutions(), tmp_path / "out", tune="off", exclude=["Conv"])
    assert artifact.ops == ()
    assert artifact.manifest["costliest_left"][0]["op_type"] == "Conv"
    assert ortisan.build(convolutions(), tmp_path / "out", tune="off", keep="all", exclude=["Conv"]).ops


@pytest.mark.build
def test_the_rest_is_fused_as_before(tmp_path: Path) -> None:
    """ONNX Runtime's optimized graphs of the source and of the converted model differ by what was compiled alone."""
    model = convolutions("h = Reshape(y0, flat) i = MatMul(h, big) y = Add(i, bias)")
    artifact = ortisan.build(
        model, tmp_path / "out", tune="off", keep="all", exclude=["Relu", "Exp", "Mul", "Conv", "BatchNormalization"]
    )
    assert len(artifact.ops) == 1
    onnx.save(model, tmp_path / "model.onnx")
    theirs = optimized(tmp_path / "model.onnx", tmp_path)
    ours = optimized(artifact.model, tmp_path, artifact.library)
    inside = Counter(["MatMul", "Gemm", "Add", "Reshape", "FusedMatMul", "FusedGemm"])
    assert Counter({op: n for op, n in ours.items() if op != artifact.ops[0]}) == Counter(
        {op: n for op, n in theirs.items() if op not in inside}
    )
    assert theirs["Relu"] == theirs["BatchNormalization"] == 0


def optimized(path: Path, folder: Path, library: Path | None = None) -> Counter[str]:
    """How many nodes of each op ONNX Runtime runs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    if library is not None:
        options.register_custom_ops_library(str(library))
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx", load_external_data=False).graph.node)


def test_what_is_in_a_loop_runs_many_times() -> None:
    """One turn is nothing beside a recurrent net, many are not."""
    product = "h = MatMul(s, v) t = Tanh(h)"
    loop = f"""go = Constant <value = bool {{1}}> ()
        y = Loop <body = turn (int64 i, bool on, float[n,48] s) => (bool more, float[n,48] t)
            {{ {product} more = Identity(on) }}> (m, go, z)"""
    for body, kept in ((f"s = Neg(z) {product} y = Relu(t)", False), (loop, True)):
        model = text_model(
            "(float[100,1,256] x, int64 m, float[n,48] z) => (float[n,48] y, float[100,1,1,256] a)",
            f"a, b = LSTM<hidden_size=256>(x, w, r) {body}",
            constants={"w": weights(1, 1024, 256), "r": weights(1, 1024, 256), "v": weights(48, 48)},
        )
        compiled = ortisan.compile(model, target="reference")
        assert (not cannot_pay(compiled)) == kept
