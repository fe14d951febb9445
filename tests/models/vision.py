"""Convolutional architectures, narrow and shallow, for the sweep over exporters and opsets. Needs torch."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from torch import nn

from tests.models.quiet import quiet
from tests.models.vision_blocks import (
    Bottleneck,
    Branches,
    ChannelNorm,
    Dense,
    NextBlock,
    Pyramid,
    Residual,
    Shuffle,
    Squeeze,
    Stack,
    conv,
    inverted,
    upsampled,
)
from tests.models.vision_mixed import PatchEncoder, PyramidEncoder, Wav, Waves, WindowEncoder, volumes


def resnet() -> nn.Module:
    deep = nn.Sequential(conv(16, 8, 1), conv(8, 8, 3, 2), conv(8, 32, 1, act=None))
    plain = nn.Sequential(conv(16, 16), conv(16, 16, act=None))
    short = conv(16, 32, 1, 2, act=None)
    return Stack(32, conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), Residual(plain), Residual(deep, short))


def mobilenet_v2() -> nn.Module:
    blocks = (inverted(i, o, 3, s, nn.ReLU6) for i, o, s in ((8, 8, 1), (8, 16, 2), (16, 16, 1)))
    return Stack(32, conv(3, 8, 3, 2, act=nn.ReLU6), *blocks, conv(16, 32, 1, act=nn.ReLU6))


def mobilenet_v3() -> nn.Module:
    def squeeze(channels: int) -> nn.Module:
        return Squeeze(channels, nn.ReLU, nn.Hardsigmoid)

    blocks = (inverted(i, o, k, s, nn.Hardswish, squeeze=squeeze) for i, o, k, s in ((8, 8, 3, 1), (8, 16, 5, 2)))
    return Stack(32, conv(3, 8, 3, 2, act=nn.Hardswish), *blocks, conv(16, 32, 1, act=nn.Hardswish))


def efficientnet() -> nn.Module:
    blocks = (
        inverted(i, o, k, s, nn.SiLU, squeeze=Squeeze) for i, o, k, s in ((8, 8, 3, 1), (8, 16, 5, 2), (16, 16, 3, 1))
    )
    return Stack(32, conv(3, 8, 3, 2, act=nn.SiLU), *blocks, conv(16, 32, 1, act=nn.SiLU))


def convnext() -> nn.Module:
    down = nn.Sequential(ChannelNorm(16), nn.Conv2d(16, 32, 2, 2))
    return Stack(32, nn.Conv2d(3, 16, 4, 4), ChannelNorm(16), NextBlock(16), down, NextBlock(32))


def densenet() -> nn.Module:
    return Stack(34, conv(3, 16, 3, 2), Dense(16, 8, 3), conv(40, 18, 1), nn.AvgPool2d(2), Dense(18, 8, 2))


def inception() -> nn.Module:
    def branches(inner: int) -> nn.Module:
        wide = nn.Sequential(conv(inner, 8, 1), conv(8, 8, (1, 7)), conv(8, 8, (7, 1)))
        pool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), conv(inner, 4, 1))
        return Branches(conv(inner, 8, 1), wide, pool, nn.Sequential(conv(inner, 4, 1), conv(4, 8, (3, 1))))

    return Stack(28, conv(3, 16, 3, 2, padding=0), nn.MaxPool2d(3, 2, ceil_mode=True), branches(16), branches(28))


def shufflenet() -> nn.Module:
    return Stack(32, conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), Shuffle(16), conv(16, 32, 1), Shuffle(32))


def regnet() -> nn.Module:
    def block(inner: int, outer: int, stride: int) -> nn.Module:
        body = nn.Sequential(conv(inner, outer, 1), conv(outer, outer, 3, stride, 2), Squeeze(outer, nn.ReLU), conv(outer, outer, 1, act=None))  # fmt: skip
        return Residual(body, conv(inner, outer, 1, stride, act=None))

    return Stack(32, conv(3, 8, 3, 2), block(8, 16, 2), block(16, 32, 1))


class UNet(nn.Module):
    def __init__(self, *, learned: bool) -> None:
        super().__init__()
        self.first, self.second, self.deep = conv(3, 8), conv(8, 16), conv(16, 16)
        self.up = nn.ConvTranspose2d(16, 16, 2, 2) if learned else nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=True)  # fmt: skip
        self.join, self.last = conv(32, 8), nn.Conv2d(16, 2, 1)

    def forward(self, x: Any) -> Any:
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        c = self.join(torch.cat([self.up(self.deep(F.max_pool2d(b, 2))), b], 1))
        return self.last(torch.cat([F.interpolate(c, scale_factor=2.0), a], 1))


class Features(nn.Module):
    """A feature pyramid: each level is added to the coarser one."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList([conv(3, 8, 3, 2), conv(8, 16, 3, 2), conv(16, 32, 3, 2)])
        self.sides = nn.ModuleList([nn.Conv2d(n, 8, 1) for n in (8, 16, 32)])
        self.outs = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        sides = [side(level) for side, level in zip(self.sides, found, strict=True)]
        for i in (1, 0):
            sides[i] = sides[i] + F.interpolate(sides[i + 1], size=sides[i].shape[-2:], mode="nearest")
        return tuple(out(side) for out, side in zip(self.outs, sides, strict=True))


