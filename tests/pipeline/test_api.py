"""compile, generate and convert_graph together, on models small enough to look at."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import ortisan
from tests.models.mlp import mlp
from tests.models.sessions import open_session
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import APPROXIMATE

CHAIN = text_model(
    "(float[B,4] x, float[4] z) => (float[B,4] y)",
    "a = Add(x, z) b = Tanh(a) c = Mul(b, x) d = Exp(c) y = Sub(d, z)",
)


def run_converted(converted: onnx.ModelProto, library: Path | None, feeds: dict) -> list:
    onnx.checker.check_model(converted)
    return open_session(converted, library).run(None, feeds)


@pytest.mark.build
@pytest.mark.parametrize("model", [mlp(), CHAIN], ids=["mlp", "chain"])
def test_the_three_steps(model: onnx.ModelProto, tmp_path: Path) -> None:
    before = model.SerializeToString()
    compiled = ortisan.compile(model)
    library = ortisan.generate(compiled, tmp_path / "out")
    converted = ortisan.convert_graph(model, compiled)
    feeds = random_feeds(model, B=5, batch=5)
    for have, want in zip(run_converted(converted, library.path, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(have, want, atol=APPROXIMATE)
    assert model.SerializeToString() == before


@pytest.mark.build
def test_convert_graph_brings_external_weights_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(sizes=(64, 128, 8))
    external = onnx.ModelProto()
    external.CopyFrom(model)
    convert_model_to_external_data(external, location="w.bin", size_threshold=0)
    onnx.save(external, tmp_path / "m.onnx")
    compiled = ortisan.compile(tmp_path / "m.onnx", exclude="Relu")
    library = ortisan.generate(compiled, tmp_path / "out")
    monkeypatch.chdir(tmp_path.parent)
    feeds = random_feeds(model)
    have = run_converted(ortisan.convert_graph(tmp_path / "m.onnx", compiled), library.path, feeds)
    np.testing.assert_allclose(have[0], run_ort(model, feeds)[0], atol=APPROXIMATE)


@pytest.mark.build
def test_weights_come_from_the_model_that_is_converted(tmp_path: Path) -> None:
    """The compile key is the graph, not the values: other weights run in the same library."""
    compiled = ortisan.compile(mlp(seed=0), name="m")
    library = ortisan.generate(compiled, tmp_path / "out")
    other = mlp(seed=1)
    feeds = random_feeds(other)
    have = run_converted(ortisan.convert_graph(other, compiled), library.path, feeds)
    np.testing.assert_allclose(have[0], run_ort(other, feeds)[0], atol=APPROXIMATE)


def test_another_model_is_refused() -> None:
    with pytest.raises(ortisan.OptionError, match="not the one"):
        ortisan.convert_graph(CHAIN, ortisan.compile(mlp()))


def test_the_same_model_gives_the_same_bytes() -> None:
    from ortisan.pipeline.generate import render_sources

    assert render_sources(ortisan.compile(mlp())) == render_sources(ortisan.compile(mlp()))


def test_bounds_are_part_of_the_domain() -> None:
    domains = {
        ortisan.compile(mlp(), dims=dims).domain for dims in ({}, {"batch": (1, 8)}, {"batch": (1, 9)}, {"batch": 1})
    }
    assert len(domains) == 4


def test_sources_only_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    library = ortisan.generate(ortisan.compile(mlp()), tmp_path / "out", sources_only=True)
    assert library.path is None
    assert (tmp_path / "out" / "src" / "CMakeLists.txt").exists()


def test_the_reference_target_generates_nothing(tmp_path: Path) -> None:
    compiled = ortisan.compile(mlp(), target="reference")
    with pytest.raises(ortisan.OptionError, match="numpy"):
        ortisan.generate(compiled, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_reference_target_computes_the_model() -> None:
    feeds = random_feeds(mlp())
    have = ortisan.compile(mlp(), target="reference").run(feeds)
    np.testing.assert_allclose(have[0], run_ort(mlp(), feeds)[0], atol=APPROXIMATE)


@pytest.mark.build
def test_the_library_exports_one_symbol_and_needs_neither_runtime_nor_python(tmp_path: Path) -> None:
    library = ortisan.generate(ortisan.compile(mlp()), tmp_path / "out")
    assert library.path is not None
    handle = ctypes.CDLL(str(library.path))
    assert handle.RegisterCustomOps
    text = library.path.read_bytes()
    assert b"libonnxruntime" not in text
    assert b"libpython" not in text


def test_dims_as_they_come_from_arrays_and_files() -> None:
    numbers = ortisan.compile(CHAIN, target="reference", dims={"B": np.int64(3)})  # type: ignore[dict-item]
    ends = ortisan.compile(CHAIN, target="reference", dims={"B": [1, np.int32(8)]})  # type: ignore[dict-item,list-item]
    assert numbers.options.dims == {"B": 3}
    assert type(numbers.options.dims["B"]) is int
    assert ends.options.dims == {"B": (1, 8)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": ["B"]}, "dims must map names"),
        ({"between": "x:y"}, "between must be a pair"),
        ({"between": ("x",)}, "between must be a pair"),
        ({"include": 3}, "include takes names of nodes, op types or functions of a node, not 3"),
        ({"exclude": ["Add", None]}, "exclude takes names of nodes"),
        ({"name": 7}, "name must be text, not 7"),
        ({"target": None}, "target must be text as 'cpu' or 'cuda:80', not None"),
    ],
)
def test_options_of_another_form(options: dict, message: str) -> None:
    with pytest.raises(ortisan.OptionError, match=message):
        ortisan.compile(CHAIN, **{"target": "reference", **options})


def test_the_reference_says_which_size_it_expects() -> None:
    feeds = {"x": np.zeros((2, 5), np.float32), "z": np.zeros(4, np.float32)}
    with pytest.raises(ortisan.OptionError, match=r"dim 1 of input 'x' is 5, expected 4$"):
        ortisan.compile(CHAIN, target="reference").run(feeds)


@pytest.mark.parametrize("op", ["HardSigmoid", "HardSigmoid <alpha = 0.2, beta = 0.5>"])
def test_defaults_of_attributes_are_float32_in_float64_too(op: str) -> None:
    model = text_model("(double[n] x) => (double[n] y)", f"y = {op} (x)", opset=18)
    feeds = {"x": np.linspace(-2, 2, 9)}
    have = ortisan.compile(model, target="reference").run(feeds)[0]
    np.testing.assert_allclose(have, run_ort(model, feeds)[0], rtol=1e-14)
