"""Custom ops of torch.library: as an ONNX function, as C++, not mapped at all, and one that writes to its argument."""

import warnings

import torch
from onnxscript import FLOAT, script
from onnxscript import opset18 as op
from torch import nn

import ortisan.torch
from ortisan.torch.reasons import WentEager


@torch.library.custom_op("recipes::double_plus", mutates_args=())
def double_plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + x + y


@torch.library.custom_op("recipes::squash", mutates_args=())
def squash(x: torch.Tensor, slope: float) -> torch.Tensor:
    return x / (1 + slope * x.abs())


@torch.library.custom_op("recipes::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


double_plus.register_fake(lambda x, y: torch.empty_like(x))
squash.register_fake(lambda x, slope: torch.empty_like(x))


@script()
def as_onnx(x: FLOAT[...], y: FLOAT[...]) -> FLOAT[...]:
    return op.Add(op.Add(x, x), y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = squash(double_plus(self.layer(x), x), 0.5)
        bump(y)
        return torch.relu(self.layer(y))


model, x = Model().eval(), torch.randn(4, 16)
ortisan.torch.map_op("recipes::double_plus", as_onnx)
ortisan.torch.map_op("recipes::squash", cpp="x / (T(1) + T(slope) * abs(x))")
for road in (lambda: torch.compile(model, backend="ortisan"), lambda: ortisan.torch.compile(model)):
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WentEager)
        torch.testing.assert_close(road()(x), model(x), atol=1e-5, rtol=1e-4)
    print(next(str(each.message) for each in caught if each.category is WentEager))
print("same as eager")
