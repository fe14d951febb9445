"""The shortest way: a small model through both entry points."""

import torch
from torch import nn

import ortisan.torch

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).eval()
x = torch.randn(8, 64)

with torch.no_grad():
    expected = model(x)
    by_backend = torch.compile(model, backend="ortisan")(x)  # a torch module; nothing has to be imported
    wrapper = ortisan.torch.compile(model)  # a torch module with a cache of sessions
    by_wrapper = wrapper(x)

torch.testing.assert_close(by_backend, expected, atol=1e-5, rtol=1e-4)
torch.testing.assert_close(by_wrapper, expected, atol=1e-5, rtol=1e-4)
ops = wrapper.entries()[0].artifact.manifest["op_counts"]
print("same as eager; the graph is", ", ".join(ops))
