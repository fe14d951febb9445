"""Kernels of our own, for what AITemplate lacks or refuses: they are ops of its graph, in its memory and on its stream.

A kernel is a CUDA source with one host function, which all have alike: the tensors, numbers, the stream. Equal sources
are compiled once, so what differs from call to call is a number and no text. Sizes come from the op graph.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.render import render
from ortisan.registry.dims import Dim, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value

NAME = "ORTISAN_KERNEL"
"""Stands in a source for the name of its host function, which AITemplate numbers."""


@dataclass(frozen=True)
class CallSource:
    """A source that only calls a launcher of a header, `function<arguments>`."""

    header: str
    function: str
    arguments: tuple[str, ...]
    name: str = NAME


@dataclass(frozen=True)
class OwnKernel:
    """A call of a kernel, written for a node whose outputs it fills."""

    kind: str
    """What it does, in a word; names the source, and the meaning in worker/own_meanings.py."""
    source: str
    inputs: tuple[Value, ...]
    numbers: tuple[Dim, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What the interpreter has to know; dims among it are evaluated there."""
    checked: bool = False
    """Whether it looks at indices: it is given where to report one out of range, and last the number of its op."""


WriteKernel = Callable[[Node, Bounds], OwnKernel]
"""Writes the call of a kernel of ours for a node, or raises `Refused` with what we lack."""


def calling(header: str, function: str, *arguments: str) -> str:
    """The source of a kernel whose launcher is in a header of templates/cuda."""
    return render("cuda/call.cu.j2", CallSource(header, function, arguments))


def storage(dtype: DType) -> str:
    """The C++ type of a tensor's elements."""
    return f"ortisan::{dtype.cpp}" if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype.cpp


def element_of(dtype: DType) -> str:
    """What is moved for an element of a type: an unsigned integer of its size."""
    return f"uint{8 * dtype.size}_t"


def float_bits(x: float) -> int:
    """A float32 as the integer that has its bits, for `as_float` of launch.cuh: a kernel's numbers are integers."""
    number: int = struct.unpack("<I", struct.pack("<f", x))[0]
    return number


def along_axis(shape: Sequence[Dim], axis: int) -> tuple[Dim, Dim, Dim]:
    """(outer, n, inner): the sizes before an axis, of it, and behind it."""
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
