"""Architectures of transformers: eager's results at several batch sizes and lengths, compiled or eager with a reason."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from tools.architectures.models import ALL, make_model  # noqa: E402
from tools.architectures.page import render  # noqa: E402
from tools.architectures.sweep import ROADS, SIZES, Road, run  # noqa: E402

pytestmark = [pytest.mark.torch]

SAMPLE = {"DistilBert"}


def names() -> list[Any]:
    return [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in ALL]


@pytest.mark.build
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", names())
def test_an_architecture(name: str, road: Road) -> None:
    model = make_model(name)
    if model is None:
        pytest.skip(f"this release of transformers has no {name}Model")
    found = run(name, model, road)
    assert found.is_right
    assert found.eager or found.graphs
    assert all("/" not in reason and "\n" not in reason for reason in found.eager)
    if name in SAMPLE:
        assert found.is_whole
        assert found.compiled == found.nodes


def test_the_sweep_changes_batch_and_length_twice() -> None:
    assert len({batch for batch, _ in SIZES}) == len({length for _, length in SIZES}) == 3


def test_the_page_says_what_is_compiled_and_why_not() -> None:
    whole = {"error": 3e-7, "graphs": 1, "compiled": 9, "nodes": 9, "eager": ()}
    eager = {"error": 0.0, "graphs": 0, "compiled": 0, "nodes": 0, "eager": ("aten.fft has no ONNX form",)}
    page = render(
        {"Whole": {"compile": whole, "wrapper": whole}, "Odd": {"compile": whole, "wrapper": eager}, "No": {}}
    )
    assert "2 of 2 have no eager part in torch.compile; 1 of 2 have no eager part in the wrapper." in page
    assert "| Whole | 9 of 9 | 3e-07 | 9 of 9 | 3e-07 |" in page
    assert "| Odd | 9 of 9 | 3e-07 | eager |  |" in page
    assert "- Odd, wrapper: aten.fft has no ONNX form" in page
    assert "| No |" not in page
