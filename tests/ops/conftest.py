from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.ops.harness import Batch, Case


@pytest.fixture(scope="session")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Case]], Batch]:
    """One built library per list of cases."""
    built: dict[int, Batch] = {}

    def get(cases: Sequence[Case]) -> Batch:
        if id(cases) not in built:
            built[id(cases)] = Batch(cases, tmp_path_factory.mktemp("ops"))
        return built[id(cases)]

    return get


@pytest.fixture(autouse=True)
def _quiet_numpy() -> object:
    with np.errstate(all="ignore"):
        yield
