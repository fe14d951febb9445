"""The options of both roads, checked: `torch.compile(options=...)` and the keywords of `ortisan.torch.compile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ortisan.codegen.cpu.tune.choose import Tune, check_mode
from ortisan.errors import OptionError
from ortisan.pipeline.build import Keep
from ortisan.runtime.settings import AUTO, Weights, check_weights

Exporter: TypeAlias = "Literal['dynamo', 'legacy'] | Callable[..., Any]"
"""A callable gets (module, tensors, dynamic) and gives an ONNX model; see `export.Request`."""

MODES: Mapping[str, tuple[Tune, Keep]] = {
    "default": ("off", "all"),
    "reduce-overhead": ("auto", "all"),
    "max-autotune": ("full", "faster"),
}
"""How each mode of torch.compile tunes, and which subgraphs it keeps."""


@dataclass(frozen=True)
class Options:
    """What a graph is exported and built with.

    `tune`, `keep`, `weights`, `target` and `dims` are those of `ortisan.build`; `strict` raises where a graph would run
    eager; `functions` are classes, names or path patterns of submodules that become ONNX functions in the exported
    model, where others are inlined; `transforms` are functions of the exported `onnx_ir.Model` that change it or give
    another; `patterns=False` compiles ops as they were written, without looking for patterns; `check="eager"` compares
    every run with eager; `intercept` prints every call; `dump` is a folder for all that is exported and built.
    """

    tune: Tune = "off"
    keep: Keep = "all"
    weights: Weights = AUTO
    target: str = "cpu"
    strict: bool = False
    exporter: Exporter = "dynamo"
    opset: int | None = None
    functions: tuple[str | type, ...] = ()
    transforms: tuple[Callable[[Any], Any], ...] = ()
    patterns: bool = True
    dims: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)
    check: Literal["eager"] | None = None
    intercept: bool | Callable[[Any], None] = False
    dump: Path | None = None
    include: Sequence[str] | str | None = None
    exclude: Sequence[str] | str | None = None

    def __post_init__(self) -> None:
        check_mode(self.tune)
        check_weights(self.weights)
        if self.keep not in ("faster", "all"):
            raise OptionError(f"keep must be 'faster' or 'all', not {self.keep!r}")
        if self.exporter not in ("dynamo", "legacy") and not callable(self.exporter):
            raise OptionError(f"exporter must be 'dynamo', 'legacy' or a function, not {self.exporter!r}")
        if self.check not in (None, "eager"):
            raise OptionError(f"check must be 'eager' or None, not {self.check!r}")
        if self.opset is not None and (isinstance(self.opset, bool) or not isinstance(self.opset, int)):
            raise OptionError(f"opset must be a whole number, not {self.opset!r}")
        for name in ("strict", "patterns"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.keep == "faster" and not self.patterns:
            raise OptionError("patterns=False needs keep='all': giving back is timed on what patterns make")
        for each in self.functions:
            if not isinstance(each, (str, type)):
                raise OptionError(f"functions must be classes of modules, their names or paths, not {each!r}")
        if self.functions and self.exporter != "dynamo":
            raise OptionError("functions= needs exporter='dynamo', which says which module a node comes from")
        wrong = [transform for transform in self.transforms if not callable(transform)]
        if wrong:
            raise OptionError(f"transforms must be functions of the exported model, not {wrong[0]!r}")

    @property
    def identity(self) -> str:
        """What decides how an exported model is built, for the key of the disk cache."""
        names = ("tune", "keep", "weights", "target", "patterns", "include", "exclude")
        parts = [f"{name}={getattr(self, name)!r}" for name in names]
        return ";".join([*parts, f"dims={sorted(self.dims.items())!r}"])


def make_options(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
    """Options of a mapping, on top of those of a mode. Unknown names are refused."""
    if mode is not None and mode not in MODES:
        raise OptionError(f"there is no mode '{mode}'; the modes are {', '.join(MODES)}")
    given = dict(given or {})
    known = {each.name for each in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise OptionError(f"there is no option '{unknown[0]}'; the options are {', '.join(sorted(known))}")
    tune, keep = MODES[mode or "default"]
    chosen: dict[str, Any] = {"tune": tune, "keep": keep, **given}
    for name in ("functions", "transforms"):
        chosen[name] = _as_tuple(chosen.get(name, ()))
    place = chosen.get("dump") or os.environ.get("ORTISAN_DUMP")
    chosen["dump"] = Path(place) if place else None
    return Options(**chosen)


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)
