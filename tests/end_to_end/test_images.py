"""Whole convolutional models: one subgraph, no copies inside, the same bits for any threads and batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.loops.boxes import COPY
from ortisan.models import DiffusionSize, diffusion_unet
from ortisan.pipeline.generate import render_sources
from tests.models.images import small_networks
from tests.models.text import run_ort, text_model
from tests.sanitized import run_sanitized
from tests.tolerances import LAYERS


def weights(*shape: int) -> np.ndarray:
    return (np.random.default_rng(list(shape)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def cnn() -> onnx.ModelProto:
    """Every kernel: gathered, tiles, Winograd, depthwise, dots, pools, a transposed convolution, a resize, a skip."""
    body = (
        "a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w0, b0) b = Relu(a) c = MaxPool<kernel_shape=[2,2], strides=[1,1]>(b)"
        "d = Conv<pads=[1,1,1,1]>(c, w1) e = BatchNormalization(d, s, t, m, v) f = Relu(e)"
        "g = Conv<pads=[1,1,1,1], group=32>(f, w2) h = Add(g, c) i = HardSwish(h)"
        "p = GlobalAveragePool(i) q = Conv(p, w3) r = HardSigmoid(q) j = Mul(i, r)"
        'k = ConvTranspose<strides=[2,2]>(j, w4) l = Resize<mode="linear">(j, , two)'
        "n = Concat<axis=1>(k, l) o = Conv<pads=[1,1,1,1], strides=[2,2]>(n, w5)"
        "z = Conv<pads=[1,1,1,1]>(o, w6) y = Sigmoid(z)"
    )
    constants = {
        "w0": weights(32, 3, 3, 3), "b0": weights(32, 1)[:, 0], "w1": weights(32, 32, 3, 3), "s": weights(32, 1)[:, 0],
        "t": weights(32, 1)[:, 0], "m": weights(32, 1)[:, 0], "v": np.abs(weights(32, 1)[:, 0]) + 1, "w2": weights(32, 1, 3, 3),
        "w3": weights(32, 32, 1, 1), "w4": weights(32, 16, 2, 2), "w5": weights(24, 48, 3, 3), "w6": weights(2, 24, 3, 3),
        "two": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return text_model("(float[n,3,h,w] x) => (float[n,2,a,b] y)", body, constants=constants)


def channels_last_cnn() -> onnx.ModelProto:
    """As converters of TensorFlow write it: transposes around each convolution."""
    body = (
        "a = Transpose<perm=[0,3,1,2]>(x) b = Conv<pads=[1,1,1,1]>(a, w0) c = Transpose<perm=[0,2,3,1]>(b) d = Relu(c)"
        "e = Pad(d, pads) f = Transpose<perm=[0,3,1,2]>(e) g = Conv<strides=[2,2]>(f, w1)"
        "h = Transpose<perm=[0,2,3,1]>(g) y = Mul(h, scale)"
    )
    constants = {"w0": weights(16, 3, 3, 3), "w1": weights(16, 16, 3, 3), "scale": weights(16, 1)[:, 0]}
    constants |= {"pads": np.array([0, 0, 0, 0, 0, 1, 1, 0])}
    return text_model("(float[1,20,24,3] x) => (float[1,a,b,16] y)", body, constants=constants)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def copies(compiled: ortisan.Compilation) -> Counter[str]:
    """The kernels of the only subgraph that only move elements."""
    (plan,) = compiled.plans
    return Counter(kernel.name for kernel in plan.kernels if kernel.template is COPY)


def test_copies_are_at_the_borders() -> None:
    compiled = ortisan.compile(cnn(), whole_graph=True)
    # What comes in, what the transposed convolution spreads, and the joined channels. The output has one pass of its own.
    assert copies(compiled) <= Counter({"permute": 3, "concatenate": 1})
    compiled = ortisan.compile(channels_last_cnn(), whole_graph=True)
    assert copies(compiled) == {"pad": 1}
    assert "permute" not in {node.op.name for node in compiled.graphs[0].nodes}


@pytest.mark.build
@pytest.mark.parametrize("winograd", [True, False])
def test_a_model_is_right_at_any_size(winograd: bool, tmp_path: Path) -> None:
    artifact = ortisan.build(cnn(), tmp_path / "cnn", keep="all", verify=False, tune="off", winograd=winograd)
    assert artifact.manifest["options"]["winograd"] is winograd
    session = ortisan.load(tmp_path / "cnn")
    for shape in ((1, 3, 5, 5), (2, 3, 33, 20), (3, 3, 64, 7)):
        (have,), (want,) = session.run(None, {"x": image(*shape)}), run_ort(cnn(), {"x": image(*shape)})
        np.testing.assert_allclose(have, want, rtol=LAYERS, atol=LAYERS)


@pytest.mark.build
def test_a_pool_whose_numbers_nobody_reads(tmp_path: Path) -> None:
    body = "y, z = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)"
    model = text_model("(float[n,3,h,w] x) => (int64[n,3,a,b] z)", body)
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off")
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 5, 8)).astype(np.float32)}
    np.testing.assert_array_equal(ortisan.load(artifact.folder).run(None, feeds)[0], run_ort(model, feeds)[0])


@pytest.mark.build
def test_results_depend_neither_on_the_threads_nor_on_the_batch(tmp_path: Path) -> None:
    ortisan.build(cnn(), tmp_path / "cnn", keep="all", verify=False, tune="off")
    x, results = image(3, 3, 50, 41), []
    for threads in (1, 2, 3, 7):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        results.append(ortisan.load(tmp_path / "cnn", options).run(None, {"x": x})[0])
    assert all(np.array_equal(results[0], other) for other in results[1:])
    session = ortisan.load(tmp_path / "cnn")
    for index in range(3):
        assert np.array_equal(session.run(None, {"x": x[index : index + 1]})[0][0], results[0][index])


SCRIPT = """
import sys
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = ort.InferenceSession({model!r}, options)
for shape in ((1, 3, 5, 5), (2, 3, 33, 20), (3, 3, 64, 7), (0, 3, 9, 9)):
    session.run(None, {{"x": np.ones(shape, np.float32)}})
