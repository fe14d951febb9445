"""Convolutional architectures by both of torch's exporters: what is compiled, what is copied, and that it is right.

A sample runs in CI; `-m slow` runs every architecture with each exporter, at opsets from 9 to 23.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.loops.boxes import COPY
from tests.tolerances import LAYERS, WIDE

pytestmark = pytest.mark.torch

# Copies of whole images between the borders: channels that are shuffled, pixels that are made of channels, anchors.
INNER = {"shufflenet": 2, "segnet": 1, "unet_learned": 1, "volumes": 1, "yolo_5": 2}
SAMPLE = [("resnet", "script", 17), ("shufflenet", "script", 11), ("segnet", "script", 13), ("yolo_8", "script", 9)]
SAMPLE += [("efficientnet", "dynamo", 20), ("wav2vec2", "dynamo", 23)]
OPSETS = {"script": (9, 11, 13, 17, 20), "dynamo": (18, 20, 23)}
NAMES = [
    "resnet", "mobilenet_v2", "mobilenet_v3", "efficientnet", "convnext", "densenet", "inception", "shufflenet", "regnet", "unet",
    "unet_learned", "fpn", "yolo_5", "yolo_8", "yolo_x", "segnet", "segformer", "swin", "vit", "wav2vec2", "wavenet", "volumes",
]  # fmt: skip
# What torch's older exporter can't write at an opset.
NOT_EXPORTED = {
    **dict.fromkeys([(name, opset) for name in ("segformer", "swin", "vit", "wav2vec2") for opset in (9, 11, 13)], "attention"),
    **dict.fromkeys([("inception", 9), ("unet", 9), ("yolo_x", 9), ("segnet", 9)], "an op"),
}  # fmt: skip
# Upsample-9 there is given sizes by a quotient of computed sizes.
COMPUTED_SCALES = {("fpn", 9)}


def check(name: str, exporter: str, opset: int, folder: Path, *, build: bool) -> None:
    from tests.models.vision import ARCHITECTURES, export, sizes_of

    model = export(name, exporter=exporter, opset=opset)
    compiled = ortisan.compile(model)
    if (name, opset) not in COMPUTED_SCALES:
        assert len(compiled.left_out) <= 0.02 * len(model.graph.node), compiled.left_out
        assert len(compiled.graphs) == 1
        if ARCHITECTURES[name].plain:
            assert moved(compiled) <= borders(model) + INNER.get(name, 0)
    if not build:
        return
    ortisan.build(model, folder / "made", keep="all", verify=False, tune="off")
    mine, stock = ortisan.load(folder / "made"), ort.InferenceSession(model.SerializeToString())
    for size in sizes_of(name):
        feeds = {"x": np.random.default_rng(3).standard_normal(size).astype(np.float32)}
        for have, want in zip(mine.run(None, feeds), stock.run(None, feeds), strict=True):
            np.testing.assert_allclose(have, want, rtol=WIDE, atol=LAYERS * max(1.0, float(np.abs(want).max())))


def moved(compiled: ortisan.Compilation) -> int:
    """Copies that only reorder."""
    (plan,) = compiled.plans
    return Counter(kernel.name for kernel in plan.kernels if kernel.template is COPY)["permute"]


def borders(model: onnx.ModelProto) -> int:
    """Images that come in and go out."""
    return sum(len(value.type.tensor_type.shape.dim) > 2 for value in (*model.graph.input, *model.graph.output))


@pytest.mark.build
@pytest.mark.parametrize(("name", "exporter", "opset"), SAMPLE)
def test_a_sample_is_compiled_and_right(name: str, exporter: str, opset: int, tmp_path: Path) -> None:
    check(name, exporter, opset, tmp_path, build=True)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("exporter", OPSETS)
@pytest.mark.parametrize("name", NAMES)
def test_all_are_compiled_and_right(name: str, exporter: str, tmp_path: Path) -> None:
    """Built at the newest opset of each exporter; the older ones are compiled."""
    for opset in OPSETS[exporter]:
        if exporter == "dynamo" or (name, opset) not in NOT_EXPORTED:
            check(name, exporter, opset, tmp_path, build=opset == OPSETS[exporter][-1])


def test_the_sweep_names_every_architecture() -> None:
    from tests.models.vision import ARCHITECTURES

    assert set(NAMES) == set(ARCHITECTURES)
