"""However a module is changed between two calls, the second result is that of the module as it is now, on both roads."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.torch.contents import Contents  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
WIDTH = 8


class Part(nn.Module):
    """Something of everything that a module may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Embedding(5, WIDTH)
        self.register_buffer("offset", torch.linspace(0, 1, WIDTH))
        self.plain = torch.linspace(1, 2, WIDTH)
        self.more = {"scales": [torch.ones(WIDTH)], "gain": 1.5}
        self.steps = 2
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.linear(x)) + self.offset + self.table.weight[:3].sum(0)
        for _ in range(self.steps):
            y = y * self.plain + self.more["scales"][0] * self.more["gain"]
        return y if not self.training else y + 1


def raw(tensor: Any, scale: float) -> None:
    """Writes the memory behind torch's back."""
    memory = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    for index in range(len(memory)):
        memory[index] *= scale


def low_rank(part: Any) -> None:
    a, b = torch.randn(2, WIDTH), torch.randn(WIDTH, 2)
    part.linear.weight.data += b @ a


def optimize(part: Any, kind: Any, **settings: Any) -> None:
    optimizer = kind(part.parameters(), lr=0.1, **settings)
    with torch.enable_grad():
        Part.forward(part, torch.ones(3, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def average(part: Any) -> None:
    for each in part.parameters():
        each.data.mul_(0.5).add_(torch.ones_like(each), alpha=0.5)


def same_address(part: Any) -> None:
    part.half()
    part.float()


def swap_rows(part: Any) -> None:
    part.linear.weight.data[[0, 1]] = part.linear.weight.data[[1, 0]]


def turn(part: Any) -> None:
    part.linear.weight.data = part.linear.weight.data.t()


def tie(part: Any) -> None:
    part.linear.weight.data[:5] = part.table.weight.data
    part.table.weight.data = part.linear.weight.data[:5]


def hook(part: Any) -> None:
    part.linear.register_forward_hook(lambda module, args, result: result * 2)


def normalize(part: Any) -> None:
    if not parametrize.is_parametrized(part.linear):
        parametrizations.weight_norm(part.linear)
    part.linear.parametrizations.weight.original0.data.mul_(2)


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return 2 * x


def set_item(name: str, value: Any) -> Callable[[Any], None]:
    return lambda part: part.more.__setitem__(name, value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda part: part.linear.weight.mul_(2),
    "data.mul_": lambda part: part.linear.weight.data.mul_(2),
    "data +=": lambda part: part.linear.weight.data.add_(1),
    "data one number": lambda part: part.linear.weight.data[7, 3].add_(1e-2),
    "data signs": lambda part: part.linear.weight.data.mul_(-1),
    "data rows swapped": swap_rows,
    "data transposed": turn,
    "data replaced": lambda part: setattr(part.linear.weight, "data", torch.randn(WIDTH, WIDTH)),
    "numpy": lambda part: part.linear.weight.detach().numpy().__imul__(3),
    "numpy view kept": lambda part: part.linear.bias.detach().numpy().__setitem__(slice(None), 4),
    "memory": lambda part: raw(part.linear.weight, 2.0),
    "detach": lambda part: part.linear.weight.detach().copy_(torch.ones(WIDTH, WIDTH)),
    "set_": lambda part: part.linear.weight.set_(torch.randn(WIDTH, WIDTH)),
    "load_state_dict": lambda part: part.load_state_dict({k: v + 1 for k, v in part.state_dict().items()}),
    "load_state_dict assign": lambda part: part.load_state_dict(
        {k: v + 1 for k, v in part.state_dict().items()}, assign=True
    ),
    "sgd": lambda part: optimize(part, torch.optim.SGD),
    "adam": lambda part: optimize(part, torch.optim.Adam),
    "adam foreach": lambda part: optimize(part, torch.optim.Adam, foreach=True),
    "average": average,
    "low rank": low_rank,
    "low rank and back": lambda part: (low_rank(part), part.linear.weight.data.sub_(1)),
    "init": lambda part: nn.init.ones_(part.linear.weight),
    "clamp": lambda part: part.linear.weight.data.clamp_(-0.1, 0.1),
    "half and float": same_address,
    "to and back": lambda part: part.to(torch.float64).to(torch.float32).linear.weight.data.mul_(2),
    "new parameter": lambda part: setattr(part.linear, "weight", nn.Parameter(torch.randn(WIDTH, WIDTH))),
    "new part": lambda part: setattr(part, "linear", nn.Linear(WIDTH, WIDTH)),
    "part wrapped": lambda part: setattr(part, "linear", nn.Sequential(part.linear, Double())),
    "tied": tie,
    "table": lambda part: part.table.weight.data.add_(1),
    "buffer": lambda part: part.offset.add_(1),
    "buffer data": lambda part: part.offset.data.add_(1),
    "buffer replaced": lambda part: setattr(part, "offset", torch.ones(WIDTH)),
    "plain tensor": lambda part: part.plain.add_(1),
    "plain tensor numpy": lambda part: part.plain.numpy().__iadd__(1),
    "plain tensor replaced": lambda part: setattr(part, "plain", torch.ones(WIDTH)),
    "tensor in a list": lambda part: part.more["scales"][0].data.add_(1),
    "list item": lambda part: part.more["scales"].__setitem__(0, torch.zeros(WIDTH)),
    "number in a dict": set_item("gain", 3.0),
    "number": lambda part: setattr(part, "steps", 1),
    "train": lambda part: part.train(),
    "hook": hook,
    "parametrization": lambda part: parametrize.register_parametrization(part.linear, "weight", Double()),
    "weight norm": normalize,
    "forward": lambda part: setattr(part, "forward", lambda x: Part.forward(part, x) * 3),
    "class": lambda part: setattr(part, "__class__", type("Other", (Part,), {"forward": lambda self, x: x - 1})),
    "requires_grad": lambda part: part.linear.weight.requires_grad_(False).data.mul_(2),
}


@pytest.fixture(scope="module", params=["compile", "wrapper"])
def road(request: pytest.FixtureRequest) -> Any:
    if request.param == "wrapper":
        return front.compile
    return lambda part: torch.compile(part, backend=front.backend)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts(name: str, road: Any) -> None:
    if name == "hook" and road is not front.compile:
        pytest.skip("dynamo guards no hooks, whatever the backend (skip_nnmodule_hook_guards)")
    check(name, road)


def check(name: str, road: Any) -> None:
    torch.manual_seed(0)
    part, x = Part().eval(), torch.randn(3, WIDTH)
    fast = road(part)
    with torch.no_grad():
        close(fast(x), part(x))
        before = part(x)
        for count in range(3):
            CHANGES[name](part)
            want = part(x)
            assert count or not torch.equal(before, want), "this changes nothing, so it tests nothing"
            close(fast(x), want)
            close(fast(x), want)


def test_gradients_enabled_and_no_backward(graphs: list[Any]) -> None:
    """The graph for inference takes over, and notices a change, too; a backward that comes after all is right."""
    part, x = Part().eval(), torch.randn(3, WIDTH)
    fast = torch.compile(part, backend=front.backend, options={"strict": True})
    for _ in range(6):
        close(fast(x), part(x))
    late = next(graph for graph in graphs if "without" in graph.title)
    assert late.calls, "it never took over"
    part.linear.weight.data.mul_(2)
    close(fast(x), part(x))
    weights = torch.randn(3, WIDTH)
    (fast(x) * weights).sum().backward()
    have = [each.grad.clone() for each in part.parameters()]
    part.zero_grad()
    (part(x) * weights).sum().backward()
    for got, each in zip(have, part.parameters(), strict=True):
        close(got, each.grad)
    count = late.calls
    fast(x)
    assert late.calls == count, "what is trained keeps what a backward reads"


def test_a_module_that_is_an_argument() -> None:
    class Outer(nn.Module):
        def forward(self, x: Any, inner: Any) -> Any:
            return inner(x) + 1

    outer, inner, x = Outer(), nn.Linear(WIDTH, WIDTH), torch.randn(3, WIDTH)
    fast = front.compile(outer)
    with torch.no_grad():
        for _ in range(3):
            close(fast(x, inner), outer(x, inner))
            inner.weight.data.mul_(2)
        other = copy.deepcopy(inner)
        other.weight.mul_(-1)
        close(fast(x, other), outer(x, other))
        close(fast(x, inner), outer(x, inner))


def test_weights_that_come_back_after_a_session_was_made() -> None:
    """The first session has no weights to watch, so nobody saw the change; the second one has them."""
    part, x = nn.Linear(WIDTH, WIDTH), torch.randn(3, WIDTH)
    fast = front.compile(part)
    old = part.weight.detach().clone()
    with torch.no_grad():
        close(fast(x), part(x))
        fast._sessions._groups[(id(part),)].entries.clear()
        part.weight.data.mul_(3)
        close(fast(x), part(x))
        part.weight.data.copy_(old)
        close(fast(x), part(x))


def test_freeze_takes_weights_as_torch_counts_their_changes() -> None:
    part, x = nn.Linear(WIDTH, WIDTH), torch.randn(3, WIDTH)
    roads = (front.compile(part, freeze=True), torch.compile(part, backend=front.backend, options={"freeze": True}))
    with torch.no_grad():
        for fast in roads:
            before = part(x)
            close(fast(x), before)
            part.weight.data.mul_(2)
            close(fast(x), before)
            part.weight.mul_(2)
            close(fast(x), part(x))


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 300_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_every_byte_counts(size: int, dtype: Any) -> None:
    tensors = [torch.zeros(size, dtype=dtype), torch.zeros(3)]
    contents = Contents(tensors, freeze=False)
    assert contents.are_in(tensors)
    for index in {0, size // 2, size - 1}:
        tensors[0].data[index] = 1
        assert not contents.are_in(tensors)
        assert contents.changed_in(tensors) == [0]
        tensors[0].data[index] = 0
        assert contents.are_in(tensors)
    assert not contents.are_in([tensors[0].reshape(1, size), tensors[1]])


def test_changes_that_could_undo_each_other_count() -> None:
    x = torch.randn(64, 64)
    contents = Contents([x], freeze=False)
    for change in (
        lambda t: t.neg_(),
        lambda t: t.copy_(t.flip(0)),
        lambda t: t.copy_(t.roll(1)),
        lambda t: t[::2].neg_(),
    ):
        old = x.clone()
        change(x)
        assert not contents.are_in([x])
        x.copy_(old)
        assert contents.are_in([x])


def test_strided_weights_are_read_whole() -> None:
    base = torch.randn(6, 8)
    for view in (base.t(), base[:, ::2], base[:, :1].expand(6, 4), base[::2]):
        contents = Contents([view], freeze=False)
        assert contents.are_in([view])
        base[-2, 0] += 1
        assert not contents.are_in([view])
