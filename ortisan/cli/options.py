"""Options of the commands: those of `pipeline/options.py` as parameters, and the reading of their values."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from ortisan.errors import OptionError
from ortisan.pipeline.options import Options, flag_texts, option_names

if TYPE_CHECKING:  # the help is shown without the compiler behind it
    from ortisan.converter.read.symbols import Bound

Model: TypeAlias = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
Folder: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="An artifact folder.", show_default=False)]
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
Arch: TypeAlias = Annotated[
    str | None, typer.Option(metavar="80,90", help="GPU architectures, in place of --target cuda:80,90.")
]


def takes_options(*, of: str | None = None, **defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options `of` a step to a command. The command gets them read, as the mapping `chosen`.

    `defaults` replace those of the list.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        listed = [each for each in fields(Options) if each.name in option_names(of=of)]
        parameters = {_parameter_name(each): each for each in listed}
        texts = [each for each in listed if each.metadata["more"]]

        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            given = {each.name: _read(each, kwargs.pop(name)) for name, each in parameters.items()}
            for each in texts:
                given[each.name] = _read_text(each, given[each.name], kwargs.pop(each.name))
            given["target"] = read_target(given["target"], kwargs.pop("arch"))
            command(*args, chosen=given, **kwargs)

        own = inspect.signature(command)
        hints = get_type_hints(command, include_extras=True)
        generated = [_parameter(name, each, defaults) for name, each in parameters.items()]
        generated += [_text_parameter(each) for each in texts]
        generated.insert(1, inspect.Parameter("arch", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Arch))
        kept = [each.replace(annotation=hints[each.name]) for each in own.parameters.values() if each.name != "chosen"]
        positional = [each for each in kept if each.kind != each.KEYWORD_ONLY]
        required = [each for each in kept if each.kind == each.KEYWORD_ONLY and each.default is each.empty]
        others = [each for each in kept if each.kind == each.KEYWORD_ONLY and each.default is not each.empty]
        all_of_them = [*positional, *required, *generated, *others]
        run.__signature__ = own.replace(parameters=all_of_them)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in all_of_them}
        return run

    return decorate


def flag_of(each: Field[Any]) -> str:
    """How the command line spells an option; what is on by default is turned off."""
    if each.metadata["flag"]:
        return str(each.metadata["flag"])
    name = each.name.replace("_", "-")
    return f"--no-{name}" if each.default is True else f"--{name}"


def _parameter_name(each: Field[Any]) -> str:
    return flag_of(each).removeprefix("--").replace("-", "_")


def _parameter(name: str, each: Field[Any], defaults: Mapping[str, Any]) -> inspect.Parameter:
    metavar = None if each.metadata["form"] == "flag" else each.metadata["metavar"]
    shown = typer.Option(flag_of(each), help=each.metadata["help"], metavar=metavar)
    kinds: dict[str, Any] = {"flag": bool, "list": list[str] | None, "dims": list[str] | None, "between": str | None}
    kind = kinds.get(each.metadata["form"], str | None if each.default is None else str)
    default = False if each.metadata["form"] == "flag" else defaults.get(each.name, each.default)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _text_parameter(each: Field[Any]) -> inspect.Parameter:
    """The text that a flag can also be: --verify emulate beside --no-verify."""
    shown = typer.Option(f"--{each.name}", help=each.metadata["more"], metavar=each.metadata["metavar"])
    return inspect.Parameter(
        each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, shown]
    )


def _read_text(each: Field[Any], value: bool, text: str | None) -> bool | str:
    if text is None:
        return value
    if text not in flag_texts(each):
        raise OptionError(f"--{each.name} takes {' or '.join(flag_texts(each))}, not '{text}'")
    if value != each.default:
        raise OptionError(f"--{each.name} {text} can't be combined with {flag_of(each)}")
    return text


def _read(each: Field[Any], value: Any) -> Any:
    """A parameter's value as `Options` takes it."""
    form = each.metadata["form"]
    if form == "flag":
        return value != each.default
    if form == "dims":
        return read_dims(value)
    return read_between(value) if form == "between" else value or each.default


def read_target(target: str, arch: str | None) -> str:
    """The target that --target and --arch name together."""
    from ortisan.codegen.backend import BACKENDS

    if arch is None:
        return target
    kind = next(name for name, row in BACKENDS.items() if row.has_architectures)
    if target not in (Options.target, kind):
        raise OptionError(f"--arch {arch} can't be combined with --target {target}; write --target {kind}:{arch}")
    return f"{kind}:{arch}"


def read_dims(texts: Sequence[str] | None) -> dict[str, Bound]:
    """{"batch": 1, "seq": (1, 512), "width": "free"} of "batch=1", "seq=1:512" and "width=free"."""
    dims: dict[str, Bound] = {}
    for text in texts or ():
        match = re.fullmatch(r"(.+)=(?:(free)|(\d+)(?::(\d+))?)", text.strip())
        if match is None:
            raise OptionError(
                f"--dim '{text}' is not of the form NAME=N, NAME=LOW:HIGH or NAME=free, as in batch=1 or seq=1:512"
            )
        name, free, low, high = match.groups()
        if free:
            dims[name] = "free"
            continue
        if high is None and int(low) == 0:
            warnings.warn(f"--dim {text}: what has this dim has no elements.", stacklevel=2)
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
