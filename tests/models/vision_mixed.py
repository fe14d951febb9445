"""Architectures that mix convolutions with attention, or run over sound and volumes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.models.vision_blocks import norm_of


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any, keys: Any = None) -> Any:
        n, length, width = x.shape
        q, k, v = self.all(x).chunk(3, -1)
        if keys is not None:
            _, k, v = self.all(keys).chunk(3, -1)
        parts = (part.reshape(n, -1, self.heads, width // self.heads).transpose(1, 2) for part in (q, k, v))
        return self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.wide, self.narrow = (
            Attention(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class PatchEncoder(nn.Module):
    """ViT, CLIP: patches by a convolution, a class token, positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.layers = nn.Conv2d(3, 32, 16, 16), nn.Sequential(Layer(32), Layer(32))
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class PyramidEncoder(nn.Module):
    """SegFormer: overlapping patches, keys of fewer places, a depthwise convolution between two products."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 7, 4, 3), nn.LayerNorm(16)
        self.fewer, self.keys, self.attention = nn.Conv2d(16, 16, 2, 2), nn.LayerNorm(16), Attention(16)
        self.wide, self.mix, self.narrow = nn.Linear(16, 32), nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Linear(32, 16)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Any) -> Any:
        y = self.patches(x)
        n, c, h, w = y.shape
        rows = self.norm(y.flatten(2).transpose(1, 2))
        image = rows.transpose(1, 2).reshape(n, c, h, w)
        rows = rows + self.attention(rows, self.keys(self.fewer(image).flatten(2).transpose(1, 2)))
        wide = self.wide(rows).transpose(1, 2).reshape(n, 32, h, w)
        rows = rows + self.narrow(F.gelu(self.mix(wide).flatten(2).transpose(1, 2)))
        return upsampled_to(self.head(rows.transpose(1, 2).reshape(n, c, h, w)), x)


def upsampled_to(y: Any, x: Any) -> Any:
    return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class WindowEncoder(nn.Module):
    """Swin: attention in windows, and in windows that are shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.plain, self.shifted = nn.Conv2d(3, 16, 4, 4), Layer(16), Layer(16)
        self.merge, self.norm, self.head = nn.Linear(64, 32, bias=False), nn.LayerNorm(64), nn.Linear(32, 10)

    def _windows(self, x: Any, layer: nn.Module) -> Any:
        n, h, w, c = x.shape
        parts = x.reshape(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        return layer(parts).reshape(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)

    def forward(self, x: Any) -> Any:
        x = self._windows(self.patches(x).permute(0, 2, 3, 1), self.plain)
        x = torch.roll(self._windows(torch.roll(x, (-2, -2), (1, 2)), self.shifted), (2, 2), (1, 2))
        joined = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.head(self.merge(self.norm(joined)).mean((1, 2)))


class Wav(nn.Module):
    """wav2vec 2.0: a stack of convolutions over samples, then attention with convolved positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.group = nn.Conv1d(1, 16, 10, 5, bias=False), nn.GroupNorm(16, 16)
        self.rest = nn.Sequential(*(nn.Sequential(nn.Conv1d(16, 16, k, 2, bias=False), nn.GELU()) for k in (3, 3, 2)))
        self.norm, self.project = nn.LayerNorm(16), nn.Linear(16, 32)
        self.positions, self.layer = nn.Conv1d(32, 32, 8, padding=4, groups=4), Layer(32)

    def forward(self, x: Any) -> Any:
        y = self.rest(F.gelu(self.group(self.first(x))))
        y = self.project(self.norm(y.transpose(1, 2)))
        places = self.positions(y.transpose(1, 2))[..., :-1]
        return self.layer(y + F.gelu(places).transpose(1, 2))


class Waves(nn.Module):
    """WaveNet: dilated convolutions of the past, with gates and skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 16, 1), nn.Conv1d(16, 8, 1)
        self.gates = nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2**i) for i in range(5)])
        self.skips = nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(5)])

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        total = torch.zeros_like(x)
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            a, b = gate(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.last(F.relu(total))


def volumes() -> nn.Module:
    """A 3D CNN, down and up again."""
    norm = nn.BatchNorm3d(8)
    norm.load_state_dict(norm_of(8).state_dict())
    return nn.Sequential(
        nn.Conv3d(3, 8, 3, (1, 2, 2), 1, bias=False), norm, nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 16, (3, 1, 1), padding=(1, 0, 0)), nn.GELU(),
        nn.ConvTranspose3d(16, 8, 2, 2), nn.ReLU(), nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv3d(8, 2, 1),
    )  # fmt: skip
