"""`python -m benchmarks.real_models`: fetches, builds, checks and times the models, and writes the page."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.machine import cpu_name
from benchmarks.real_models.catalog import Model, read_models
from benchmarks.real_models.fetch import fetch
from benchmarks.real_models.inputs import read_specs
from benchmarks.real_models.results import OPENVINO, OPENVINO_F32, Report, Result, read_report
from benchmarks.real_models.run import Plan, measure
from benchmarks.real_models.table import markdown, summary
from ortisan.runtime.manifest import plain

_PAGE = Path("docs/real-models.md")
_PACKAGES = ("ortisan", "onnxruntime", "openvino")
_BAD = ("failed", "died", "wrong")


def _chosen(only: str | None, models: tuple[Model, ...]) -> tuple[Model, ...]:
    if only is None:
        return models
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = sorted(set(names) - {model.name for model in models})
    if unknown:
        raise typer.BadParameter(f"there is no '{unknown[0]}' in models.tsv", param_hint="--only")
    return tuple(model for model in models if model.name in names)


def _merged(before: Iterable[Result], new: Mapping[str, Result], models: Iterable[Model]) -> tuple[Result, ...]:
    """The results in the order of the list: the new ones, and those of earlier runs."""
    known = {result.name: result for result in before} | dict(new)
    return tuple(known[model.name] for model in models if model.name in known)


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _PACKAGES if importlib.util.find_spec(name) is not None}


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    only: Annotated[str | None, typer.Option("--only", help="Names of models, with commas.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Build and check, time nothing.")] = False,
    skip_openvino: Annotated[bool, typer.Option("--skip-openvino", help="Time against ONNX Runtime only.")] = False,
    seconds: Annotated[float, typer.Option(help="How long to time each model and thread count.")] = 6.0,
    folder: Annotated[Path, typer.Option(help="Where models, inputs and results.json go.")] = Path("build/real-models"),
    page: Annotated[Path, typer.Option("--markdown", help="The page to write.")] = _PAGE,
) -> None:
    """Builds, checks and times real models with default options. Results of earlier runs in the folder are kept."""
    models, specs = read_models(), read_specs()
    chosen = _chosen(only, models)
    raw = folder / "results.json"
    before = read_report(json.loads(raw.read_text(encoding="utf-8"))).results if raw.exists() else ()
    missing = fetch(chosen, folder / "models", partial(_say, "fetching"))
    cores = len(os.sched_getaffinity(0))
    rivals = () if skip_openvino else (OPENVINO, OPENVINO_F32)
    plan = Plan(() if quick else tuple(sorted({1, cores})), rivals, seconds)
    new: dict[str, Result] = {}
    for number, model in enumerate(chosen, start=1):
        say = partial(_say, f"[{number}/{len(chosen)}] {model.name}")
        if model.name in missing:
            new[model.name] = Result(model.name, model.kind, None, problem=missing[model.name])
        else:
            new[model.name] = measure(model, specs[model.name], folder, plan, say)
        say(_line(new[model.name]))
        report = Report(cpu_name(), _versions(), _merged(before, new, models))
        raw.write_text(json.dumps(plain(report.to_json()), indent=1) + "\n", encoding="utf-8")
        page.write_text(markdown(report), encoding="utf-8")
    print("\n".join(summary(tuple(new.values()))))
    if any(result.outcome in _BAD for result in new.values()):
        raise typer.Exit(1)


def _say(at: str, step: str) -> None:
    print(f"{at}: {step}", flush=True)


def _line(result: Result) -> str:
    built = f"{result.built.seconds:.0f} s, {result.built.ops} ops" if result.built else ""
    ratios = " / ".join(f"{row.ratio() or 0:.2f}" for row in result.rows)
    return ", ".join(filter(None, (result.outcome, built, ratios, result.reason)))


if __name__ == "__main__":
    sys.exit(app())
