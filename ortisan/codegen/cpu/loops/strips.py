"""Cuts a long elementwise chain into segments: one loop each, over a strip of elements that stays in the nearest cache.

A loop with several expensive functions waits for their long dependency chains and runs out of registers; a loop with
one overlaps many elements. Values that cross from a segment to a later one go through small arrays, shared by liveness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.loops.chain import Chain, Load, Step, Store


@dataclass(frozen=True)
class Strip:
    """An array of one strip, in which a value crosses from its segment to later ones."""

    name: str
    type: str


@dataclass(frozen=True)
class Crossing:
    value: str
    strip: str
    type: str


@dataclass(frozen=True)
class Segment:
    """One loop: reads operands and strips, runs steps, writes strips. Only the last segment stores outputs."""

    loads: tuple[Load, ...]
    takes: tuple[Crossing, ...]
    steps: tuple[Step, ...]
    gives: tuple[Crossing, ...]
    stores: tuple[Store, ...]

    @property
    def fast_path(self) -> bool:
        """Whether the loop is tried with the functions' fast paths first; its inputs must outlive it then."""
        return any(step.fast_path for step in self.steps)

    @property
    def interleaved(self) -> bool:
        """Whether vectors run interleaved: where there is something to wait for, and no value has over 32 bits."""
        return any(step.expensive for step in self.steps) and all(step.type in ("float", "bool") for step in self.steps)


def cut(chain: Chain) -> tuple[tuple[Segment, ...], tuple[Strip, ...]]:
    """The segments in order and the strips they share; one segment and no strips for a chain that needs no cutting."""
    groups = _groups(chain.steps)
    home = {step.result: index for index, group in enumerate(groups) for step in group}
    last = len(groups) - 1
    wanted = [{operand for step in group for operand in step.operands} for group in groups]
    wanted[last] |= {store.value for store in chain.stores}
    final = {name: max(i for i, names in enumerate(wanted) if name in names) for name in set().union(*wanted)}
    crossing, strips = _place(groups, home, final)
    segments = []
    for index, group in enumerate(groups):
        takes = (crossing[n] for n in home if n in crossing and n in wanted[index] and home[n] < index)
        gives = (crossing[step.result] for step in group if step.result in crossing)
        loads = (load for load in chain.loads if load.result in wanted[index])
        stores = chain.stores if index == last else ()
        segments.append(Segment(tuple(loads), tuple(takes), tuple(group), tuple(gives), stores))
    return tuple(segments), strips


def _groups(steps: Sequence[Step]) -> list[list[Step]]:
    """Every group has one expensive step at most; any number of cheap ones stay with the step before them."""
    groups: list[list[Step]] = [[]]
    for step in steps:
        if step.expensive and any(before.expensive for before in groups[-1]):
            groups.append([])
        groups[-1].append(step)
    return groups


def _place(
    groups: Sequence[Iterable[Step]], home: dict[str, int], final: dict[str, int]
) -> tuple[dict[str, Crossing], tuple[Strip, ...]]:
    """A strip for every value that is wanted after its segment; free again after the last segment that wants it."""
    strips: list[Strip] = []
    busy_until: list[int] = []
    crossing: dict[str, Crossing] = {}
    for index, group in enumerate(groups):
        runs_twice = any(step.fast_path for step in group)
        for step in group:
            until = final.get(step.result, index)
            if until == index:
                continue
            done = index - 1 if runs_twice else index
            free = [i for i, s in enumerate(strips) if s.type == step.type and busy_until[i] <= done]
            if not free:
                strips.append(Strip(f"strip{len(strips)}", step.type))
                busy_until.append(-1)
                free = [len(strips) - 1]
            busy_until[free[0]] = until
            crossing[step.result] = Crossing(step.result, strips[free[0]].name, step.type)
    return crossing, tuple(strips)
