"""A report as tables: on the screen, and in Markdown between two marks of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.peers import HUGE, ORT, OURS, PEERS
from benchmarks.results import Report, Result, Row
from ortisan.errors import OptionError

BEGIN = "<!-- figures: written by python -m benchmarks --markdown -->"
END = "<!-- end of figures -->"
_NOTHING = "-"
_FREE_CORES = 0.85


@dataclass(frozen=True)
class Grid:
    """A table without a form: the first column is text, the others are figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(report: Report) -> tuple[Grid, ...]:
    pages = _pages(report)
    return (_times(report), _ratios(report), *((pages,) if pages.rows else ()), _costs(report))


def _figure(value: float | None, digits: int = 3) -> str:
    """About `digits` significant digits, never an exponent."""
    if value is None:
        return _NOTHING
    decimals = next((place for place in range(digits) if abs(value) >= 10 ** (digits - 1 - place)), digits)
    return f"{value:.{decimals}f}"


def _ratio(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{100 * value:.0f} %"


def _each_row(report: Report) -> Iterable[tuple[Result, Row]]:
    return ((result, row) for result in report.results for row in result.rows)


def _times(report: Report) -> Grid:
    names = [name for name in PEERS if any(name in row.timed for _, row in _each_row(report))]
    others = [name for name in names if name not in (OURS, HUGE)]
    rows = []
    for result, row in _each_row(report):
        ours = row.timed[OURS]
        cells = [result.title, str(row.threads), _figure(ours.best), _figure(ours.median)]
        for name in others:
            timed = row.timed.get(name)
            cells.append(_NOTHING if timed is None else "wrong" if timed.problem else _figure(timed.best))
        rows.append((*cells, f"{ours.max_abs_error:.0e}"))
    header = ("workload", "threads", "Ortisan", "median", *(PEERS[name].title for name in others), "error")
    return Grid("Milliseconds per run, best of all runs", header, tuple(rows))


def _ratios(report: Report) -> Grid:
    rows = []
    for result, row in _each_row(report):
        best = row.best_peer
        rows.append(
            (
                result.title,
                str(row.threads),
                _ratio(row.ratio(ORT)),
                _ratio(row.ratio(ORT, median=True)),
                _ratio(row.ratio(best) if best else None),
                PEERS[best].title if best else _NOTHING,
                _figure(result.gflops(row)),
                _figure(result.gbytes(row)),
                _percent(report.share(result, row)),
            )
        )
    header = (
        "workload",
        "threads",
        "to ORT",
        "by medians",
        "to the best",
        "which is",
        "GFLOP/s",
        "GB/s",
        "of the limit",
    )
    return Grid("Times as fast", header, tuple(rows))


def _pages(report: Report) -> Grid:
    rows = []
    for result, row in _each_row(report):
        mapped, huge = row.timed[OURS], row.timed.get(HUGE)
        if huge is None:
            continue
        shares = (report.share(result, row, name) for name in (OURS, HUGE))
        rows.append(
            (
                result.title,
                str(row.threads),
                _figure(mapped.best),
                "wrong" if huge.problem else _figure(huge.best),
                _NOTHING if huge.problem else _ratio(mapped.best / huge.best),
                *map(_percent, shares),
            )
        )
    header = ("workload", "threads", "mapped ms", "huge ms", "gain", "of the limit", "huge")
    return Grid("Weights mapped, and copied to 2 MB pages", header, tuple(rows))


def _costs(report: Report) -> Grid:
    rows = []
    for result in report.results:
        loads = [result.load.get(name) for name in (OURS, HUGE, ORT)]
        rows.append(
            (
                result.title,
                *(_figure(load.ms if load else None) for load in loads),
                *(_figure(load.private_mb if load else None) for load in loads),
                _figure(result.build.cold),
                _figure(result.build.warm),
                _figure(result.build.library_bytes / 1e6),
            )
        )
    sessions = ("load ms", "huge", "ORT's", "private MB", "huge", "ORT's")
    header = ("workload", *sessions, "build s", "again s", ".so MB")
    return Grid("Loading and building", header, tuple(rows))


def notes(report: Report) -> list[str]:
    """The machine, the versions, and who is absent and why."""
    lines = [f"{report.machine}; " + ", ".join(f"{name} {version}" for name, version in report.versions.items())]
    for threads, limits in report.limits.items():
        huge = f", {limits.read_2m:.1f} GB/s from 2 MB pages" if limits.read_2m else ""
        huge += f", {limits.read_mapped:.1f} GB/s from a mapped file" if limits.read_mapped else ""
        lines.append(
            f"limits of {threads} thread{'' if threads == 1 else 's'}: {limits.gflops:.0f} GFLOP/s, "
            f"{limits.read_4k:.1f} GB/s read from 4 KB pages{huge}"
        )
    lines += _crowded(report)
    reasons = {(name, reason) for result in report.results for name, reason in result.absent.items()}
    for name, reason in sorted(reasons):
        titles = [result.title for result in report.results if result.absent.get(name) == reason]
        where = "everywhere" if len(titles) == len(report.results) else "in " + "; ".join(titles)
        lines.append(f"{PEERS[name].title} is absent {where}: {reason}")
    problems = {
        f"{PEERS[name].title} is wrong in {result.title}: {timed.problem}"
        for result, row in _each_row(report)
        for name, timed in row.timed.items()
        if timed.problem
    }
    return lines + sorted(problems)


def _crowded(report: Report) -> list[str]:
    """A warning for each number of threads that together do much less than one thread times their number."""
    one = report.limits.get(1)
    return [
        f"{threads} threads did only {limits.gflops / one.gflops:.2f} times the work of one: cores were busy or are "
        "not whole cores, so figures of that many threads mean little"
        for threads, limits in report.limits.items()
        if one is not None and limits.gflops < _FREE_CORES * threads * one.gflops
    ]


def show(report: Report, console: Console) -> None:
    for grid in grids(report):
        table = Table(box=SIMPLE_HEAD, title=grid.title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)
        for index, name in enumerate(grid.header):
            table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index == 0)
        for row in grid.rows:
            table.add_row(*map(escape, row))
        console.print(table)
    for line in notes(report):
        console.print(escape(line), highlight=False)


def markdown(report: Report, picture: str | None = None) -> str:
    """The tables and notes; `picture` is the address of the plot, as seen from the file."""
    parts = ["    " + report.command]
    parts += [f"- {line}" if number else line for number, line in enumerate(notes(report))]
    text = parts[0] + "\n\n" + parts[1] + "\n\n" + "\n".join(parts[2:])
    text += "".join(f"\n\n### {grid.title}\n\n{_pipe_table(grid)}" for grid in grids(report))
    return text + (f"\n\n![Times as fast as ONNX Runtime]({picture})" if picture else "")


def _pipe_table(grid: Grid) -> str:
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    lines: list[Sequence[str]] = [grid.header, rule, *grid.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def around_marks(file: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str]:
    """What stands before and behind the two marks of a file."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise OptionError(f"'{file}' lacks the lines '{begin}' and '{end}', between which the figures go")
    return before, after


def put_between_marks(file: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replaces what is between the two marks of a file."""
    before, after = around_marks(file, begin, end)
    file.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
