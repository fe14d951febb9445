"""Compares results with those of eager PyTorch, output by output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ortisan.checks.compare import compare, dtype_of
from ortisan.errors import VerifyError
from ortisan.torch.tree import leaves_with_names


def compare_with_eager(what: str, results: Any, expected: Any) -> None:
    """Raises a `VerifyError` that lists every output that differs from eager, and by how much."""
    wrong = list(_departures(results, expected))
    if wrong:
        raise VerifyError(f"{what} departs from eager:\n  " + "\n  ".join(wrong))


def _departures(results: Any, expected: Any) -> Iterator[str]:
    have, want = (dict(leaves_with_names((tree,), {}, word="output")) for tree in (results, expected))
    if have.keys() != want.keys():
        yield f"the outputs are {sorted(have)}, expected {sorted(want)}"
        return
    for name, wanted in want.items():
        got = have[name]
        if not isinstance(wanted, torch.Tensor) or not isinstance(got, torch.Tensor):
            if not isinstance(wanted, torch.Tensor) and not isinstance(got, torch.Tensor) and got != wanted:
                yield f"{name} is {got!r}, expected {wanted!r}"
            continue
        difference = compare(_array(got), _array(wanted))
        if not difference.within(dtype_of(_array(wanted)), "approximate"):
            far = difference.problem or f"off by up to {difference.max_abs:.3g} ({difference.max_rel:.2g} relative)"
            yield f"{name} {list(wanted.shape)}: {far}"


def _array(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())
