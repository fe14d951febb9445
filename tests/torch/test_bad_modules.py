"""Modules and inputs that ask for trouble: each works, runs eager, or gets one sentence; nothing is left changed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import UnsupportedError  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import WIDTH, Broken, Net, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


class InPlace(nn.Module):
    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return x + 1


class Remembers(nn.Module):
    """Keeps what it computed, and what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.last = x * 2
        return self.last + 1


class Real(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.real * 2


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


class Spectrum(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.fft.fft(x).abs()


class Inverse(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(x @ x.mT)


def test_control_flow_on_data_is_a_sentence_in_the_wrapper(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match=r"torch.export can't export Broken: .*data-dependent"), torch.no_grad():
        front.compile(Broken())(torch.ones(2, WIDTH))
    assert capfd.readouterr().err == "", "torch prints graphs and logs, which say nothing to the caller"


def test_mutation_of_an_input_is_a_sentence_in_the_wrapper() -> None:
    x = torch.ones(3)
    with pytest.raises(UnsupportedError, match="the forward of InPlace changes an input in place"):
        front.compile(InPlace())(x)
    assert torch.equal(x, torch.ones(3))


def test_mutation_of_buffers_is_a_sentence_in_the_wrapper() -> None:
    norm = nn.BatchNorm1d(4).train()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with pytest.raises(UnsupportedError, match=r"changes '.*' in place.*call .eval\(\)"):
        front.compile(norm)(torch.randn(8, 4))
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


def test_mutation_works_in_torch_compile() -> None:
    a, b = torch.ones(3), torch.ones(3)
    close(torch.compile(InPlace(), backend=front.backend, options={"strict": True})(a), InPlace()(b))
    close(a, b)


def test_what_a_forward_assigns_is_taken_back() -> None:
    module = Remembers()
    with contextlib.suppress(UnsupportedError):
        front.compile(module)(torch.ones(3))
    assert module.last is None
    assert type(module.total) is torch.Tensor


@pytest.mark.parametrize(
    "module, make, message",
    [
        (Real(), lambda: torch.ones(3, dtype=torch.complex64), "complex numbers"),
        (Doubled(), lambda: torch.ones(3).to_sparse(), "sparse tensor"),
        (Doubled(), lambda: torch.ones(3, device="meta"), "on 'meta'"),
    ],
    ids=["complex", "sparse", "device"],
)
def test_tensors_that_onnx_runtime_has_no_word_for(module: Any, make: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        front.compile(module)(make())
    x = make()
    # dynamo makes no graph of what is sparse, so there is nothing to warn of.
    with pytest.warns(WentEager, match=message) if x.layout == torch.strided else contextlib.nullcontext():
        have = torch.compile(module, backend=front.backend)(x)
    want = module(x)
    assert have.device == want.device
    assert have.dtype == want.dtype
    if want.device.type != "meta":
        close(have.to_dense(), want.to_dense())


def test_complex_numbers_inside_run_eager() -> None:
    x = torch.randn(2, 4)
    with pytest.warns(WentEager, match="complex numbers"):
        close(torch.compile(Spectrum(), backend=front.backend)(x), Spectrum()(x))


def test_an_op_without_translation_is_named() -> None:
    x = torch.randn(3, 3)
    with pytest.warns(WentEager, match=r"aten\._linalg_eigh"):
        close(torch.compile(Inverse(), backend=front.backend)(x), Inverse()(x))
    with pytest.raises(UnsupportedError, match=r"aten\._linalg_eigh"):
        front.compile(Inverse())(x)


def test_dropout_in_training_draws_what_eager_draws() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 50), nn.Dropout(0.2)).train()
    fast = torch.compile(net, backend=front.backend, dynamic=True, options={"strict": True})
    for rows in (20, 7):
        x = torch.ones(rows, 50)
        results = []
        for module in (net, fast, fast):
            torch.manual_seed(rows)
            results += [module(x), module(x)]
        for have, want in zip(results[2:], results[:2] * 2, strict=True):
            close(have, want)
        assert not torch.equal(results[0], results[1])


def test_empty_and_strided_and_scalar_inputs() -> None:
    model = Net().eval()
    fast = front.compile(model)
    with torch.no_grad():
        for x in (
            torch.ones(0, WIDTH),
            torch.ones(WIDTH),
            torch.randn(WIDTH, 5).t(),
            torch.randn(4, 2 * WIDTH)[:, ::2],
        ):
            close(fast(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_types(dtype: Any) -> None:
    x = torch.tensor([[1, 0, 2], [0, 3, 1]]).to(dtype)
    for dynamic in (False, True):
        have = front.compile(nn.Flatten(0), dynamic=dynamic)(x)
        assert have.dtype == dtype
        assert torch.equal(have, x.flatten())
