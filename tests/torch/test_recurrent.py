"""LSTM and GRU under torch.compile, which dynamo traces when it is told to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import UnsupportedError  # noqa: E402
from ortisan.torch.recurrent import lstm_layer  # noqa: E402
from tests.models.nets import Recurrent, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


@pytest.mark.parametrize(
    "settings", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2, "batch_first": True}]
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_layers_give_what_eager_gives(kind: Any, settings: Any, graphs: list[Any]) -> None:
    model = kind(8, 6, **settings).eval().requires_grad_(False)
    with torch._dynamo.config.patch(allow_rnn=True):
        fast = torch.compile(model, backend=front.backend, fullgraph=True, options={"strict": True})
        x = torch.randn(5, 3, 8)
        (got, states), (want, expected) = fast(x), model(x)
    close(got, want)
    for a, b in zip(states if kind is nn.LSTM else [states], expected if kind is nn.LSTM else [expected], strict=True):
        close(a, b)
    assert len(graphs) == 1


def test_one_graph_serves_all_lengths(graphs: list[Any]) -> None:
    model = Recurrent().eval().requires_grad_(False)
    with torch._dynamo.config.patch(allow_rnn=True):
        fast = torch.compile(model, backend=front.backend, fullgraph=True, dynamic=True, options={"strict": True})
        for length in (5, 9):
            ids = torch.randint(20, (2, length))
            for got, want in zip(fast(ids), model(ids), strict=True):
                close(got, want)
    assert len(graphs) == 1


def test_other_layers_of_onednn_are_refused() -> None:
    settings = [False, [], 3, 6, 1, True, False, False, False]
    with pytest.raises(UnsupportedError, match="is known as one LSTM layer"):
        lstm_layer(*[None] * 7, *settings)
