"""bfloat16, autocast and grouped heads, on both roads."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
STRICT = {"strict": True}
NARROW = 4e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_and_another_batch_size(dtype: Any) -> None:
    model = nn.Linear(16, 8).to(dtype).eval()
    roads = (torch.compile(model, backend=front.backend, options=STRICT), front.compile(model, dynamic=True))
    with torch.no_grad():
        for fast in roads:
            for rows in (4, 6, 3000):
                x = torch.randn(rows, 16, dtype=dtype)
                have = fast(x)
                assert have.dtype == dtype
                close(have.float(), model(x).float(), NARROW)


def mixed() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def test_autocast_in_inference() -> None:
    model, x = mixed().eval(), torch.randn(4, 16)
    fast = torch.compile(model, backend=front.backend, options=STRICT)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        close(fast(x).float(), model(x).float(), NARROW)


def test_autocast_around_a_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()
    x = torch.randn(2, 3, 9, 9)
    fast = torch.compile(model, backend=front.backend, options=STRICT)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        have, want = fast(x), model(x)
    assert have.dtype == want.dtype
    close(have.float(), want.float(), NARROW)


def test_autocast_in_training() -> None:
    model, x, weights = mixed(), torch.randn(4, 16), torch.randn(4, 4)
    found = []
    for module in (model, torch.compile(model, backend=front.backend, options=STRICT)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (module(x) * weights).sum()
        loss.backward()
        found.append([each.grad.clone() for each in model.parameters()])
        model.zero_grad()
    for want, have in zip(*found, strict=True):
        close(have / want.abs().max(), want / want.abs().max(), NARROW)


def test_the_wrapper_tells_autocast_apart() -> None:
    model, x = mixed().eval(), torch.randn(4, 16)
    for first in (True, False):
        fast = front.compile(model)
        with torch.no_grad():
            for enabled in (first, not first, first):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    have, want = fast(x), model(x)
                assert have.dtype == want.dtype
                close(have.float(), want.float(), NARROW)
        assert fast.cache_info().misses == 2


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads(causal: bool) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=causal)

    fast = torch.compile(attend, backend=front.backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", WentEager)
        for length in (5, 8):
            q, k, v = (torch.randn(2, heads, length, 8) for heads in (4, 2, 2))
            for each in (q, k, v):
                torch._dynamo.mark_dynamic(each, 2)
            close(fast(q, k, v), attend(q, k, v))


def test_dynamic_numbers_of_heads_run_eager_with_a_reason() -> None:
    fast = torch.compile(F.scaled_dot_product_attention, backend=front.backend, dynamic=True)
    q, k, v = (torch.randn(2, heads, 5, 8) for heads in (4, 2, 2))
    with torch.no_grad(), pytest.warns(WentEager, match="numbers of heads are dynamic and differ"):
        close(fast(q, k, v, enable_gqa=True), F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


def test_distances() -> None:
    fast = torch.compile(torch.cdist, backend=front.backend, options=STRICT)
    x, y = torch.randn(5, 3), torch.randn(7, 3)
    for p in (1.0, 2.0, float("inf")):
        close(fast(x, y, p), torch.cdist(x, y, p))
