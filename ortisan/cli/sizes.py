"""--dim of verify and bench: sizes to run at, several at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

import typer

from ortisan.errors import OptionError

Sizes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=N,N,..", help="Sizes of a symbolic dim to run at: batch=1,8,64."),
]
UNNAMED = "as declared"
"""The label of inputs whose dims are all fixed."""
_MOST = 64


def read_sizes(texts: Sequence[str] | None) -> list[dict[str, int]]:
    """Every combination of "batch=1,8" and "seq=16,128"; one without sizes when there are none."""
    sizes: dict[str, list[int]] = {}
    for text in texts or ():
        match = re.fullmatch(r"(.+?)=(\d+(?:,\d+)*)", text.strip())
        if match is None:
            raise OptionError(f"--dim '{text}' is not of the form NAME=N or NAME=N,N,.., as in batch=1,8,64")
        sizes.setdefault(match[1], []).extend(map(int, match[2].split(",")))
    chosen = [dict(zip(sizes, each, strict=True)) for each in itertools.product(*sizes.values())]
    if len(chosen) > _MOST:
        raise OptionError(f"--dim asks for {len(chosen)} combinations of sizes; {_MOST} at once are the most")
    return chosen


def check_alone(sizes: Sequence[str] | None, inputs: object) -> None:
    if sizes and inputs is not None:
        raise OptionError("--dim and --inputs can't be combined: inputs have sizes of their own")


def named(case: str, dims: Mapping[str, Any]) -> str:
    """The label of a case; what was fixed by the caller is said, too."""
    fixed = [f"{name}={size}" for name, size in dims.items() if isinstance(size, int)]
    if case.startswith(UNNAMED):
        return (", ".join(fixed) or "the declared shapes") + case.removeprefix(UNNAMED)
    parts = case.split(", ")
    if "=" not in parts[0]:
        return case
    return ", ".join([*(text for text in fixed if text not in parts), *parts])


def relabelled(items: Iterable[Any], dims: Mapping[str, Any]) -> Iterator[Any]:
    """Figures or timings with labels that say their sizes."""
    return (replace(item, case=named(item.case, dims)) for item in items)
