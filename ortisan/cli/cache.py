"""`ortisan cache`: what is remembered on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ortisan.cli import options
from ortisan.cli.screen import out, plural, row, say, table, write_json
from ortisan.cli.tidy import tidy

cache_app = typer.Typer(help="Show or clear what is remembered on this machine.", no_args_is_help=True)

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@cache_app.command("ls")
@tidy
def list_caches(json: options.Json = False) -> None:
    """Show how much is remembered: builds, tuned matrix-product blockings, and what the PyTorch front built."""
    from ortisan.pipeline.caches import read_caches

    caches = read_caches()
    if json:
        write_json(caches.to_json())
        return
    lines = table("", "entries", "size", "oldest", "newest", right=(1, 2))
    for name, section in caches.sections.items():
        row(lines, name, section.entries, _size(section.bytes), _age(section.oldest), _age(section.newest))
    out().print(lines)
    say(f"in {caches.folder}")


@cache_app.command("clear")
@tidy
def clear(
    builds: Annotated[bool, typer.Option("--builds", help="Clear the finished builds only.")] = False,
    tuning: Annotated[bool, typer.Option("--tuning", help="Clear the tuned matrix-product blockings only.")] = False,
    torch: Annotated[bool, typer.Option("--torch", help="Clear the artifacts of the PyTorch front only.")] = False,
    json: options.Json = False,
) -> None:
    """Forget finished builds, tuned matrix-product blockings and what the PyTorch front built, or some of it."""
    from ortisan.pipeline.caches import clear_caches

    all_of_it = not (builds or tuning or torch)
    removed = clear_caches(builds=builds or all_of_it, tuning=tuning or all_of_it, torch=torch or all_of_it)
    if json:
        write_json({"removed": removed})
        return
    words = {"builds": "finished build", "tuning": "tuned size", "torch": "artifact"}
    *others, last = (plural(count, words[name]) for name, count in removed.items())
    say(f"Removed {', '.join(others)} and {last}." if others else f"Removed {last}.")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.0f} kB"


def _age(made: float | None) -> str:
    if made is None:
        return "-"
    seconds = max(0, int(time.time() - made))
    length, unit = next(((length, unit) for length, unit in _UNITS if seconds >= length), (1, "second"))
    return f"{plural(seconds // length, unit)} ago"
