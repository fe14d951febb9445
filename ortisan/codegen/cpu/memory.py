"""The memory plan: where each value lives. Intermediate values share scratch slots by liveness. What a loop or an
epilogue reads last, element by element, is replaced by what it writes.

Sizes are symbolic, so a slot's size is the largest of its tenants', found at run time; offsets are running sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernels import kernel_of, scalar_call
from ortisan.codegen.cpu.views import Views
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, evaluate, product, typical
from ortisan.registry.graph import Graph, Value

_SLOT_BOUNDARY = 64
"""Slots start on multiples of it; see `place` in templates/cpu/base/graph.cpp.j2."""


@dataclass(frozen=True)
class Place:
    kind: Literal["input", "output", "scratch"]
    index: int


@dataclass(frozen=True)
class Slot:
    """One piece of the scratch block; as large as the largest of these byte counts."""

    sizes: tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class Copy:
    """A graph output that lives elsewhere and has to be copied at the end."""

    source: Value
    output: int


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    places: dict[Value, Place]
    slots: tuple[Slot, ...]
    workspaces: dict[Group, int]
    """Slot of a group's own working memory."""
    copies: tuple[Copy, ...]
    shared: tuple[tuple[int, int], ...] = ()
    """Inputs and outputs that may be the same memory: a cache, and the cache with new rows in it."""

    def offsets(self, dims: Mapping[str, int]) -> list[int]:
        """Where the slots begin for these values of the symbols, and last the size of the block."""
        starts = [0]
        for slot in self.slots:
            size = max((evaluate(size, dims) for size in slot.sizes), default=0)
            starts.append(starts[-1] + -(-max(size, 0) // _SLOT_BOUNDARY) * _SLOT_BOUNDARY)
        return starts


def byte_size(value: Value) -> Dim:
    return product((value.dtype.size, value.type.elements))


class _Slots:
    def __init__(self) -> None:
        self.sizes: list[dict[Dim, None]] = []
        self.busy_until: list[int] = []

    def take(self, size: Dim, now: int, until: int) -> int:
        free = [i for i, end in enumerate(self.busy_until) if end < now]
        same = [i for i in free if size in self.sizes[i]]
        best = same[0] if same else min(free, key=lambda i: self._misfit(i, size), default=None)
        if best is None or (not same and self._misfit(best, size) > 0.5):
            self.sizes.append({})
            self.busy_until.append(-1)
            best = len(self.sizes) - 1
        self.sizes[best].setdefault(size)
        self.busy_until[best] = until
        return best

    def hand_over(self, place: Place, until: int) -> Place:
        self.busy_until[place.index] = until
        return place

    def _misfit(self, slot: int, size: Dim) -> float:
        have, need = max(typical(s) for s in self.sizes[slot]), typical(size)
        return abs(have - need) / max(have, need, 1)


def plan_memory(
    graph: Graph,
    groups: Sequence[Group],
    views: Views,
    workspace: Mapping[Group, Dim],
    keep_all: bool = False,
) -> MemoryPlan:
    """With `keep_all` no slot is used twice, so that every intermediate value can be looked at after a run."""
    places: dict[Value, Place] = {}
    places.update((value, Place("input", i)) for i, value in enumerate(graph.inputs))
    copies: list[Copy] = []
    for index, value in enumerate(graph.outputs):
        root = views.root(value)
        if root in places or is_constant(root):
            copies.append(Copy(value, index))
        else:
            places[root] = Place("output", index)
    last_use = _last_uses(groups, views)
    slots = _Slots()
    workspaces: dict[Group, int] = {}
    handed_over: set[Value] = set()
    for now, group in enumerate(groups):
        if group in workspace:
            workspaces[group] = slots.take(workspace[group], now, now)
        for value in group.outputs:
            root = views.root(value)
            if root not in places:
                until = len(groups) if keep_all else max(last_use.get(root, now), now)
                free = (v for v in _replaced(group, root, views) if last_use[v] == now and v not in handed_over)
                spent = next((v for v in free if places[v].kind == "scratch"), None)
                if spent is not None and not keep_all:
                    handed_over.add(spent)
                    places[root] = slots.hand_over(places[spent], until)
                else:
                    places[root] = Place("scratch", slots.take(byte_size(root), now, until))
    laid_out = tuple(Slot(tuple(sizes)) for sizes in slots.sizes)
    return MemoryPlan(places, laid_out, workspaces, tuple(copies), _shared(graph, views, places))


def _shared(graph: Graph, views: Views, places: Mapping[Value, Place]) -> tuple[tuple[int, int], ...]:
    """Caches that only their write reads: when past and output are the same memory, it writes nothing but new rows."""
    read = [value for node in graph.nodes if node not in views.skipped for value in node.inputs]
    reads = Counter(views.root(value) for value in (*read, *graph.outputs))
    pairs: list[tuple[int, int]] = []
    for node in graph.nodes:
        if not kernel_of(node).shares(node):
            continue
        past, place = node.inputs[0], places[views.root(node.output)]
        if past in graph.inputs and reads[past] == 1 and place.kind == "output":
            pairs.append((graph.inputs.index(past), place.index))
    return tuple(pairs)


def _replaced(group: Group, output: Value, views: Views) -> Iterator[Value]:
    """The values that a group reads only where it writes `output`, an element before that element."""
    roots = {views.root(value): value.dtype for value in group.inputs if not is_constant(views.root(value))}
    for root, dtype in roots.items():
        ways = [value for value in group.inputs if views.root(value) is root]
        same = dtype is output.dtype and root.type.elements == output.type.elements
        if same and all(_reads_in_place(group, value, output, views) for value in ways):
            yield root


def _reads_in_place(group: Group, value: Value, output: Value, views: Views) -> bool:
    first = kernel_of(group.nodes[0]).in_place
    if first is None or group.members or group.before:
        return False
    if group.anchor is None:
        again = any(scalar_call(node).fast_path for node in group.chain)
        return not again and value.shape == output.shape and not views.is_strided(value)
    factors = {views.root(factor) for factor in group.anchor.inputs[:first]}
    return len(group.outputs) == 1 and views.root(value) not in factors


def _last_uses(groups: Sequence[Group], views: Views) -> dict[Value, int]:
    return {views.root(value): now for now, group in enumerate(groups) for value in group.inputs}
