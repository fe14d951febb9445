"""The commands."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ortisan._version import __version__
from ortisan.cli import options, reports
from ortisan.cli.cache import cache_app
from ortisan.cli.screen import phases, say, write_json
from ortisan.cli.tidy import INTERRUPTED, tidy
from ortisan.errors import ArtifactError

_TERMINATED = 143
_WIDTH = 80

app = typer.Typer(
    name="ortisan",
    help="Compile ONNX graphs into native ONNX Runtime custom ops.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH},
)
app.add_typer(cache_app, name="cache")


def main() -> int:
    """Runs the tool on the process' arguments; the exit code is 0, 1 (an error), 2 (bad usage), 130 (interrupted)."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="ortisan")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0


def _terminate(signum: int, frame: Any) -> None:
    """Ends as an interrupt does, so that nothing half-made stays behind."""
    raise SystemExit(_TERMINATED)


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
def build(
    context: typer.Context,
    model: options.Model,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The artifact folder to write.")],
    target: options.Target = "cpu",
    arch: options.Arch = None,
    dim: options.Dim = None,
    include: options.Include = None,
    exclude: options.Exclude = None,
    between: options.Between = None,
    whole_graph: options.WholeGraph = False,
    cache: options.Cache = "as-is",
    precision: options.Precision = "keep",
    tf32: options.Tf32 = False,
    fast_math: options.FastMath = False,
    keep: Annotated[
        str, typer.Option(metavar="faster|all", help="faster: give back to ONNX Runtime what it runs faster.")
    ] = "faster",
    weights: options.Weights = "auto",
    name: options.Name = None,
    tune: Annotated[
        str, typer.Option(metavar="auto|off|full", help="Autotune matrix-product blocking: few candidates, none, many.")
    ] = "auto",
    inputs: options.Inputs = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Don't compare with ONNX Runtime.")] = False,
    sources_only: Annotated[bool, typer.Option("--sources-only", help="Write the sources, build nothing.")] = False,
    in_container: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Let the Ortisan of a container image do it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compile a model into an artifact folder, verify it and time it."""
    import ortisan
    from ortisan.cli.container import build_in_container

    chosen = options.selection(dim, include, exclude, between, whole_graph)
    target = options.read_target(target, arch)
    with phases(json) as phase:
        artifact = (
            build_in_container(context, in_container, phase)
            if in_container is not None
            else ortisan.build(
                model,
                output,
                target=target,
                precision=precision,  # type: ignore[arg-type]  # build checks it
                tf32=tf32,
                fast_math=fast_math,
                cache=cache,  # type: ignore[arg-type]  # build checks it
                keep=keep,  # type: ignore[arg-type]  # build checks it
                weights=weights,  # type: ignore[arg-type]  # build checks it
                name=name,
                tune=tune,  # type: ignore[arg-type]  # build checks it
                inputs=inputs,
                verify=not no_verify,
                sources_only=sources_only,
                on_progress=phase,
                **chosen,
            )
        )
    if json:
        write_json({"folder": str(artifact.folder), **artifact.manifest})
    else:
        reports.show_artifact(artifact)


@app.command()
@tidy
def inspect(
    model: options.Model,
    *,
    target: options.Target = "cpu",
    arch: options.Arch = None,
    dim: options.Dim = None,
    include: options.Include = None,
    exclude: options.Exclude = None,
    between: options.Between = None,
    whole_graph: options.WholeGraph = False,
    cache: options.Cache = "as-is",
    precision: options.Precision = "keep",
    explain: Annotated[bool, typer.Option("--explain", help="Also say why near matches of patterns failed.")] = False,
    json: options.Json = False,
) -> None:
    """Show what would be compiled, what not and why. Builds nothing."""
    from ortisan.pipeline.inspect import inspect_model

    chosen = options.selection(dim, include, exclude, between, whole_graph)
    with phases(json) as phase:
        inspection = inspect_model(
            model,
            target=options.read_target(target, arch),
            cache=cache,
            precision=precision,
            on_progress=phase,
            **chosen,
        )
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
    per_node: Annotated[bool, typer.Option("--per-node", help="Name the first value that departs.")] = False,
    json: options.Json = False,
) -> None:
    """Compare an artifact with ONNX Runtime. Exits with 1 when they disagree."""
    from ortisan.pipeline import check as examine

    with phases(json) as phase:
        phase("verifying against ONNX Runtime")
        checked = examine.verify(folder, model=model, inputs=inputs, per_node=per_node)
    if json:
        found = checked.departure.to_json() if checked.departure else None
        write_json({**checked.verification.to_json(), "departure": found})
    else:
        reports.show_verification(checked.verification)
        if per_node:
            say(f"First departure: {checked.departure or 'none'}")
    checked.verification.check()


@app.command()
@tidy
def bench(
    folder: options.Folder,
    *,
    against: Annotated[str, typer.Option(metavar="ort", help="What to time against.")] = "ort",
    threads: Annotated[int | None, typer.Option(help="Threads inside an op; all cores if not given.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each side; two seconds' worth if not given.")] = None,
    weights: options.Weights = None,
    model: options.SourceModel = None,
    inputs: options.Inputs = None,
    json: options.Json = False,
) -> None:
    """Time an artifact against stock ONNX Runtime, run by run in turn."""
    from ortisan.pipeline import check as examine

    with phases(json) as phase:
        phase("timing against ONNX Runtime")
        result = examine.bench(
            folder,
            model=model,
            inputs=inputs,
            threads=threads,
            runs=runs,
            weights=weights,  # type: ignore[arg-type]  # bench checks it
            against=against,
        )
    if json:
        write_json(result.to_json())
    else:
        reports.show_benches([result])


@app.command()
@tidy
def doctor(json: options.Json = False) -> None:
    """Show what is installed, what is missing and how to get it."""
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
