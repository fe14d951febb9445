"""The caller's model: read once, known by all of its files, its functions counted."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import ortisan
from ortisan.converter.read import load
from ortisan.pipeline.source import Source
from tests.models.mlp import mlp

FUNCTIONS = """
<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[n] x) => (float[n] y) { a = local.double(x) b = Relu(a) y = local.double(b) }
<domain: "local", opset_import: ["": 17]>
double (x) => (y) { y = Add(x, x) }
"""


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights are in another file."""
    path = tmp_path / "model" / "net.onnx"
    path.parent.mkdir()
    onnx.save(mlp(), path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The model files that are read during a test."""
    found: list[Path] = []
    read = load._read
    monkeypatch.setattr(load, "_read", lambda path: (found.append(path), read(path))[1])
    return found


def change_a_weight(path: Path) -> None:
    data = bytearray((path.parent / "net.data").read_bytes())
    data[5] ^= 1
    (path.parent / "net.data").write_bytes(data)


def test_calls_of_functions_are_counted() -> None:
    compiled = ortisan.compile(onnx.parser.parse_model(FUNCTIONS), target="reference")
    assert compiled.passes["inline functions"] == 2


def test_the_hash_of_the_content_covers_external_data_and_that_of_the_graph_does_not(external: Path) -> None:
    before = Source(external)
    content = before.content_hash()
    change_a_weight(external)
    after = Source(external)
    assert after.content_hash() != content
    assert after.hash == before.hash


@pytest.mark.build
def test_weights_that_changed_since_the_build_are_another_model(
    external: Path, reads: list[Path], tmp_path: Path
) -> None:
    ortisan.build(external, tmp_path / "out", keep="all", tune="off")
    assert reads == [external], "what verifies and times takes the model that was compiled"
    assert ortisan.verify(tmp_path / "out").passed
    change_a_weight(external)
    with pytest.raises(ortisan.ArtifactError, match=r"net\.onnx' has changed since"):
        ortisan.verify(tmp_path / "out")


def test_the_model_is_read_once(external: Path, reads: list[Path], tmp_path: Path) -> None:
    ortisan.inspect(external)
    assert reads == [external]
    ortisan.build(external, tmp_path / "out", sources_only=True, tune="off")
    assert reads == [external] * 2
