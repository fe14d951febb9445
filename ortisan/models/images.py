"""Convolutional networks: ResNet, MobileNetV2, EfficientNet and a U-Net, in the form that exporters write them.

basic, bottleneck: relu(x + conv3x3(conv3x3(x))),  relu(x + conv1x1(conv3x3(conv1x1(x))))       ResNet
inverted:          x + conv1x1(depthwise(conv1x1(x)))                                           MobileNetV2
                   x + conv1x1(gate(depthwise(conv1x1(x)))),  gate(y) = y sigmoid(W silu(V mean(y)))   EfficientNet
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ortisan.models.network import Network

_RESIDUAL_GAIN = 0.2
"""So that what many blocks add up stays of order 1."""
_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def resnet(
    depth: int = 50,
    *,
    batch: int | str = "batch",
    image: int = 224,
    width: int = 64,
    classes: int = 1000,
    seed: int = 0,
) -> ir.Model:
    """ResNet-18, 34, 50 or 101, of which the last two stride in the 3 x 3 convolution."""
    net = Network(batch, image, seed)
    x = net.pool(net.conv(net.pixels, width, 7, 2, "Relu"), 3, 2)
    for stage, blocks in enumerate(_BLOCKS[depth]):
        for block in range(blocks):
            x = _residual(net, x, width << stage, 2 if stage and not block else 1, bottleneck=depth >= 50)
    return net.classifier(x, classes, f"resnet{depth}")


def _residual(net: Network, x: ir.Value, inner: int, stride: int, *, bottleneck: bool) -> ir.Value:
    if bottleneck:
        y = net.conv(net.conv(net.conv(x, inner, act="Relu"), inner, 3, stride, "Relu"), 4 * inner, gain=_RESIDUAL_GAIN)
    else:
        y = net.conv(net.conv(x, inner, 3, stride, "Relu"), inner, 3, gain=_RESIDUAL_GAIN)
    if stride > 1 or net.channels[x] != net.channels[y]:
        x = net.conv(x, net.channels[y], 1, stride)
    return net.act(net.add(x, y), "Relu")


@dataclass(frozen=True)
class Stage:
    """Inverted blocks; the first has the stride."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    size: int = 3


MOBILENET = (
    Stage(1, 16, 1, 1), Stage(6, 24, 2, 2), Stage(6, 32, 3, 2), Stage(6, 64, 4, 2), Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2), Stage(6, 320, 1, 1),
)  # fmt: skip
EFFICIENTNET = (
    Stage(1, 16, 1, 1), Stage(6, 24, 2, 2), Stage(6, 40, 2, 2, 5), Stage(6, 80, 3, 2), Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5), Stage(6, 320, 1, 1),
)  # fmt: skip


def mobilenet(
    *,
    batch: int | str = "batch",
    image: int = 224,
    stages: Sequence[Stage] = MOBILENET,
    classes: int = 1000,
    seed: int = 0,
) -> ir.Model:
    """MobileNetV2."""
    return _inverted_blocks(Network(batch, image, seed), stages, "relu6", classes, "mobilenet", gated=False)


def efficientnet(
    *,
    batch: int | str = "batch",
    image: int = 224,
    stages: Sequence[Stage] = EFFICIENTNET,
    classes: int = 1000,
    seed: int = 0,
) -> ir.Model:
    """EfficientNet-B0."""
    return _inverted_blocks(Network(batch, image, seed), stages, "silu", classes, "efficientnet", gated=True)


def _inverted_blocks(
    net: Network, stages: Sequence[Stage], act: str, classes: int, name: str, *, gated: bool
) -> ir.Model:
    x = net.conv(net.pixels, 32, 3, 2, act)
    for stage in stages:
        for block in range(stage.blocks):
            x = _inverted(net, x, stage, stage.stride if block == 0 else 1, act, gated=gated)
    return net.classifier(net.conv(x, 1280, act=act), classes, name)


def _inverted(net: Network, x: ir.Value, stage: Stage, stride: int, act: str, *, gated: bool) -> ir.Value:
    channels = net.channels[x]
    inner = channels * stage.expansion
    y = net.conv(x, inner, act=act) if stage.expansion > 1 else x
    y = net.conv(y, inner, stage.size, stride, act, groups=inner)
    if gated:
        few = net.conv(net.mean(y), max(1, channels // 4), act=act)
        y = net.mul(y, net.conv(few, inner, act="Sigmoid"))
    y = net.conv(y, stage.channels)
    return net.add(x, y) if stride == 1 and channels == stage.channels else y


def unet(*, batch: int | str = "batch", image: int = 256, width: int = 32, levels: int = 4, seed: int = 0) -> ir.Model:
    """Pairs of 3 x 3 convolutions down `levels` sizes and up again, joined at each size: mask [batch, 1, H, W]."""
    net = Network(batch, image, seed)
    x, seen = net.pixels, []
    for level in range(levels):
        x = _pair(net, net.pool(x, 2, 2) if level else x, width << level)
        seen.append(x)
    for level in reversed(range(levels - 1)):
        x = _pair(net, net.join(net.doubled(x), seen[level]), width << level)
    mask = net.conv(x, 1, act="Sigmoid")
    net.write.declare(mask, "mask", [batch, 1, image, image])
    return net.model("unet", [mask])


def _pair(net: Network, x: ir.Value, filters: int) -> ir.Value:
    return net.conv(net.conv(x, filters, 3, act="Relu"), filters, 3, act="Relu")
