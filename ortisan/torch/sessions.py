"""The sessions of a wrapped module: which of them a call may use, and when they no longer hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from ortisan.torch.entry import Entry, Kind
from ortisan.torch.watch import Watch

DEFAULT_ENTRIES = 3
CHANGES = 2
"""After so many changes weights are inputs of the next session, which is slower, but no change makes another one."""


@dataclass(frozen=True)
class CacheInfo:
    """Counters: `hits` reused a session, `misses` made one, `disk` of which found an artifact on disk; `current` are
    open.
    """

    hits: int
    misses: int
    disk: int
    current: int
    most: int


@dataclass(eq=False)
class Group:
    """The sessions of one set of modules: the wrapped one, and those that are arguments of the call."""

    parts: tuple[nn.Module, ...]
    watch: Watch
    changes: int = 0
    """How often what tensors hold has changed."""
    entries: list[Entry] = field(default_factory=list)

    def has_baked(self) -> bool:
        """Whether a session has weights in it, which the watch has to watch."""
        return any(not entry.reads_weights for entry in self.entries)

    def narrow(self) -> None:
        """Leaves tensors out of the watch that every session is given."""
        baked = [entry for entry in self.entries if not entry.reads_weights]
        given = [{id(each) for each in entry.taken if not isinstance(each, int)} for entry in baked]
        if given:
            self.watch.leave_out(set.intersection(*given))

    def find(self, kind: Kind) -> Entry | None:
        for entry in reversed(self.entries):
            if entry.serves(kind):
                self.entries.remove(entry)
                self.entries.append(entry)
                return entry
        return None


class Sessions:
    """Keeps the `most` sessions that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: OrderedDict[tuple[int, ...], Group] = OrderedDict()
        self.hits = self.misses = self.disk = 0

    def of(self, parts: Sequence[nn.Module], *, freeze: bool) -> Group:
        """The sessions that still hold for these modules as they are now."""
        key = tuple(map(id, parts))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(tuple(parts), Watch(parts, freeze=freeze))
        elif group.watch.has_changed() or group.watch.have_forms_changed():
            group.entries.clear()
            group.watch = Watch(parts, freeze=freeze)
        elif group.has_baked() and group.watch.have_tensors_changed():
            group.entries[:] = [entry for entry in group.entries if entry.reads_weights]
            group.changes += 1
            group.watch = Watch(parts, freeze=freeze)
        self._groups.move_to_end(key)
        while len(self._groups) > self._most:
            self._groups.popitem(last=False)
        return group

    def prepare(self, group: Group, *, freeze: bool) -> None:
        """Before a session is made: nobody has looked at what tensors hold that no other session has in it."""
        if not group.has_baked() or group.watch.is_narrow:
            group.watch = Watch(group.parts, freeze=freeze)

    def add(self, group: Group, entry: Entry) -> None:
        self.disk += entry.from_disk
        group.entries.append(entry)
        group.narrow()
        while len(self.entries()) > self._most:
            oldest = next(each for each in self._groups.values() if each.entries)
            oldest.entries.pop(0)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for group in self._groups.values() for entry in group.entries)

    def info(self) -> CacheInfo:
        return CacheInfo(self.hits, self.misses, self.disk, len(self.entries()), self._most)
