"""The form of a manifest: what serving, verifying and timing read of it is of the kind that they expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Form: TypeAlias = "Callable[[Any], bool]"


def wrong_field(manifest: Mapping[str, Any]) -> str | None:
    """The first field that is missing or of a wrong kind, as a sentence names it; None when all are right."""
    for name, form in _NEEDED.items():
        if name not in manifest:
            return f"lacks '{name}'"
        if not form(manifest[name]):
            return f"has a wrong '{name}'"
    for name, form in _OPTIONAL.items():
        if name in manifest and not form(manifest[name]):
            return f"has a wrong '{name}'"
    return None


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _file(value: Any) -> bool:
    """The name of a file in the folder itself."""
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\\0")


def _or_none(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _list(form: Form) -> Form:
    return lambda value: isinstance(value, list) and all(map(form, value))


def _map(form: Form) -> Form:
    """JSON has no keys but text."""
    return lambda value: isinstance(value, dict) and all(map(form, value.values()))


def _fields(**forms: Form) -> Form:
    """An object that has these, and maybe others."""
    return lambda value: isinstance(value, dict) and all(form(value.get(name)) for name, form in forms.items())


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _files(value: Any) -> bool:
    facts = _fields(bytes=_size, sha256=_or_none(_text))
    return isinstance(value, dict) and all(map(_file, value)) and all(map(facts, value.values()))


def _dims(value: Any) -> bool:
    return _map(lambda bound: _size(bound) or bound == "free" or (_list(_size)(bound) and len(bound) == 2))(value)


_NEEDED: dict[str, Form] = {
    "name": _file,
    "model": _file,
    "library": _or_none(_file),
    "domain": _text,
    "ops": _list(_fields(op=_text)),
    "files": _files,
}
_OPTIONAL: dict[str, Form] = {
    "target": _text,
    "machine": _or_none(_text),
    "providers": _or_none(_list(_text)),
    "settings": _map(_text),
    "shared": _map(_text),
    "given_back": _list(_text),
    "rounded": _map(_text),
    "source": _or_none(_fields(path=_or_none(_text), sha256=_or_none(_text), graph=_or_none(_text))),
    "tuning": _fields(),
    "options": _fields(cache=_text, dims=_dims),
}
