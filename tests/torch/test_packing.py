"""Weights of products with few rows are inputs, which are read once in a run; those of many rows are packed and compared."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
WIDTH = 160
FEW, MANY = 3, 40


class Tied(nn.Module):
    """A table that is looked up and multiplied with, and a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear, self.norm = nn.Embedding(128, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, ids: Any) -> Any:
        return self.norm(self.linear(self.table(ids))) @ self.table.weight.t()


def weights_given(artifact: Any) -> int:
    """Matrices among the inputs of the custom op."""
    (op,) = artifact.manifest["ops"]
    return sum(text.startswith("float32[") and text.count(",") == 1 for text in op["inputs"].values())


@pytest.mark.parametrize("rows, given", [(FEW, 2), (MANY, 0)])
def test_under_torch_compile(rows: int, given: int, graphs: list[Any]) -> None:
    model, ids = Tied().eval(), torch.arange(rows)
    fast = torch.compile(model, backend=front.backend, options={"strict": True}, dynamic=False)
    with torch.no_grad():
        close(fast(ids), model(ids))
        built = graphs[0].artifact
        assert weights_given(built) == given
        model.linear.weight.data.mul_(2)
        model.table.weight.data.add_(1)
        close(fast(ids), model(ids))
    assert (graphs[0].artifact is built) == (rows == FEW), "what is an input needs no other build"


def test_in_the_wrapper_each_session_keeps_what_it_packed() -> None:
    model, few, many = Tied().eval(), torch.arange(FEW), torch.arange(MANY)
    fast = front.compile(model)
    with torch.no_grad():
        for _ in range(2):
            close(fast(few), model(few))
            model.linear.weight.data.mul_(2)
        assert (fast.cache_info().misses, weights_given(fast.entries()[0].artifact)) == (1, 2)
        close(fast(many), model(many))
        assert weights_given(fast.entries()[-1].artifact) == 0
        for change in (
            lambda: model.linear.weight.data.mul_(2),
            lambda: model.norm.bias.data.add_(1),
            lambda: model.table.weight.data.add_(1),
        ):
            change()
            for ids in (few, many):
                close(fast(ids), model(ids))


def test_a_small_weight_is_compared(graphs: list[Any]) -> None:
    model, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    with torch.no_grad():
        torch.compile(model, backend=front.backend, options={"strict": True})(x)
    assert weights_given(graphs[0].artifact) == 1, "of the call alone"
