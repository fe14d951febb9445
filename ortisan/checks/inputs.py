"""The inputs that two models are compared and timed on: the caller's when there are any, else samples."""

from __future__ import annotations

import functools
import itertools
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from ortisan.checks.samples import Case, Sampler
from ortisan.errors import OptionError
from ortisan.registry.dtypes import Array

Inputs: TypeAlias = "str | Path | Mapping[str, Array] | Sequence[Mapping[str, Array]] | None"

_MOST_SHAPES = 4
_MOST_TIMED = 3
_NPY_TAG = b"\x93NUMPY"
_UNREADABLE = (
    *(OSError, ValueError, EOFError, AttributeError, KeyError, TypeError, MemoryError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for a file that is damaged or something else."""


class Cases:
    """Cases to compare and to time on. `make_sampler` is called on first use, if the caller gave no inputs."""

    def __init__(self, inputs: Inputs, make_sampler: Callable[[], Sampler]) -> None:
        self._given = None if inputs is None else read_inputs(inputs)
        self._make_sampler = make_sampler

    @functools.cached_property
    def _sampler(self) -> Sampler:
        return self._make_sampler()

    def compared(self, *, first_only: bool = False) -> Iterator[Iterable[Case]]:
        """Yields, for each case, the inputs to try in order; the first that the model accepts represents the case.

        With `first_only` there is one sample.
        """
        if self._given is None:
            yield from itertools.islice(self._sampler.cases(), 1 if first_only else None)
            return
        for index, feeds in enumerate(self._given):
            yield [Case(f"given inputs {index + 1} ({_shapes(feeds)})", feeds, given=True)]

    def rejected(self, case: Case, message: str) -> None:
        """Says why ONNX Runtime refused a sample, before the next one is asked for: so that it fits sooner."""
        if self._given is None:
            self._sampler.rejected(case, message)

    def advice(self, message: str) -> str:
        """What to tell a person when ONNX Runtime refused all samples, the last one with this message."""
        return self._sampler.advice(message)

    def narrow(self) -> str | None:
        """A sentence about dims of which one size alone ran; None if there are none, or the inputs are the caller's."""
        return None if self._given is not None else self._sampler.narrow()

    def timed(self) -> Iterable[Case]:
        """Inputs of a size worth timing, in the order to try them."""
        if self._given is None:
            return self._sampler.timed()
        return [Case(f"given inputs ({_shapes(feeds)})", feeds) for feeds in self._given[:1]]

    def timed_beside(self) -> Iterable[Iterable[Case]]:
        """More inputs to time on, after `timed`: the other ones of the caller's, or other sizes."""
        if self._given is None:
            return self._sampler.timed_beside()
        return [[Case(f"given inputs ({_shapes(feeds)})", feeds)] for feeds in self._given[1:_MOST_TIMED]]


def read_inputs(inputs: Inputs) -> list[Mapping[str, Array]]:
    """Reads one set of inputs from a file or a mapping, or several from a sequence of these. Raises `OptionError`."""
    if inputs is None:
        return []
    if isinstance(inputs, Mapping):
        return [{name: _array(array, f"input '{name}'") for name, array in inputs.items()}]
    if not isinstance(inputs, (str, Path)):
        return [feeds for item in inputs for feeds in read_inputs(item)]
    return [_read_file(Path(inputs))]


def _read_file(path: Path) -> Mapping[str, Array]:
    try:
        with path.open("rb") as file:
            head = file.read(len(_NPY_TAG))
            file.seek(0)
            if head == _NPY_TAG:
                raise OptionError(
                    f"'{path}' holds one array without a name (.npy); save inputs by name: np.savez('inputs.npz', x=x)"
                )
            return _read_archive(file, path)
    except FileNotFoundError as error:
        raise OptionError(f"'{path}', the file of inputs, does not exist") from error
    except OSError as error:
        raise OptionError(f"'{path}', the file of inputs, can't be read: {error.strerror or error}") from error


def _read_archive(file: BinaryIO, path: Path) -> Mapping[str, Array]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        if str(error).startswith("Object arrays"):
            raise OptionError(
                f"'{path}' has an array of Python objects, which is not read; give it a number type, or str for text"
            ) from error
        raise OptionError(
            f"'{path}' can't be read as inputs: expected an .npz file with one array per input, whole and as np.savez "
            "writes it"
        ) from error


def _array(given: object, what: str) -> Array:
    try:
        array = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise OptionError(f"{what} can't be taken for an array: {error}") from error
    if array.dtype == object and not all(isinstance(item, str) for item in array.flat):
        raise OptionError(f"{what} is an array of Python objects; give it a number type, or str for text")
    return array


def _shapes(feeds: Mapping[str, Array]) -> str:
    """What tells sets of inputs apart: "x 2x16, mask 2"."""
    listed = [f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in feeds.items()]
    return ", ".join(listed[:_MOST_SHAPES]) + (", ..." if len(listed) > _MOST_SHAPES else "")
