"""Checks the options of both entry points: `torch.compile(options=...)` and the keywords of `ortisan.torch.compile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ortisan.codegen.backend import Tune
from ortisan.converter.read.symbols import FREE
from ortisan.errors import OptionError
from ortisan.pipeline.options import Keep, Options, option_names
from ortisan.torch.session_options import check_providers, check_session_options

Exporter: TypeAlias = "Literal['dynamo', 'legacy'] | Callable[..., Any]"
"""A callable takes a `exporters.Request` and returns an ONNX model."""

NAME = "graph"
"""The name of this front end's custom ops."""

MODES: Mapping[str, tuple[Tune, Keep]] = {
    "default": ("off", "all"),
    "reduce-overhead": ("auto", "all"),
    "max-autotune": ("full", "faster"),
}
"""How each mode of torch.compile tunes, and which subgraphs it keeps."""

_REFUSED = {
    "cache": "a cache in place changes the shapes of the module's arguments; export the module and use ortisan.build",
    "sources_only": "the front end runs what it builds; export the module and use ortisan.build",
}
"""Options of `ortisan.build` that make no sense here, and why."""


@dataclass(frozen=True)
class FrontOptions:
    """What a graph is exported and built with.

    `build` are the options of `ortisan.build`, which are given by their own names; `strict` raises where a graph would
    run eager; `functions` are classes, names or path patterns of submodules that become ONNX functions in the exported
    model, where others are inlined; `transforms` are functions of the exported `onnx_ir.Model` that change it or give
    another; `freeze` notices only those changes of weights that torch counts; `check="eager"` compares every run with
    eager; `intercept` prints every call; `dump` is a folder for all that is exported and built; `session_options` and
    `providers` are those of ONNX Runtime's sessions, the options also as a mapping.
    """

    build: Options
    strict: bool = False
    exporter: Exporter = "dynamo"
    opset: int | None = None
    functions: tuple[str | type, ...] = ()
    transforms: tuple[Callable[[Any], Any], ...] = ()
    freeze: bool = False
    check: Literal["eager"] | None = None
    intercept: bool | Callable[[Any], None] = False
    dump: Path | None = None
    session_options: Any = None
    providers: tuple[Any, ...] = ()

    @property
    def dims(self) -> dict[str, int | tuple[int, int]]:
        return {name: bound for name, bound in self.build.bounds.items() if bound != FREE}

    def __post_init__(self) -> None:
        if self.exporter not in ("dynamo", "legacy") and not callable(self.exporter):
            raise OptionError(f"exporter must be 'dynamo', 'legacy' or a function, not {self.exporter!r}")
        if self.check not in (None, "eager"):
            raise OptionError(f"check must be 'eager' or None, not {self.check!r}")
        if self.opset is not None and (isinstance(self.opset, bool) or not isinstance(self.opset, int)):
            raise OptionError(f"opset must be a whole number, not {self.opset!r}")
        if free := [name for name, bound in self.build.bounds.items() if bound == FREE]:
            raise OptionError(
                f"dims: '{free[0]}' can't be free here; dims of a module that differ have names that differ"
            )
        for name, value in (("strict", self.strict), ("freeze", self.freeze)):
            if not isinstance(value, bool):
                raise OptionError(f"{name} must be True or False, not {value!r}")
        if self.build.keep == "faster" and not self.build.patterns:
            raise OptionError(
                "patterns=False needs keep='all', because keep='faster' times subgraphs with patterns applied"
            )
        for each in self.functions:
            if not isinstance(each, (str, type)):
                raise OptionError(f"functions must be classes of modules, their names or paths, not {each!r}")
        if self.functions and self.exporter != "dynamo":
            raise OptionError("functions= needs exporter='dynamo', which says which module a node comes from")
        wrong = [transform for transform in self.transforms if not callable(transform)]
        if wrong:
            raise OptionError(f"transforms must be functions of the exported model, not {wrong[0]!r}")
        check_session_options(self.session_options)
        check_providers(self.providers)


def environment_options() -> dict[str, Any]:
    """Options that a variable of the environment sets."""
    exporter = os.environ.get("ORTISAN_EXPORTER")
    return {"exporter": exporter} if exporter else {}


def front_options(given: Mapping[str, Any] | None, mode: str | None = None) -> FrontOptions:
    """Makes options from a mapping, on top of those of a mode. Unknown names are an `OptionError`."""
    if mode is not None and mode not in MODES:
        raise OptionError(f"there is no mode '{mode}'; the modes are {', '.join(MODES)}")
    given = dict(given or {})
    own = {each.name for each in fields(FrontOptions)} - {"build"}
    building = set(option_names())
    unknown = sorted(set(given) - own - building)
    if unknown:
        raise OptionError(f"there is no option '{unknown[0]}'; the options are {', '.join(sorted(own | building))}")
    for name, why in _REFUSED.items():
        if name in given:
            raise OptionError(f"'{name}' is not an option of the PyTorch front end: {why}")
    tune, keep = MODES[mode or "default"]
    chosen = {name: value for name, value in given.items() if name in building}
    build = Options(**{"tune": tune, "keep": keep, "verify": False, "name": NAME, **chosen})
    rest: dict[str, Any] = {name: value for name, value in given.items() if name in own}
    for name in ("functions", "transforms", "providers"):
        rest[name] = _as_tuple(rest.get(name, ()))
    place = rest.get("dump") or os.environ.get("ORTISAN_DUMP")
    rest["dump"] = Path(place) if place else None
    return FrontOptions(build, **rest)


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)
