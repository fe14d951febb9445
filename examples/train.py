"""Trains a small net through torch.compile: forward and backward are compiled, and the losses are those of eager."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ortisan.torch


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 2))


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two spirals, and which one each belongs to."""
    torch.manual_seed(1)
    label = torch.arange(count) % 2
    angle = 4 * torch.rand(count) + 0.5
    turned = angle + torch.pi * label
    return torch.stack([angle * turned.cos(), angle * turned.sin()], 1) / 4, label


def train(module: nn.Module, step: Any, steps: int) -> list[float]:
    points, labels = spirals(256)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = step(module, points, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def loss_of(module: nn.Module, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(module(points), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    eager = train(net(), loss_of, options.steps)
    fast = train(net(), torch.compile(loss_of, backend=ortisan.torch.backend), options.steps)
    for step in sorted({0, options.steps // 2, options.steps - 1}):
        print(f"step {step:4}: eager {eager[step]:.5f}, ortisan {fast[step]:.5f}")
    print(f"largest difference {max(abs(a - b) for a, b in zip(eager, fast, strict=True)):.1e}")


if __name__ == "__main__":
    main()
