"""The benchmark of the front measures what it says. Nothing here depends on how fast anything is."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from benchmarks.timing import Effort
from benchmarks.torch_front import overhead

pytestmark = [pytest.mark.torch, pytest.mark.build]


def test_overhead_is_the_wrapper_less_the_session() -> None:
    figures = overhead(Effort(0.05, 1))
    assert set(figures) == {"session", "wrapper", "eager", "overhead"}
    best = [figures[name][0] for name in ("wrapper", "session", "overhead")]
    assert best[0] - best[1] == pytest.approx(best[2], abs=0.02)
