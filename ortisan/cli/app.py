"""The commands."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ortisan._version import __version__
from ortisan.cli import options
from ortisan.cli.cache import cache_app
from ortisan.cli.interrupts import INTERRUPTED, end_work, handle_signals
from ortisan.cli.screen import phases, say, write_json
from ortisan.cli.sizes import Sizes, check_alone, read_sizes
from ortisan.cli.tidy import fail, tidy
from ortisan.errors import ArtifactError, VerifyError

_WIDTH = 80

app = typer.Typer(
    name="ortisan",
    help="Compile ONNX graphs into native ONNX Runtime custom ops.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH},
)
app.add_typer(cache_app, name="cache")


def run() -> int:
    """Runs the tool on the process' arguments and gives the exit code."""
    handle_signals()
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is for programmers
    try:
        app(prog_name="ortisan")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    finally:
        end_work()
    return 0


def _version(asked: bool) -> None:
    if asked:
        say(f"ortisan {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Compile ONNX graphs into native ONNX Runtime custom ops."""


@app.command()
@tidy
@options.takes_options()
def build(
    context: typer.Context,
    model: options.Model,
    *,
    chosen: dict[str, Any],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The artifact folder to write.")],
    inputs: options.Inputs = None,
    in_container: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Let the Ortisan of a container image do it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compile a model into an artifact folder, verify it and time it."""
    import ortisan
    from ortisan.cli import reports
    from ortisan.cli.container import build_in_container

    with phases(json) as phase:
        if in_container is not None:
            artifact = build_in_container(context, in_container, chosen["target"], phase)
        else:
            artifact = ortisan.build(model, output, inputs=inputs, on_progress=phase, **chosen)
    if json:
        write_json({"folder": str(artifact.folder), **artifact.manifest})
    else:
        reports.show_artifact(artifact)


@app.command()
@tidy
@options.takes_options(of="compile", tune="off")
def inspect(
    model: options.Model,
    *,
    chosen: dict[str, Any],
    explain: Annotated[bool, typer.Option("--explain", help="Also say why near matches of patterns failed.")] = False,
    json: options.Json = False,
) -> None:
    """Show what would be compiled, what not and why. Builds nothing."""
    import ortisan
    from ortisan.cli import reports

    with phases(json) as phase:
        inspection = ortisan.inspect(model, on_progress=phase, **chosen)
    if json:
        write_json(inspection.to_json())
    else:
        reports.show_inspection(inspection, explain=explain)


@app.command()
@tidy
def verify(
    folder: options.Folder,
    *,
    model: options.SourceModel = None,
    inputs: options.Inputs = None,
    dim: Sizes = None,
    per_node: Annotated[bool, typer.Option("--per-node", help="Name the first value that departs.")] = False,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Run the kernels of a GPU target on the CPU, from their PTX.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Compare an artifact with ONNX Runtime. Exits with 1 when they disagree."""
    from ortisan.cli import checks, figures

    check_alone(dim, inputs)
    with phases(json) as phase:
        phase("verifying against ONNX Runtime")
        given = {"model": model, "inputs": inputs, "per_node": per_node, "emulate": emulate, "on_progress": phase}
        checked, compiled = checks.verify_at(folder, read_sizes(dim), **given)
    if not json:
        figures.show_verification(checked.verification, compiled=compiled)
        figures.show_work(checked.verification.work)
        if per_node:
            say(f"First departure: {checked.departure or 'none'}")
    try:
        checked.verification.check()
    except VerifyError as error:
        fail(error, as_json=json, more=checked.to_json())
    if json:
        write_json(checked.to_json())


@app.command()
@tidy
def bench(
    folder: options.Folder,
    *,
    against: Annotated[str, typer.Option(metavar="ort", help="What to time against.")] = "ort",
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads inside an op; all cores if not given.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(metavar="N", help="Runs of each side; two seconds' worth if not given.")
    ] = None,
    weights: options.Weights = None,
    model: options.SourceModel = None,
    inputs: options.Inputs = None,
    dim: Sizes = None,
    json: options.Json = False,
) -> None:
    """Time an artifact against stock ONNX Runtime, run by run in turn."""
    from ortisan.cli import checks, figures

    check_alone(dim, inputs)
    given = {"threads": threads, "runs": runs, "weights": weights, "against": against}
    with phases(json) as phase:
        results = checks.bench_at(folder, read_sizes(dim), phase, model=model, inputs=inputs, **given)
    if json:
        listed = [result.to_json() for result in results]
        write_json(listed[0] if len(listed) == 1 else listed)
    else:
        figures.show_benches(results)


@app.command()
@tidy
def doctor(json: options.Json = False) -> None:
    """Show what is installed, what is missing and how to get it."""
    from ortisan.cli import reports
    from ortisan.cli.doctor import examine_machine

    findings = examine_machine()
    if json:
        write_json([vars(finding) for finding in findings])
    else:
        reports.show_findings(findings)
    if any(finding.state == "missing" for finding in findings):
        raise SystemExit(1)


@app.command()
@tidy
def demo(
    small: Annotated[bool, typer.Option("--small", help="Two narrow layers: a quick look.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")] = Path("build/demo"),
    json: options.Json = False,
) -> None:
    """Make a BERT encoder, compile it, verify it and time it."""
    from ortisan.cli import reports
    from ortisan.cli.demo import run_demo

    with tempfile.TemporaryDirectory(prefix="ortisan-demo-") as spare:
        folder = output if _writable(output) else Path(spare)
        with phases(json) as phase:
            result = run_demo(folder, small=small, on_progress=phase)
        if json:
            write_json(result.to_json())
        else:
            reports.show_demo(result, kept=folder == output)


def _writable(folder: Path) -> bool:
    from ortisan.runtime.folder import check_replaceable

    try:
        check_replaceable(folder / "bert")
    except ArtifactError:
        return False
    return True
