"""Values that are another value's memory: reshapes, and what kernels read or write through strides."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.strides import Layout, contiguous
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Node, Value


@dataclass(frozen=True, eq=False)
class Views:
    """Which memory each value of a graph lives in, and how; `find_views` makes them."""

    skipped: Set[Node]
    """Nodes that run no kernel."""
    sources: Mapping[Value, Value]
    """The value that another one is a view of, which may be a view itself."""
    layouts: Mapping[Value, Layout]
    """Of the values that are not all of their root's memory, in its order."""
    written: Mapping[Value, tuple[Dim, ...]]
    """Strides of the values that a kernel writes in another order than theirs."""

    def root(self, value: Value) -> Value:
        """The value whose memory a value lives in."""
        return root_of(value, self.sources)

    def is_strided(self, value: Value) -> bool:
        """Whether a value is not all of its root's memory, in its order."""
        return value in self.layouts

    def layout(self, value: Value) -> Layout:
        """How a value lies in its root's memory."""
        return self.layouts.get(value) or contiguous(value.shape)

    def written_strides(self, value: Value) -> tuple[Dim, ...]:
        """Strides under which the kernel that makes a value writes it."""
        return self.written.get(value) or contiguous_strides(value.shape)


def root_of(value: Value, sources: Mapping[Value, Value]) -> Value:
    while value in sources:
        value = sources[value]
    return value
