"""Jinja -> C++. Contexts are frozen dataclasses; text from a model only gets in through `cpp_string`."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

TEMPLATES = Path(__file__).parent.parent / "templates"

_PLAIN = frozenset(b" !#$%&'()*+,-./0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~")


def cpp_string(text: str) -> str:
    """A C++ string literal with exactly this text, whatever it contains.

    Bytes that could end the literal or mean something to the compiler become three-digit octal escapes, which unlike
    hexadecimal ones can't swallow the character after them.
    """
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["cpp_string"] = cpp_string
    return environment


def render(template: str, context: Any, **more: Any) -> str:
    """Renders a template with the fields of a dataclass."""
    return _environment().get_template(template).render(**_fields(context), **more)


def render_text(text: str, context: Any, **more: Any) -> str:
    """Renders the text of a template, which may import those of the folder."""
    return _environment().from_string(text).render(**_fields(context), **more)


def _fields(context: Any) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}


def read_header(path: str) -> str:
    """A plain C++ file of the templates folder, as it is."""
    return (TEMPLATES / path).read_text(encoding="utf-8")


def plain_files(*folders: str) -> dict[str, str]:
    """The files of these folders of templates/ that are used as they are, name -> content.

    A source folder is flat: the names of all files that go into one must differ.
    """
    paths = sorted(path for folder in folders for path in (TEMPLATES / folder).iterdir())
    plain = (path for path in paths if path.suffix in (".h", ".cuh", ".cpp", ".cu", ".map"))
    return {path.name: path.read_text(encoding="utf-8") for path in plain}
