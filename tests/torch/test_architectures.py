"""Architectures of transformers: the results of eager at several batch sizes and lengths, compiled or eager with a reason."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import ortisan.torch as front  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.torch.architectures import ALL, make_inputs, make_model  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]

SAMPLE = {"DistilBert"}
SIZES = ((2, 8), (3, 12), (2, 16))
RELATIVE = 2e-5


def names() -> list[Any]:
    return [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in ALL]


@pytest.mark.parametrize("name", names())
def test_an_architecture_under_torch_compile(name: str, graphs: list[Any]) -> None:
    model = made(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WentEager)
        check(name, model, torch.compile(model, backend=front.backend, dynamic=True))
    reasons = [str(each.message) for each in caught if each.category is WentEager]
    assert all(" runs eager: " in reason and "/" not in reason.split(" runs eager: ")[0] for reason in reasons)
    assert reasons or all(graph.artifact is not None for graph in graphs)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ALL))
def test_an_architecture_in_the_wrapper(name: str) -> None:
    model = made(name)
    check(name, model, front.compile(model, dynamic=True))


def made(name: str) -> Any:
    model = make_model(name)
    if model is None:
        pytest.skip(f"this release of transformers has no {name}Model")
    return model


def check(name: str, model: Any, fast: Any) -> None:
    with torch.no_grad():
        for batch, length in SIZES:
            inputs = make_inputs(name, batch, length)
            have, want = first_of(fast(**inputs)), first_of(model(**inputs))
            assert (have - want).abs().max() <= RELATIVE * want.abs().max()


def first_of(output: Any) -> Any:
    return next(each for each in output.values() if isinstance(each, torch.Tensor))
