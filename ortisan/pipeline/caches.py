"""What Ortisan remembers on this machine, and how to make it forget: finished builds, the blockings that won, and the
artifacts of the PyTorch front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ortisan.codegen.cpu.tune import remember as tuning_cache
from ortisan.codegen.cpu.tune.remember import Remembered
from ortisan.codegen.tools import build_cache as cache
from ortisan.codegen.tools.build_cache import Build
from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.errors import ArtifactError
from ortisan.pipeline.kept import KeptArtifact, all_kept, forget_kept


@dataclass(frozen=True)
class Section:
    """One of the caches. Times are seconds since 1970, the oldest entry first; None when it is empty."""

    entries: int
    bytes: int
    oldest: float | None
    newest: float | None


@dataclass(frozen=True)
class Caches:
    folder: Path
    builds: tuple[Build, ...]
    choices: tuple[Remembered, ...]
    choice_bytes: int
    artifacts: tuple[KeptArtifact, ...] = ()

    @property
    def sections(self) -> dict[str, Section]:
        return {
            "builds": _section([build.made for build in self.builds], sum(build.bytes for build in self.builds)),
            "tuning": _section([choice.made for choice in self.choices], self.choice_bytes),
            "torch": _section([kept.used for kept in self.artifacts], sum(kept.bytes for kept in self.artifacts)),
        }

    def to_json(self) -> dict[str, Any]:
        listed: dict[str, Sequence[Any]] = {"builds": self.builds, "tuning": self.choices, "torch": self.artifacts}
        return {
            "folder": str(self.folder),
            **{
                name: {**asdict(section), "list": [asdict(item) for item in listed[name]]}
                for name, section in self.sections.items()
            },
        }


def _section(made: Sequence[float], size: int) -> Section:
    return Section(len(made), size, min(made, default=None), max(made, default=None))


def read_caches() -> Caches:
    file = tuning_cache.tuning_file()
    size = file.stat().st_size if file.is_file() else 0
    choices = tuple(tuning_cache.all_remembered())
    folder = cache_folder()
    return Caches(folder, tuple(cache.all_builds()), choices, size, tuple(all_kept(folder)))


def clear_caches(*, builds: bool, tuning: bool, torch: bool) -> dict[str, int]:
    """Removes what is asked for; gives how many entries of each there were."""
    removed = {}
    try:
        if builds:
            removed["builds"] = cache.forget_builds()
        if tuning:
            removed["tuning"] = tuning_cache.forget_all()
        if torch:
            removed["torch"] = forget_kept(cache_folder())
    except OSError as error:
        raise ArtifactError(
            f"the cache '{cache_folder()}' can't be cleared: {error.strerror or error}; remove it by hand"
        ) from error
    return removed
