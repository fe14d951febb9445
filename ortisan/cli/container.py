"""build --in-container: the same command line, run by the Ortisan of an image."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import typer

from ortisan.codegen.backend import parse_target
from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.codegen.tools.container import ContainerCall, run_in_container
from ortisan.codegen.tools.toolchain import has_gpu
from ortisan.errors import OptionError
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.runtime.folder import check_replaceable

_OWN = frozenset({"in_container", "json"})


def build_in_container(context: typer.Context, image: str, target: str, on_progress: Callable[[str], None]) -> Artifact:
    """Builds with the options of the command in `context`, in a container of `image`."""
    options = context.params
    if options.get("verify") is not None:
        raise OptionError(
            f"--verify {options['verify']} can't be combined with --in-container, which hands back the artifact alone; "
            "build it there, then run 'ortisan verify DIR --emulate' here"
        )
    model, output = _place(options["model"]), _place(options["output"])
    check_replaceable(output)
    files = [_place(options[name]) for name in ("model", "inputs") if options.get(name)]
    read = [folder for file in files for folder in (file.parent, file.resolve().parent)]  # the file may be a link
    write = [output.parent, _place(cache_folder())]
    call = ContainerCall(
        image,
        ("build", str(model), *_arguments(context), "--json"),
        tuple(folder for folder in read if folder not in write),
        tuple(write),
        gpus=parse_target(target).uses_gpu and has_gpu(),
    )
    run_in_container(call, on_progress)
    return open_artifact(output)


def _arguments(context: typer.Context) -> list[str]:
    """The options that were given, with absolute paths."""
    words: list[str] = []
    for parameter in context.command.params:
        value, name = context.params.get(parameter.name or ""), parameter.opts[0]
        if parameter.name in _OWN or not name.startswith("-") or value in (None, (), [], parameter.default):
            continue
        if isinstance(value, bool):
            words.append(name)
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            words += [name, str(_place(item) if isinstance(item, Path) else item)]
    return words


def _place(path: str | Path) -> Path:
    """Absolute, and without "..", because a container has none of the folders beside those that are mounted."""
    return Path(os.path.abspath(path))
