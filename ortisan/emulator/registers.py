"""Gives registers places in a warp's file. Those that are never needed at the same time share one.

A lane that waits elsewhere keeps its values: each lane has its own part of a place, and only running lanes are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ortisan.emulator.forms.form import Emitted, registers
from ortisan.emulator.syntax import Guard, Register

LANES = 32
_LINE = 64


@dataclass(frozen=True)
class Step:
    """An instruction of the machine: what it does, behind which predicate, and where it is in the PTX."""

    emitted: Emitted
    guard: Guard | None
    line: int
    text: str
    targets: tuple[int, ...] = ()


def place_registers(steps: Sequence[Step]) -> tuple[dict[Register, int], int]:
    """The place of each register, and the bytes of the file."""
    spans = _spans(steps)
    places: dict[Register, int] = {}
    total = 0
    for size in sorted({place_bytes(register.bits) for register in spans}, reverse=True):
        total = -(-total // _LINE) * _LINE
        of_size = [
            (begin, end, register) for register, (begin, end) in spans.items() if place_bytes(register.bits) == size
        ]
        free: list[int] = []
        busy: list[tuple[int, int]] = []
        for begin, end, register in sorted(of_size, key=lambda span: span[:2]):
            while busy and busy[0][0] < begin:
                heappush(free, heappop(busy)[1])
            if free:
                place = heappop(free)
            else:
                place, total = total, total + size
            places[register] = place
            heappush(busy, (end, place))
    return places, total


def place_bytes(bits: int) -> int:
    """A word with a bit per lane for a predicate, else one value per lane."""
    return 4 if bits == 1 else bits // 8 * LANES


def _spans(steps: Sequence[Step]) -> dict[Register, tuple[int, int]]:
    """Register -> where it is first written and last needed; step k reads at 2k and writes at 2k + 1."""
    numbers: dict[Register, int] = {}
    reads, writes, kills = [], [], []
    for step in steps:
        read = registers(step.emitted.sources) + ([step.guard.register] if step.guard else [])
        written = registers(step.emitted.results)
        for register in (*read, *written):
            numbers.setdefault(register, len(numbers))
        reads.append(_mask(numbers, read))
        writes.append(_mask(numbers, written))
        kills.append(0 if step.guard else writes[-1])
    spans: list[tuple[int, int]] = [(1 << 60, -1)] * len(numbers)
    live_after = _live(steps, reads, kills)
    for index in range(len(steps)):
        after = live_after[index]
        before = (after & ~kills[index]) | reads[index]
        for number in _numbers(before):
            spans[number] = (min(spans[number][0], 2 * index), max(spans[number][1], 2 * index))
        for number in _numbers(after | writes[index]):
            spans[number] = (min(spans[number][0], 2 * index + 1), max(spans[number][1], 2 * index + 2))
    return {register: spans[number] for register, number in numbers.items()}


def _live(steps: Sequence[Step], reads: Sequence[int], kills: Sequence[int]) -> list[int]:
    """After each step, the registers whose values are needed later, as bits."""
    after = [0] * len(steps)
    before = [0] * (len(steps) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(steps) - 1, -1, -1):
            step = steps[index]
            live = 0 if step.emitted.ends else before[index + 1]
            for target in step.targets:
                live |= before[target]
            after[index] = live
            live = (live & ~kills[index]) | reads[index]
            if live != before[index]:
                before[index] = live
                changed = True
    return after


def _mask(numbers: Mapping[Register, int], found: Sequence[Register]) -> int:
    mask = 0
    for register in found:
        mask |= 1 << numbers[register]
    return mask


def _numbers(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
