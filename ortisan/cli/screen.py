"""What a person sees: results on stdout, progress and errors on stderr. With --json, stdout is JSON only."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ortisan.cli.interrupts import begin_work
from ortisan.runtime.manifest import plain

_LINE_SECONDS = 5.0


def out() -> Console:
    return Console(highlight=False, soft_wrap=False)


def err() -> Console:
    return Console(stderr=True, highlight=False)


@contextmanager
def phases(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function that names the phase that begins. On a terminal it is shown, and gone afterwards.

    Elsewhere, as in the log of a CI, a line says every few seconds what is going on. $ORTISAN_PROGRESS=lines writes
    each phase as a line, wherever stderr goes.
    """
    begin_work()
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from ortisan.codegen.tools.container import PROGRESS, PROGRESS_MARK

    if os.environ.get(PROGRESS) == "lines":
        yield lambda text: print(f"{PROGRESS_MARK}{text}", file=sys.stderr, flush=True)  # noqa: T201
        return
    console = err()
    if as_json:
        yield lambda _: None
    elif not console.is_terminal:
        yield _now_and_then()
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting", total=None)
            yield lambda text: progress.update(task, description=escape(text))


def _now_and_then() -> Callable[[str], None]:
    """Tells a phase when none was told for a while, so a short command tells none."""
    start = last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_SECONDS:
            last = now
            print(f"{text} ({now - start:.0f} s)", file=sys.stderr, flush=True)  # noqa: T201

    return tell


def write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(plain(value), indent=2) + "\n")


def show_error(message: str) -> None:
    text = Text("error: ", style="bold red")
    err().print(text.append(message, style="not bold default"), soft_wrap=True)


def show_warning(message: str) -> None:
    text = Text("warning: ", style="bold yellow")
    err().print(text.append(message, style="not bold default"), soft_wrap=True)


def table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    """A plain table that fits 80 columns; the columns numbered in `right` hold numbers."""
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        result.add_column(name, justify="right" if index in right else "left", overflow="fold")
    return result


def row(target: Table, *cells: object) -> None:
    """Adds a row; text of models is text, never markup."""
    target.add_row(*(Text(str(cell)) for cell in cells))


def say(text: str = "") -> None:
    out().print(Text(text))


def number(value: float) -> str:
    """An error figure, short."""
    return "-" if math.isnan(value) else f"{value:.2e}" if value else "0"


def plural(count: int, what: str, many: str = "") -> str:
    return f"{count} {what if count == 1 else many or what + 's'}"
