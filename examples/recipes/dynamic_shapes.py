"""Dims that have names, dims that have bounds, and dims that torch fixes."""

import torch
from torch import nn

import ortisan.torch
from ortisan.errors import OptionError


class Pool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)).mean(1)


model = Pool().eval()

# Named: one session serves every batch and length. Bounded: a size outside is refused with a sentence.
fast = ortisan.torch.compile(model, dynamic={"x": {0: "batch", 1: "seq"}}, dims={"seq": (2, 128)})
with torch.no_grad():
    for batch, length in ((2, 7), (3, 128), (9, 4)):
        x = torch.randn(batch, length, 16)
        torch.testing.assert_close(fast(x), model(x), atol=1e-5, rtol=1e-4)
    print("named:", fast.cache_info())
    try:
        fast(torch.randn(2, 129, 16))
    except OptionError as error:
        print("bounded:", error)

    # A batch of 1 is a session of its own, because torch specialises on sizes of 0 and 1.
    fast(torch.randn(1, 7, 16))
    print("batch of 1:", fast.cache_info().misses, "sessions were made")


# Lost: a forward that needs a size as a number fixes it. Naming such a dim is an error; dynamic=True takes what stays.
class Fixed(Pool):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2.0 if x.shape[1] == 7 else 1.0)


lossy = Fixed().eval()
with torch.no_grad():
    some = ortisan.torch.compile(lossy, dynamic=True)
    for batch, length in ((2, 7), (4, 7), (2, 8)):
        x = torch.randn(batch, length, 16)
        torch.testing.assert_close(some(x), lossy(x), atol=1e-5, rtol=1e-4)
    print("lost:", some.cache_info().misses, "sessions for two lengths")
