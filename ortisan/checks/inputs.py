"""The inputs that two models are compared and timed on: the caller's when there are any, else samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ortisan.checks.samples import Case, Sampler
from ortisan.errors import OptionError
from ortisan.registry.dtypes import Array

Inputs: TypeAlias = "str | Path | Mapping[str, Array] | Sequence[Mapping[str, Array]] | None"


class Cases:
    """Cases to compare and to time on. `make_sampler` is called on first use, if the caller gave no inputs."""

    def __init__(self, inputs: Inputs, make_sampler: Callable[[], Sampler]) -> None:
        self._given = None if inputs is None else read_inputs(inputs)
        self._make_sampler = make_sampler

    @functools.cached_property
    def _sampler(self) -> Sampler:
        return self._make_sampler()

    def compared(self) -> Iterator[Iterable[Case]]:
        """Yields, for each case, the inputs to try in order; the first that the model accepts represents the case."""
        if self._given is None:
            yield from self._sampler.cases()
            return
        for index, feeds in enumerate(self._given):
            yield [Case(f"given inputs {index + 1}", feeds, given=True)]

    def timed(self) -> Iterable[Case]:
        """Inputs of a size worth timing, in the order to try them."""
        if self._given is None:
            return self._sampler.timed()
        return [Case("given inputs", feeds) for feeds in self._given[:1]]


def read_inputs(inputs: Inputs) -> list[Mapping[str, Array]]:
    """Reads one set of inputs from a file or a mapping, or several from a sequence of these."""
    if inputs is None:
        return []
    if isinstance(inputs, Mapping):
        return [{name: np.asarray(array) for name, array in inputs.items()}]
    if not isinstance(inputs, (str, Path)):
        return [feeds for item in inputs for feeds in read_inputs(item)]
    try:
        with np.load(inputs, allow_pickle=False) as archive:
            if not hasattr(archive, "files"):
                raise ValueError("it holds a single array")
            return [{name: archive[name] for name in archive.files}]
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise OptionError(
            f"'{inputs}' can't be read as inputs: expected an .npz file with one array per input"
        ) from error
