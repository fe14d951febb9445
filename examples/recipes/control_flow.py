"""Control flow inside of a graph: cond, while_loop, scan and map."""

import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import ortisan.torch


class Choose(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x) + 1, lambda x: x * 2, (x,))


class Halve(nn.Module):
    """Until all are small."""

    def forward(self, x):
        return while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x / 2,), (x,))[0]


class Sums(nn.Module):
    """Running sums over the rows."""

    def forward(self, x):
        last, rows = scan(lambda carry, row: (carry + row, (carry + row).clone()), torch.zeros_like(x[0]), x)
        return rows + 0 * last


class Each(nn.Module):
    def forward(self, x):
        return torch_map(lambda row: torch.relu(row) * 2, x)


for module in (Choose(), Halve(), Sums(), Each()):
    name = type(module).__name__
    fast = ortisan.torch.compile(module)
    with torch.no_grad():
        for x in (torch.rand(4, 6), -torch.rand(4, 6)):
            torch.testing.assert_close(fast(x), module(x), atol=1e-5, rtol=1e-4)
    print(f"{name}: same as eager, {fast.cache_info().misses} session for both inputs")
