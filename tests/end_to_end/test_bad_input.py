"""Bad input gets one clear message, and what was in the output folder stays there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ortisan
from tests.models.mlp import mlp
from tests.models.text import run_ort, text_model
from tests.tolerances import SAME

SIGNATURE = "(float[B,4] x) => (float[B,4] y)"


def relu(**more: Any) -> onnx.ModelProto:
    return text_model(SIGNATURE, "y = Relu(x)", **more)


def with_external(folder: Path, location: str, size: int, offset: int = 0) -> Path:
    model = text_model(SIGNATURE, "y = Add(x, w)", constants={"w": np.ones((64, 4), np.float32)[:1]})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    if size and not os.path.isabs(location):
        (folder / location).resolve().parent.mkdir(exist_ok=True)
        (folder / location).write_bytes(b"\0" * size)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def cyclic() -> onnx.ModelProto:
    return text_model(SIGNATURE, "a = Add(x, b) b = Relu(a) y = Relu(b)")


def file(content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "m.onnx").write_bytes(content)
        return folder / "m.onnx"

    return write


BAD_MODELS: dict[str, tuple[Callable[[Path], Any], str, dict[str, Any]]] = {
    "no such file": (lambda folder: folder / "nothing.onnx", "does not exist", {}),
    "a folder": (lambda folder: folder, "is a folder", {}),
    "not ONNX": (file(b"PK\x03\x04" + bytes(range(256))), "not an ONNX", {}),
    "text": (file(b"hello world\n"), "not an ONNX", {}),
    "empty file": (file(b""), "empty", {}),
    "truncated": (lambda folder: file(mlp().SerializeToString()[:-200])(folder), "truncated|not an ONNX", {}),
    "external data missing": (lambda f: with_external(f, "w.bin", 0), "does not exist", {}),
    "external data short": (lambda f: with_external(f, "w.bin", 8), "bytes", {}),
    "external data past its end": (lambda f: with_external(f, "w.bin", 16, offset=12), "bytes", {}),
    "external data outside": (lambda f: with_external(f, "../w.bin", 0), "outside", {}),
    "external data absolute": (lambda f: with_external(f, "/etc/hostname", 0), "absolute", {}),
    "cyclic graph": (lambda _: cyclic(), "cycl", {}),
    "undefined value": (lambda _: text_model(SIGNATURE, "y = Add(x, ghost)"), "ghost", {}),
    "unknown op": (
        lambda _: text_model(SIGNATURE, "a = custom.Frobnicate(x) y = custom.Whirl(a)"),
        "Frobnicate[\\s\\S]*Whirl",
        {"whole_graph": True},
    ),
    "only unknown ops": (
        lambda _: text_model(SIGNATURE, "y = custom.Frobnicate(x)"),
        "can't load the source model.*Frobnicate.*--no-verify",
        {},
    ),
    "unknown dtype": (
        lambda _: text_model("(complex64[4] x) => (complex64[4] y)", "y = Identity(x)"),
        "complex64",
        {"whole_graph": True},
    ),
    "undeclared attribute": (lambda _: text_model(SIGNATURE, "y = Relu<slope = 0.5>(x)"), "slope", {}),
    "huge dims": (
        lambda _: text_model(
            "(float[1000000000000,1000000000000] x) => (float[1000000000000,1000000000000] y)", "y = Relu(x)"
        ),
        "too large|elements",
        {"whole_graph": True},
    ),
    "unknown target": (lambda _: relu(), "no target 'tpu'", {"target": "tpu"}),
    "unknown ISA": (lambda _: relu(), "sparc", {"target": "cpu:sparc"}),
    "unknown dim": (lambda _: relu(), "'sequence'", {"dims": {"sequence": 4}}),
    "dim below zero": (lambda _: relu(), "B", {"dims": {"B": -1}}),
    "range upside down": (lambda _: relu(), "B", {"dims": {"B": (8, 2)}}),
    "include nothing": (lambda _: relu(), "no node is named 'Softmax'", {"include": "Softmax"}),
    "between strangers": (lambda _: relu(), "no value named 'q'", {"between": ("q", "y")}),
    "between no path": (lambda _: relu(), "no path", {"between": ("y", "x")}),
    "whole graph and exclude": (lambda _: relu(), "whole_graph", {"whole_graph": True, "exclude": "Relu"}),
    "not a model": (lambda _: 42, "expected a path", {}),
}


@pytest.mark.parametrize("what", BAD_MODELS)
def test_bad_model_is_one_clear_error_and_nothing_is_lost(what: str, tmp_path: Path) -> None:
    make, message, keywords = BAD_MODELS[what]
    inputs, output = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    output.mkdir()
    (output / "manifest.json").write_text('{"name": "old"}')
    before = tree(tmp_path / "out")
    model = make(inputs)
    with pytest.raises(ortisan.OrtisanError, match=message) as caught:
        ortisan.build(model, output, **keywords)
    assert "Traceback" not in str(caught.value)
    assert tree(output) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


NASTY = [
    'quo"te',
    "new\nline",
    "*/ int main() {",
    "// comment",
    "back\\slash",
    "ünïcödé 漢字",
    "x" * 10_000,
    "%s%n",
    "??/",
    "a.b",
    "a/b",
    "a b",
    "\t",
    "#include <x>",
    "'",
]


@pytest.mark.build
def test_names_of_all_kinds_survive(tmp_path: Path) -> None:
    """Names that would break C++, and names that are equal once cleaned."""
    nodes, inputs, outputs, weights = [], [], [], []
    for index, name in enumerate(NASTY):
        inputs.append(helper.make_tensor_value_info(f"in {name}", 1, [f"dim {name}", 4]))
        outputs.append(helper.make_tensor_value_info(f"out {name}", 1, None))
        weights.append(numpy_helper.from_array(np.full(4, index, np.float32), f"w {name}"))
        nodes.append(helper.make_node("Add", [f"in {name}", f"w {name}"], [f"mid {name}"], name=f"node {name}"))
        nodes.append(helper.make_node("Tanh", [f"mid {name}"], [f"out {name}"], name=f"tanh {name}"))
    graph = helper.make_graph(nodes, 'graph "*/', inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ortisan.build(model, tmp_path / 'odd "name" ü', keep="all", verify=False)
    session = ortisan.load(tmp_path / 'odd "name" ü')
    assert [value.name for value in session.get_inputs()] == [value.name for value in inputs]
    feeds = {value.name: np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32) for value in inputs}
    for have, want in zip(session.run(None, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(have, want, atol=SAME)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = text_model("(float[B,S,4] x, float[B,S] m) => (float[B,S,4] y)", "a = Unsqueeze(m, axes) b = Add(x, a) y = Tanh(b)",
                       constants={"axes": np.array([-1])})  # fmt: skip
    folder = tmp_path_factory.mktemp("bounded")
    ortisan.build(model, folder / "out", dims={"S": (2, 8)}, keep="all", verify=False, name="bounded")
    return ortisan.load(folder / "out")


RUN_TIME = {
    "below the range": ((1, 1, 4), (1, 1), r"'S' \(dim 1 of input 'm'\) is 1.*2..8"),
    "above the range": ((1, 9, 4), (1, 9), r"'S' \(dim 1 of input 'm'\) is 9.*2..8"),
    "dims that differ": ((1, 3, 4), (1, 4), "S"),
    "fixed dim": ((1, 3, 5), (1, 3), "5|4"),
}


@pytest.mark.build
@pytest.mark.parametrize("what", RUN_TIME)
def test_wrong_shapes_at_run_time(what: str, bounded: Any) -> None:
    x, m, message = RUN_TIME[what]
    with pytest.raises(Exception, match=message):
        bounded.run(None, {"x": np.zeros(x, np.float32), "m": np.zeros(m, np.float32)})


@pytest.mark.build
def test_wrong_rank_and_dtype_at_run_time(bounded: Any) -> None:
    good = {"x": np.zeros((1, 3, 4), np.float32), "m": np.zeros((1, 3), np.float32)}
    with pytest.raises(Exception, match=r"rank|dims"):
        bounded.run(None, {**good, "m": np.zeros(3, np.float32)})
    with pytest.raises(Exception, match=r"(?i)type|double"):
        bounded.run(None, {**good, "m": np.zeros((1, 3), np.float64)})
    assert bounded.run(None, good)[0].shape == (1, 3, 4)


@pytest.mark.build
def test_zero_size_dims_work(tmp_path: Path) -> None:
    ortisan.build(mlp(), tmp_path / "out", keep="all", verify=False)
    assert ortisan.load(tmp_path / "out").run(None, {"x": np.zeros((0, 16), np.float32)})[0].shape == (0, 8)


@pytest.mark.build
def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(ortisan.ToolchainError, match="no-such-compiler"):
        ortisan.build(mlp(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.build
def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken-g++"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *graphs_0*) echo "graphs_0.cpp:1:2: error: out of cheese" >&2; exit 1;; esac\nexec g++ "$@"\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(ortisan.ToolchainError, match="out of cheese") as caught:
        ortisan.build(mlp(sizes=(5, 7, 3)), tmp_path / "out")
    assert "log" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.build
def test_killed_in_the_middle(tmp_path: Path) -> None:
    """A build that is killed leaves a whole artifact: the old one, or the new one when it was all but finished."""
    model = tmp_path / "m.onnx"
    onnx.save(mlp(sizes=(11, 13, 3)), model)
    ortisan.build(model, tmp_path / "out", keep="all", verify=False)
    before = tree(tmp_path / "out")
    command = [
        sys.executable,
        "-c",
        f"import ortisan; ortisan.build({str(model)!r}, {str(tmp_path / 'out')!r}, name='other')",
    ]
    for delay in (1.5, 2.5, 3.5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = tree(tmp_path / "out")
        assert after == before or "other.onnx" in after
        assert ortisan.load(tmp_path / "out").run(None, {"x": np.zeros((2, 11), np.float32)})


def test_an_old_onnxruntime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.17.3")
    with pytest.raises(ortisan.OrtisanError, match=r"1\.18"):
        ortisan.build(mlp(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
