"""Depthwise convolutions with the products around them: what becomes one kernel, what does not, and that it is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from tests.models.text import run_ort, text_model
from tests.tolerances import LAYERS

BLOCK = """
    a = Conv(x, w1, b1)  wide = Relu(a)
    c = Conv<group = 64, pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}]>(wide, w2, b2)
    d = Clip(c, low, high)  y = Conv(d, w3, b3)
"""
RESIDUAL = BLOCK.replace("y = Conv", "e = Conv") + "y = Add(e, x)"
SQUEEZED = BLOCK.replace("y = Conv(d", "m = GlobalAveragePool(d)  f = Mul(d, m)  y = Conv(f")


def model(body: str = BLOCK, *, size: int = 3, stride: int = 1, outputs: str = "float[B,8,P,Q] y") -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"w1": (64, 8, 1, 1), "b1": (64,), "w2": (64, 1, size, size), "b2": (64,), "w3": (8, 64, 1, 1), "b3": (8,)}
    constants = {name: rng.normal(size=shape, scale=0.3).astype(np.float32) for name, shape in shapes.items()}
    constants |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    signature = f"(float[B,8,H,W] x) => ({outputs})"
    return text_model(signature, body.format(stride=stride, pad=size // 2), opset=17, constants=constants)


def plan(graph: onnx.ModelProto, side: int = 100) -> GraphPlan:
    return ortisan.compile(graph, whole_graph=True, dims={"H": side, "W": side}).plans[0]  # type: ignore[return-value]


def kernels(graph: onnx.ModelProto, side: int = 100) -> list[str]:
    return [kernel.template.name for kernel in plan(graph, side).kernels if kernel.template.name != "move/copy"]


@pytest.mark.parametrize("body", [BLOCK, RESIDUAL], ids=["plain", "residual"])
def test_a_block_over_a_large_image_is_one_kernel(body: str) -> None:
    assert kernels(model(body)) == ["images/block"]
    (name,) = [group.name for group in plan(model(body)).groups if group.before]
    assert name.startswith("gemm_rcr_bias_relu_then_conv2d_clamp_then_gemm_rcr_bias")


def test_the_product_behind_is_no_part_of_it_when_others_read_the_convolution() -> None:
    assert kernels(model(SQUEEZED))[0] == "images/block"
    assert kernels(model(SQUEEZED)).count("images/block") == 1


def test_what_others_read_is_stored() -> None:
    seen = "float[B,8,P,Q] y, float[B,64,H,W] wide"
    assert kernels(model(outputs=seen)) == ["products/gemm", "images/block"]
    seen = "float[B,8,P,Q] y, float[B,64,P,Q] d"
    assert kernels(model(outputs=seen)) == ["images/block", "products/gemm"]


def test_small_images_stay_in_the_cache_by_themselves() -> None:
    assert "images/block" not in kernels(model(), side=14)


def test_filters_that_strips_would_overlap_too_much_for_are_apart() -> None:
    assert kernels(model(size=5)) == ["products/gemm", "images/block"]


def test_every_value_is_stored_for_debugging() -> None:
    kept = plan_graph(plan(model()).graph, keep_all=True)
    assert not any(group.before for group in kept.groups)


@pytest.mark.build
@pytest.mark.parametrize("body", [BLOCK, RESIDUAL, SQUEEZED], ids=["plain", "residual", "squeezed"])
def test_blocks_are_right_at_any_size(body: str, tmp_path: Path) -> None:
    """The middle of 64 x 64, which sizes without a number are taken for, is large."""
    graph = model(body)
    compiled = ortisan.compile(graph, whole_graph=True)
    assert any(kernel.template.name == "images/block" for kernel in compiled.plans[0].kernels)  # type: ignore[attr-defined]
    ortisan.build(graph, tmp_path / "block", keep="all", verify=False, tune="off")
    session = ortisan.load(tmp_path / "block")
    for shape in ((1, 8, 1, 1), (2, 8, 33, 20), (3, 8, 7, 64), (1, 8, 3, 1500)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        (have,), (want,) = session.run(None, {"x": x}), run_ort(graph, {"x": x})
        np.testing.assert_allclose(have, want, rtol=LAYERS, atol=LAYERS)
