"""Blocks of convolutional networks, small, as the published architectures have them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def norm_of(channels: int) -> nn.BatchNorm2d:
    """A batch norm whose statistics are not those of nothing."""
    norm = nn.BatchNorm2d(channels)
    with torch.no_grad():
        norm.running_mean.uniform_(-0.3, 0.3)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return norm


def conv(inner: int, outer: int, kernel: Any = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU, **more: Any) -> nn.Sequential:  # fmt: skip
    pad = more.pop("padding", kernel // 2 if isinstance(kernel, int) else tuple(k // 2 for k in kernel))
    layer = nn.Conv2d(inner, outer, kernel, stride, pad, groups=groups, bias=False, **more)
    return nn.Sequential(layer, norm_of(outer), *([act()] if act else []))


class Residual(nn.Module):
    """x + body(x), with a projection where the shapes differ, and an activation behind."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, act: Any = nn.ReLU) -> None:
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut or nn.Identity(), act() if act else nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.act(self.shortcut(x) + self.body(x))


class Squeeze(nn.Module):
    """Squeeze and excite."""

    def __init__(self, channels: int, act: Any = nn.SiLU, gate: Any = nn.Sigmoid) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), act(), nn.Conv2d(4, channels, 1), gate()
        )

    def forward(self, x: Any) -> Any:
        return x * self.gate(x)


def inverted(inner: int, outer: int, kernel: int, stride: int, act: Any, *, squeeze: Any = None) -> nn.Module:
    """Expand, depthwise, project."""
    wide = inner * 3
    gates = [squeeze(wide)] if squeeze else []
    body = nn.Sequential(
        conv(inner, wide, 1, act=act), conv(wide, wide, kernel, stride, wide, act=act), *gates, conv(wide, outer, 1, act=None)
    )  # fmt: skip
    return Residual(body, act=None) if inner == outer and stride == 1 else body


class Branches(nn.Module):
    """Several ways for one input, joined by channels."""

    def __init__(self, *ways: nn.Module) -> None:
        super().__init__()
        self.ways = nn.ModuleList(ways)

    def forward(self, x: Any) -> Any:
        return torch.cat([way(x) for way in self.ways], 1)


class Dense(nn.Module):
    """Each layer reads what all before it made."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        sizes = [channels + growth * i for i in range(layers)]
        self.layers = nn.ModuleList(
            nn.Sequential(norm_of(n), nn.ReLU(), nn.Conv2d(n, growth, 3, padding=1, bias=False)) for n in sizes
        )

    def forward(self, x: Any) -> Any:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


class Shuffle(nn.Module):
    """ShuffleNet v2: half of the channels pass, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(conv(half, half, 1), conv(half, half, 3, groups=half, act=None), conv(half, half, 1))

    def forward(self, x: Any) -> Any:
        kept, changed = x.chunk(2, 1)
        y = torch.cat([kept, self.body(changed)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ChannelNorm(nn.Module):
    """A layer norm of channels, by moving them last and back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Any) -> Any:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """ConvNeXt: depthwise 7 x 7, then a perceptron over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: Any) -> Any:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.scale * self.narrow(F.gelu(self.wide(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class Bottleneck(nn.Module):
    """C2f of YOLO v8 (`split`) or C3 of v5."""

    def __init__(self, inner: int, outer: int, *, split: bool) -> None:
        super().__init__()
        half = outer // 2
        self.split = split
        self.first = conv(inner, outer, 1, act=nn.SiLU)
        self.body = Residual(nn.Sequential(conv(half, half, act=nn.SiLU), conv(half, half, act=nn.SiLU)), act=None)
        self.last = conv(half * (3 if split else 2), outer, 1, act=nn.SiLU)

    def forward(self, x: Any) -> Any:
        a, b = self.first(x).chunk(2, 1)
        return self.last(torch.cat([a, b, self.body(b)] if self.split else [a, self.body(b)], 1))


class Pyramid(nn.Module):
    """SPPF: pools of pools, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = (
            conv(channels, channels // 2, 1, act=nn.SiLU),
            conv(channels * 2, channels, 1, act=nn.SiLU),
        )

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        found = [x]
        for _ in range(3):
            found.append(F.max_pool2d(found[-1], 5, 1, 2))
        return self.last(torch.cat(found, 1))


def upsampled(x: Any, mode: str = "nearest") -> Any:
    return F.interpolate(x, scale_factor=2.0, mode=mode, **({} if mode == "nearest" else {"align_corners": False}))


class Stack(nn.Module):
    """Layers, the mean of all places, and a classifier."""

    def __init__(self, channels: int, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, 10)

    def forward(self, x: Any) -> Any:
        return self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))
