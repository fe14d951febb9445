"""What AITemplate made of one op graph, and the installation that made it: the border between adapter and glue.

Symbols, bounds, guards and output dims are those of the op graph; nothing here repeats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ortisan.registry.dtypes import Array
from ortisan.registry.graph import Graph


@dataclass(frozen=True)
class AitTensor:
    """An input or output: AITemplate's name for it (`i0_`, `o1_`) and its place among the op graph's.

    An input of the op graph that AITemplate does not need is not listed. Its order in AITemplate is found by name.
    """

    name: str
    index: int


@dataclass(frozen=True, eq=False)
class AitConstant:
    """A constant that AITemplate is given before its first run (`c12_`), in the layout and type it wants.

    It becomes an initializer of the converted model and an input of the custom op.
    """

    name: str
    data: Array = field(repr=False)


@dataclass(frozen=True, eq=False)
class AitModel:
    """AITemplate's sources for one op graph."""

    graph: Graph
    inputs: tuple[AitTensor, ...]
    outputs: tuple[AitTensor, ...]
    constants: tuple[AitConstant, ...]
    files: Mapping[str, bytes] = field(repr=False)
    """File name -> content of all that is compiled or included; the same bytes for the same graph."""
    renames: Mapping[str, Mapping[str, str]]
    """Source -> macros that rename kernels of it, where two sources of AITemplate would define one symbol."""
    notes: tuple[str, ...]
    """What was chosen: the form of each attention, tiles, alignment."""
    profiled: bool
    """Whether tiles were timed on a GPU; else a rule by size chose them."""
    symbols: tuple[str, ...] = ()
    """The graph's symbols in the order that kernels of ours know their sizes by."""
    checked: tuple[str, ...] = ()
    """The nodes whose kernels report indices that are out of range, by the number they report."""

    shared: tuple[tuple[int, int], ...] = ()
    """Inputs and outputs of the graph that may be the same memory."""

    @property
    def kernels(self) -> int:
        """How many sources hold kernels; equal ops share one."""
        return sum(name.endswith(".cu") and not name.startswith("model_") for name in self.files)


@dataclass(frozen=True)
class AitInstall:
    """A real AITemplate: the Python that imports it, its checkout (None when installed), CUTLASS, commit, version."""

    python: str
    root: Path | None
    cutlass: Path
    commit: str
    version: str
