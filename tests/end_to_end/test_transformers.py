"""Transformers of many kinds, from both of torch's exporters: compiled, counted, and compared with ONNX Runtime.

The older exporter is quick, so every family is tested in its form. Exports by the current one take seconds each: some
are in the normal run, all with -m slow, which also builds them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from tests.models.text import run_ort
from tests.models.zoo import FAMILIES, HEADS, HIDDEN, Family, Sizes
from tests.models.zoo_exports import Array, export, make_feeds
from tests.tolerances import BLOCK

pytestmark = pytest.mark.torch

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

PADDINGS = ("none", "right", "left", "all")
QUICK = {
    "gpt2 past/dynamo/sdpa/20",
    "llama past/dynamo/sdpa/20",
    "llama past/dynamo/sdpa/23",
    "t5 decoder/dynamo/eager/20",
}
BUILT = {"gpt2 past/legacy/eager/17", "llama past/dynamo/sdpa/23", "mistral past/legacy/sdpa/17", "t5 decoder/legacy/eager/17", "gemma2/legacy/eager/17"}  # fmt: skip


def _forms() -> Iterator[str]:
    for name, family in FAMILIES.items():
        for attention in family.implementations:
            yield f"{name}/legacy/{attention}/17"
            yield from (f"{name}/dynamo/{attention}/{opset}" for opset in (20, 23))


def _marked(quick: set[str]) -> list[object]:
    return [form if form in quick else pytest.param(form, marks=pytest.mark.slow) for form in _forms()]


QUICK |= {
    form
    for form in _forms()
    if "/legacy/" in form and form.split("/")[2] == FAMILIES[form.split("/")[0]].implementations[-1]
}


def load(form: str) -> tuple[Family, onnx.ModelProto]:
    name, exporter, attention, opset = form.split("/")
    return FAMILIES[name], export(name, attention=attention, opset=int(opset), exporter=exporter)


def runs(family: Family, model: onnx.ModelProto) -> Iterator[dict[str, Array]]:
    """Inputs of several sizes and paddings, one with a row that sees nothing. An exporter may drop unused inputs."""
    names = {value.name for value in model.graph.input}
    past = 3 if family.has_past else 0
    for sizes in (Sizes(2, 7, past, 5), Sizes(1, 1, 2 * past, 1), Sizes(3, 4, 0, 7)):
        for padding in PADDINGS if any(one.kind == "mask" for one in family.inputs) else ("none",):
            feeds = make_feeds(family, sizes, padding=padding)
            yield {name: value for name, value in feeds.items() if name in names}


@pytest.mark.parametrize("form", _marked(QUICK))
def test_the_whole_model_is_compiled_and_every_attention_is_the_kernel(form: str) -> None:
    family, model = load(form)
    compiled = ortisan.compile(model, target="reference")
    counts = compiled.op_counts()
    assert {left.op_type for left in compiled.left_out} <= family.stays
    assert len(compiled.graphs) <= 2
    assert counts["attention"] == family.attentions
    assert "softmax" not in counts
    assert not [miss for miss in compiled.near_misses if miss.pattern == "fuse Attention"]
    if not family.stays & {"Conv"}:
        assert compiled.flops_share() >= 0.95
    if compiled.left_out:
        return
    for feeds in runs(family, model):
        for have, want in zip(compiled.run(feeds), run_ort(model, feeds), strict=True):
            np.testing.assert_allclose(have, want, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", ["gpt2", "gpt2 past"])
def test_gpt2_as_onnx_runtimes_optimizer_leaves_it(name: str, tmp_path: Path) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    family, model = load(f"{name}/legacy/eager/17")
    onnx.save(model, tmp_path / "gpt2.onnx")
    fused = optimize_model(str(tmp_path / "gpt2.onnx"), model_type="gpt2", num_heads=HEADS, hidden_size=HIDDEN).model
    assert {node.op_type for node in fused.graph.node if node.domain} >= {"SkipLayerNormalization", "FastGelu"}
    compiled = ortisan.compile(fused, target="reference")
    assert not compiled.left_out
    assert len(compiled.graphs) == 1
    assert compiled.op_counts()["attention"] == family.attentions
    for feeds in runs(family, fused):
        for have, want in zip(compiled.run(feeds), run_ort(fused, feeds), strict=True):
            np.testing.assert_allclose(have, want, atol=BLOCK, rtol=BLOCK)


@pytest.mark.build
@pytest.mark.parametrize("form", _marked(BUILT))
def test_built_models_give_what_onnx_runtime_gives(form: str, tmp_path: Path) -> None:
    family, model = load(form)
    artifact = ortisan.build(model, tmp_path / "model", keep="all", verify=False, tune="off")
    session = ortisan.load(artifact.folder)
    for feeds in runs(family, model):
        for have, want in zip(session.run(None, feeds), run_ort(model, feeds), strict=True):
            np.testing.assert_allclose(have, want, atol=3e-4, rtol=3e-4)
