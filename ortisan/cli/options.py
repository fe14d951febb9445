"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from ortisan.errors import OptionError

Model: TypeAlias = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
Folder: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="An artifact folder.", show_default=False)]
Target: TypeAlias = Annotated[
    str, typer.Option(help="cpu, cpu:LEVEL for another machine (x86-64-v3, aarch64, ...), or cuda:80 for GPUs.")
]
Arch: TypeAlias = Annotated[
    str | None, typer.Option(metavar="80,90", help="GPU architectures, in place of --target cuda:80,90.")
]
Precision: TypeAlias = Annotated[
    str, typer.Option(metavar="keep|fp16", help="GPUs: fp16 computes float32 models in float16.")
]
Tf32: TypeAlias = Annotated[bool, typer.Option("--tf32", help="GPUs: products may round to TF32.")]
FastMath: TypeAlias = Annotated[bool, typer.Option("--fast-math", help="GPUs: functions may be approximate.")]
Dim: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NAME=N|LOW:HIGH", help="Fix or bound a symbolic dim: batch=1, seq=1:512.")
]
Include: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE|OP", help="Compile these nodes or op types only; layer_ann:PREFIX too."),
]
Exclude: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NODE|OP", help="Leave these nodes or op types alone.")
]
Between: TypeAlias = Annotated[
    str | None, typer.Option(metavar="IN,..:OUT,..", help="Compile what lies between these values only.")
]
WholeGraph: TypeAlias = Annotated[bool, typer.Option("--whole-graph", help="Compile everything, or say what can't be.")]
Cache: TypeAlias = Annotated[
    str, typer.Option(metavar="as-is|in-place", help="in-place: a decoder's past and present are one buffer.")
]
Name: TypeAlias = Annotated[str | None, typer.Option(help="Name of the op and of the files; the model's if not given.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
SourceModel: TypeAlias = Annotated[
    Path | None, typer.Option("--model", metavar="FILE", help="The model it was built from, if that has moved.")
]
Inputs: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE.npz", help="Inputs to use in place of samples: one array per input.")
]
Weights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="auto|mapped|huge", help="huge: copy weights to 2 MB pages, once per process; auto: where that pays."
    ),
]


def read_target(target: str, arch: str | None) -> str:
    """The target that --target and --arch name together."""
    if arch is None:
        return target
    if target not in ("cpu", "cuda"):
        raise OptionError(f"--arch {arch} can't be combined with --target {target}; write --target cuda:{arch}")
    return f"cuda:{arch}"


def read_dims(texts: Sequence[str] | None) -> dict[str, int | tuple[int, int]]:
    """{"batch": 1, "seq": (1, 512)} of "batch=1" and "seq=1:512"."""
    dims: dict[str, int | tuple[int, int]] = {}
    for text in texts or ():
        match = re.fullmatch(r"(.+)=(\d+)(?::(\d+))?", text.strip())
        if match is None:
            raise OptionError(f"--dim '{text}' is not of the form NAME=N or NAME=LOW:HIGH, as in batch=1 or seq=1:512")
        name, low, high = match.groups()
        dims[name] = int(low) if high is None else (int(low), int(high))
    return dims


def read_between(text: str | None) -> tuple[list[str], list[str]] | None:
    """Names of values on both sides of the colon; "::" is part of a name, as exporters write it."""
    if text is None:
        return None
    sides = re.split(r"(?<!:):(?!:)", text)
    names = [[name.strip() for name in side.split(",") if name.strip()] for side in sides]
    if len(names) != 2 or not all(names):
        raise OptionError(f"--between '{text}' is not of the form IN,IN:OUT,OUT with names of values")
    return names[0], names[1]


def selection(
    dim: list[str] | None, include: list[str] | None, exclude: list[str] | None, between: str | None, whole_graph: bool
) -> dict[str, Any]:
    """The keywords of `compile` that say what to compile."""
    return {
        "dims": read_dims(dim),
        "include": include or None,
        "exclude": exclude or None,
        "between": read_between(between),
        "whole_graph": whole_graph,
    }
