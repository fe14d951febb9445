"""Strided copies: the boxes that moves are made of, each with its own strides on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Template
from ortisan.codegen.strides import Layout
from ortisan.registry.dims import Dim, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Value

COPY = Template("move/copy", ("heads.h", "move.h"))
_BITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def bits(dtype: DType) -> str:
    """The unsigned type of the element's size: moves don't look at the elements."""
    return _BITS[dtype.size]


@dataclass(frozen=True)
class Box:
    """dst[dst_offset + i . dst_strides] = src[src_offset + i . src_strides] for all i below the extents."""

    src: str
    dst: str
    extents: tuple[str, ...]
    src_offset: str
    src_strides: tuple[str, ...]
    dst_offset: str
    dst_strides: tuple[str, ...]


@dataclass(frozen=True)
class CopyContext:
    """Boxes copied one after the other; with `fill` the whole output is first set to *fill (or zero).

    Where `streamed` holds in a run, the copies go around the caches.
    """

    params: tuple[Param, ...]
    type: str
    boxes: tuple[Box, ...]
    fill: str = ""
    fill_count: str = "0"
    streamed: str = "false"


def box(
    context: EmitContext,
    extents: Sequence[Dim],
    *,
    source: Layout,
    target: Layout,
    names: tuple[str, str] = ("in0", "out0"),
) -> Box:
    """Copies all that lies within the extents."""
    printer = context.printer
    return Box(
        *names,
        printer.all(extents),
        printer(source.offset),
        printer.all(source.strides),
        printer(target.offset),
        printer.all(target.strides),
    )


def copy_whole(name: str, value: Value, context: EmitContext, arguments: tuple[Argument, ...]) -> KernelSpec:
    """Copies a value that is contiguous on both sides."""
    type_ = bits(value.dtype)
    whole = box(context, (product(value.shape),), source=Layout(0, (1,)), target=Layout(0, (1,)))
    params = (Param("in0", type_), Param("out0", type_, written=True))
    return KernelSpec(COPY, name, CopyContext(params, type_, (whole,)), arguments)
