"""However a module is changed between two calls, the second result is that of the module as it is now, on both roads."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.torch.contents import Contents  # noqa: E402
from tests.models.nets import close  # noqa: E402
from tests.tolerances import APPROXIMATE  # noqa: E402
from tests.torch.changes import CHANGES, WIDTH, Part  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
NARROW = {torch.bfloat16: 4e-2, torch.float16: 4e-3}


@pytest.fixture(scope="module", params=["compile", "wrapper"])
def road(request: pytest.FixtureRequest) -> Any:
    if request.param == "wrapper":
        return front.compile
    return lambda part: torch.compile(part, backend=front.backend, options={"strict": True})


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts(name: str, road: Any) -> None:
    torch.manual_seed(0)
    part, x = Part().eval(), torch.randn(3, WIDTH)
    fast = road(part)
    with torch.no_grad():
        close(fast(x), part(x))
        before = part(x)
        for count in range(3):
            CHANGES[name](part)
            x = x.to(part.offset.dtype)
            want = part(x)
            assert count or not torch.equal(before, want), "this changes nothing, so it tests nothing"
            for _ in range(2):
                close(fast(x), want, tolerance=NARROW.get(x.dtype, APPROXIMATE))


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


def test_a_view_that_negates_is_another_weight() -> None:
    weight = nn.Parameter(torch.randn(8, 8))
    contents = Contents([weight], freeze=False)
    weight.data = torch._neg_view(weight.data)
    assert not contents.are_in([weight])
    negated = Contents([weight], freeze=False)
    assert negated.are_in([weight])
    weight.data = weight.data.resolve_neg()
    assert not negated.are_in([weight])


def test_a_part_of_contents_is_compared_alone() -> None:
    for freeze in (False, True):
        tensors = [torch.zeros(5), torch.ones(3, 2), torch.zeros(7)]
        part = Contents(tensors, freeze=freeze).part([0, 2])
        tensors[1].add_(1)
        assert part.are_in([tensors[0], tensors[2]])
        tensors[2].add_(1)
        assert part.changed_in([tensors[0], tensors[2]]) == [1]