class Detector(nn.Module):
    """YOLO: a backbone, a pyramid of pools, two levels of boxes and scores. v5 has anchors, x separate heads."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version, split = version, version == "8"
        first = nn.Conv2d(12, 16, 3, padding=1) if version == "x" else conv(3, 16, 6 if version == "5" else 3, 2, act=nn.SiLU, padding=2 if version == "5" else 1)  # fmt: skip
        self.stem, self.low = first, Bottleneck(16, 16, split=split)
        self.down, self.high = (
            conv(16, 32, 3, 2, act=nn.SiLU),
            nn.Sequential(Bottleneck(32, 32, split=split), Pyramid(32)),
        )
        self.neck = Bottleneck(48, 16, split=split)
        self.heads = nn.ModuleList([nn.Conv2d(n, 3 * 9 if version == "5" else 9, 1) for n in (16, 32)])

    def forward(self, x: Any) -> Any:
        if self.version == "x":
            corners = [x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)]
            x = torch.cat(corners, 1)
        low = self.low(self.stem(x))
        high = self.high(self.down(low))
        levels = self.neck(torch.cat([upsampled(high), low], 1)), high
        return torch.cat([self._boxes(head(level)) for head, level in zip(self.heads, levels, strict=True)], 1)

    def _boxes(self, y: Any) -> Any:
        n, _, h, w = y.shape
        if self.version == "5":
            y = y.view(n, 3, 9, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            return torch.cat([y[..., :2] * 2 - 0.5, (y[..., 2:4] * 2) ** 2, y[..., 4:]], -1).reshape(n, -1, 9)
        y = y.flatten(2).permute(0, 2, 1)
        return torch.cat([y[..., :4].exp(), y[..., 4:].sigmoid()], -1)


def segnet() -> nn.Module:
    """Group norms, instance norms, PReLU, Mish, pixel shuffle, cubic resizing."""
    up = nn.Upsample(scale_factor=2.0, mode="bicubic", align_corners=False)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True), nn.PReLU(16),
        nn.Conv2d(16, 32, 3, padding=1), nn.Mish(), nn.PixelShuffle(2), up, nn.Conv2d(8, 2, 3, padding=1), nn.Hardtanh(),
    )  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (3, 64, 64)
    others: tuple[tuple[int, ...], ...] = ((3, 96, 64),)
    """Sizes of an item that it is verified at as well."""
    plain: bool = True
    """Whether nothing is moved between the images that come in and those that go out."""
    dynamic: bool = True


ARCHITECTURES = {
    "resnet": Architecture(resnet), "mobilenet_v2": Architecture(mobilenet_v2), "mobilenet_v3": Architecture(mobilenet_v3),
    "efficientnet": Architecture(efficientnet), "convnext": Architecture(convnext), "densenet": Architecture(densenet),
    "inception": Architecture(inception), "shufflenet": Architecture(shufflenet), "regnet": Architecture(regnet),
    "unet": Architecture(lambda: UNet(learned=False)), "unet_learned": Architecture(lambda: UNet(learned=True)),
    "fpn": Architecture(Features), "yolo_5": Architecture(lambda: Detector("5")), "yolo_8": Architecture(lambda: Detector("8")),
    "yolo_x": Architecture(lambda: Detector("x")), "segnet": Architecture(segnet),
    "segformer": Architecture(PyramidEncoder, plain=False), "swin": Architecture(WindowEncoder, others=(), plain=False, dynamic=False),
    "vit": Architecture(PatchEncoder, others=(), plain=False, dynamic=False),
    "wav2vec2": Architecture(Wav, (1, 800), ((1, 1200),), plain=False), "wavenet": Architecture(Waves, (1, 200), ((1, 333),)),
    "volumes": Architecture(volumes, (3, 8, 32, 32), ((3, 16, 32, 48),)),
}  # fmt: skip


@functools.cache
def module_of(name: str) -> nn.Module:
    torch.manual_seed(7)
    return ARCHITECTURES[name].make().eval()


def export(name: str, *, exporter: str, opset: int) -> onnx.ModelProto:
    """The architecture as one of torch's exporters writes it, the batch and the places dynamic."""
    spec, module = ARCHITECTURES[name], module_of(name)
    x = torch.randn(2, *spec.shape)
    axes = [0, *range(2, x.dim())] if spec.dynamic else [0]
    with quiet(), torch.no_grad():
        if exporter == "dynamo":
            shapes = (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),)
            made = torch.onnx.export(module, (x,), dynamo=True, opset_version=opset, dynamic_shapes=shapes, input_names=["x"], verbose=False)  # fmt: skip
            return made.model_proto
        buffer = io.BytesIO()
        names = {axis: f"d{axis}" for axis in axes}
        torch.onnx.export(module, (x,), buffer, dynamo=False, opset_version=opset, dynamic_axes={"x": names}, input_names=["x"])  # fmt: skip
        return onnx.load_from_string(buffer.getvalue())


def sizes_of(name: str) -> Sequence[tuple[int, ...]]:
    spec = ARCHITECTURES[name]
    return [(n, *shape) for shape in (spec.shape, *spec.others) for n in (1, 3)]
