"""`python -m benchmarks`: times every workload against the other runtimes and prints what came out."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import layers, plot, tables
from benchmarks.machine import Machine, cpu_name
from benchmarks.measure import Plan, measure
from benchmarks.peers import HUGE, ORT, OURS, PEERS, RIVALS, versions
from benchmarks.results import Report, read_report
from benchmarks.timing import Effort
from benchmarks.workloads import WORKLOADS, Workload
from ortisan.errors import OrtisanError
from ortisan.runtime.manifest import plain

_QUICK_RIVALS = (ORT, "openvino")
_FULL = Effort(seconds=40.0, rounds=8)
_QUICK = Effort(seconds=2.5, rounds=2)
_SCREEN = 100


def _names(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The names of a comma-separated option, in the order of `known`; all of them when it was not given."""
    if text is None:
        return known
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in known:
            raise typer.BadParameter(f"there is no '{name}'; the choice is: {', '.join(known)}", param_hint=option)
    return tuple(name for name in known if name in chosen)


def _thread_counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return tuple(sorted({1, min(2, len(os.sched_getaffinity(0)))}))
    try:
        counts = sorted({int(number) for number in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise typer.BadParameter("expected numbers like 1,2", param_hint="--threads")
    return tuple(counts)


def _workloads(only: str | None, quick: bool) -> list[Workload]:
    chosen = _names(only, tuple(workload.name for workload in WORKLOADS), "--only")
    return [w for w in WORKLOADS if w.name in chosen and (w.quick or not quick or only is not None)]


def run_all(workloads: list[Workload], plan: Plan, console: Console) -> Report:
    """Measures the workloads, with the machine's limits before each and at the end."""
    results = []
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="ortisan-bench-") as folder, console.status("measuring the machine") as at:
        machine = Machine(Path(folder), plan.threads)
        for workload in workloads:
            machine.measure()

            def say(step: str, title: str = workload.title) -> None:
                at.update(f"{title}: {step}")

            results.append(measure(workload, Path(folder), plan, say))
        machine.measure()
        return Report(command, cpu_name(), versions(plan.peers), machine.limits, tuple(results))


def show_layers(workloads: list[Workload], plan: Plan, console: Console) -> None:
    """Prints what each layer takes, with the first number of threads."""
    threads, seconds = plan.threads[0], plan.effort.seconds / plan.effort.rounds
    for workload in workloads:
        with tempfile.TemporaryDirectory(prefix="ortisan-bench-") as name, console.status(workload.title):
            machine = Machine(Path(name), (threads,))
            machine.measure()
            found = layers.measure_layers(workload, Path(name), threads, seconds)
            machine.measure()
        console.print(layers.table(workload.title, found, machine.limits[threads].gflops))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Under two minutes: fewer workloads, peers and runs.")] = False,
    only: Annotated[str | None, typer.Option("--only", help="Names of workloads, with commas.")] = None,
    peers: Annotated[str | None, typer.Option("--peers", help="Names of runtimes, with commas.")] = None,
    threads: Annotated[str | None, typer.Option("--threads", help="Numbers of threads; 1,2 by default.")] = None,
    by_layer: Annotated[
        bool, typer.Option("--layers", help="Time the layers of convolutional networks instead.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(help="How long to time each workload and thread count.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw them to this .png, and an .svg.")] = None,
    page: Annotated[Path | None, typer.Option("--markdown", help="Put the tables into this file.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="Measure nothing, take this JSON file.")] = None,
) -> None:
    """Times Ortisan against other runtimes: all workloads, in turns, in one process."""
    if picture is not None and importlib.util.find_spec("matplotlib") is None:
        raise typer.BadParameter("matplotlib is not installed; pip install 'ortisan[bench]'", param_hint="--plot")
    # Whatever keeps the figures from being written is said before they are measured.
    for file in filter(None, (output, picture)):
        file.parent.mkdir(parents=True, exist_ok=True)
    if page is not None:
        tables.around_marks(page)
    console = Console() if sys.stdout.isatty() else Console(width=_SCREEN)
    if source is not None:
        report = read_report(json.loads(source.read_text(encoding="utf-8")))
    else:
        rivals = _names(peers, tuple(PEERS), "--peers") if peers else (_QUICK_RIVALS if quick else (HUGE, *RIVALS))
        plan = Plan(
            (OURS, *(name for name in rivals if name != OURS)),
            _thread_counts(threads),
            Effort(seconds or (_QUICK if quick else _FULL).seconds, (_QUICK if quick else _FULL).rounds),
            loads=1 if quick else 3,
            cold_builds=not quick,
        )
        if by_layer:
            chosen = [workload for workload in _workloads(only, quick=False) if workload.convolutional]
            if not chosen:
                raise typer.BadParameter("none of these workloads is a convolutional network", param_hint="--only")
            show_layers(chosen, plan, console)
            raise typer.Exit
        report = run_all(_workloads(only, quick), plan, console)
    if output is not None:
        output.write_text(json.dumps(plain(report.to_json()), indent=1) + "\n", encoding="utf-8")
    tables.show(report, console)
    drawn = plot.draw(report, picture)[1] if picture is not None else None
    if page is not None:
        address = os.path.relpath(drawn, page.parent) if drawn else None
        tables.put_between_marks(page, tables.markdown(report, address))
    for line in report.wrong:
        console.print(f"wrong: {line}", style="red", markup=False)
    if report.wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    try:
        app()
    except OrtisanError as error:
        sys.exit(f"error: {error}")
