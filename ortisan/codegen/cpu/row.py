"""One row per op: all that the CPU backend knows of it. The rows stand beside their emitters, in kernels/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, ScalarCall, Template
from ortisan.codegen.strides import Layout
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Node, Op, Value


def contiguous_only(node: Node, value: Value, layout: Layout) -> bool:
    """Reads nothing through strides."""
    return False


def rows_of(node: Node, value: Value, layout: Layout) -> bool:
    """Reads rows of neighbours, wherever they are."""
    return bool(layout.strides[-1] == 1)


def _no_strides(node: Node) -> None:
    return None


def no_objection(node: Node) -> str | None:
    return None


def never(node: Node) -> bool:
    return False


@dataclass(frozen=True)
class CpuKernel:
    """What planning, fusion, the memory plan and the sources ask about an op. The defaults suit most kernels."""

    op: type[Op]
    emit: Callable[[Group, EmitContext], KernelSpec] | None
    """The kernel of a group that begins with this op; None for a view, which never runs."""
    templates: tuple[Template, ...] = ()
    """Those that `emit` chooses from."""

    objection: Callable[[Node], str | None] = no_objection
    """Why the kernel can't take a node, which then stays in ONNX Runtime."""

    reads: Callable[[Node, Value, Layout], bool] = contiguous_only
    """Whether a node can read an input that lies so in memory. Other inputs are copied first."""
    layouts: Callable[[Node, Layout], tuple[Layout, ...]] | None = None
    """Layouts of the outputs in the memory of the first input, given its own; empty where strides can't express it."""
    row_strides: Callable[[Node], tuple[Dim, ...] | None] = _no_strides
    """Of a node that only reorders rows: strides of its input in the memory of its output."""
    writes_rows: bool = False
    """Whether it writes rows wherever they belong, so that what only reorders them need not run."""

    scalar: Callable[[Node], ScalarCall] | None = None
    """What a loop calls for an elementwise op, which shares a loop with its neighbours or joins an epilogue."""
    epilogue: bool = False
    """Whether elementwise nodes after it run on its results before they are stored."""
    joins: Callable[[Node], bool] = never
    """Whether a node runs in one kernel with others of the same first input."""

    in_place: int | None = None
    """Inputs from this one on, and what is fused to it, are read an element at a time, just before that element of the
    output is written: the output may take their memory. None when that is true of no input."""
    shares: Callable[[Node], bool] = never
    """Whether the output may be the first input's memory when the caller gives it so."""
    table: bool = False
    """Whether its constants are tables, of which each run reads a few rows."""

    @property
    def elementwise(self) -> bool:
        return self.scalar is not None