print("finished")
"""


@pytest.mark.build
@pytest.mark.sanitize
def test_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    compiled = ortisan.compile(cnn(), name="cnn", whole_graph=True)
    assert compiled.target.isa is not None
    sources = render_sources(compiled)
    built = build_library(sources, name="cnn", isa=compiled.target.isa, sanitize="address,undefined")
    (tmp_path / "cnn.onnx").write_bytes(ortisan.convert_graph(cnn(), compiled).SerializeToString())
    assert "finished" in run_sanitized(
        SCRIPT.format(model=str(tmp_path / "cnn.onnx")), "address,undefined", built.library
    )


NETWORKS = small_networks()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_of_the_package_compile_but_for_the_choice_of_boxes(name: str) -> None:
    model = ir.to_proto(NETWORKS[name])
    onnx.checker.check_model(model, full_check=True)
    compiled = ortisan.compile(model)
    assert [left.op_type for left in compiled.left_out] == (["NonMaxSuppression"] if name == "selected" else [])
    (pixels,) = model.graph.input
    shape = [dim.dim_value or 2 for dim in pixels.type.tensor_type.shape.dim]
    found = ort.InferenceSession(model.SerializeToString()).run(None, {pixels.name: image(*shape)})
    assert all(np.isfinite(array).all() and array.std() > 0.01 for array in found)


def test_the_unet_of_stable_diffusion_is_one_subgraph_without_copies() -> None:
    size = DiffusionSize(width=32, levels=(1, 2), layers=1, heads=2, groups=8, states=48, tokens=9)
    model = ir.to_proto(diffusion_unet(size))
    onnx.checker.check_model(model, full_check=True)
    compiled = ortisan.compile(model, whole_graph=True)
    names = Counter(node.op.name for node in compiled.graphs[0].nodes)
    assert (names["group_norm"], names["attention"], names["layernorm"]) == (21, 8, 12)
    # What comes in and goes out; the sines and cosines of the time, and what is joined on the way up.
    assert copies(compiled) == {"permute": 2, "concatenate": 5}


@pytest.mark.build
def test_the_networks_of_the_package_are_right(tmp_path: Path) -> None:
    for name, network in NETWORKS.items():
        model = ir.to_proto(network)
        artifact = ortisan.build(model, tmp_path / name, keep="all", verify=False, tune="off")
        shape = [dim.dim_value or 3 for dim in model.graph.input[0].type.tensor_type.shape.dim]
        feeds = {"pixel_values": image(*shape)}
        stock = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
        for mine, theirs in zip(ortisan.load(artifact).run(None, feeds), stock, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=LAYERS, atol=LAYERS)
