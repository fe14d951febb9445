"""What torch.onnx has no function for in the form that torch gives it: strides as numbers, numbers less whole numbers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


class Windows(nn.Module):
    """Windows of four rows that overlap by two, by strides."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        batch, rows, width = y.shape
        strides = y.stride()
        return y.as_strided((batch, rows // 2 - 1, 4, width), (strides[0], strides[1] * 2, strides[1], strides[2])).sum(
            2
        )


class Less(nn.Module):
    def forward(self, x: Any) -> Any:
        return 1.0 - x


def roads(module: nn.Module) -> tuple[Any, Any]:
    compiled = torch.compile(module, backend=front.backend, dynamic=True, options={"strict": True})
    return compiled, front.compile(module, dynamic=True, strict=True)


def test_strides_of_dynamic_sizes() -> None:
    for fast in roads(Windows()):
        for batch, rows in ((2, 8), (3, 12)):
            x = torch.randn(batch, rows, 5)
            close(fast(x), Windows()(x))


def test_a_number_less_whole_numbers() -> None:
    for fast in roads(Less()):
        for size in (3, 5):
            x = torch.arange(size)
            close(fast(x), Less()(x))
