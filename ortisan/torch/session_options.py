"""What callers set of ONNX Runtime's sessions: their options and their execution providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ortisan.errors import OptionError
from ortisan.runtime.engine import onnxruntime, quiet_options


def check_session_options(given: Any) -> None:
    """Raises an `OptionError` unless these are options of a session, or a mapping of them."""
    if given is None or isinstance(given, onnxruntime().SessionOptions):
        return
    if not isinstance(given, Mapping):
        raise OptionError(f"session_options must be an onnxruntime.SessionOptions or a mapping, not {given!r}")
    make_session_options(given)


def make_session_options(given: Any) -> Any:
    """The caller's own options, or new ones: as many threads as torch uses now, no logs, and what a mapping says."""
    if given is not None and not isinstance(given, Mapping):
        return given
    options = quiet_options(threads=torch.get_num_threads())
    for name, value in (given or {}).items():
        _set(options, name, value)
    return options


def _set(options: Any, name: Any, value: Any) -> None:
    """A name with a dot is a config entry, any other one an attribute."""
    is_entry = isinstance(name, str) and "." in name
    if not is_entry and not isinstance(getattr(type(options), str(name), None), property):
        raise OptionError(f"session_options: onnxruntime.SessionOptions has no attribute {name!r}")
    try:
        if is_entry:
            options.add_session_config_entry(name, value)
        else:
            setattr(options, name, value)
    except (TypeError, AttributeError, RuntimeError) as error:
        raise OptionError(f"session_options: '{name}' can't be {value!r}") from error


def check_providers(given: tuple[Any, ...]) -> None:
    """Raises an `OptionError` unless ONNX Runtime has these providers, which are names, or names with their options."""
    known = onnxruntime().get_available_providers() if given else []
    for each in given:
        is_pair = isinstance(each, (tuple, list)) and len(each) == 2 and isinstance(each[1], Mapping)
        name = each[0] if is_pair else each
        if not isinstance(name, str):
            raise OptionError(f"providers must be names, or pairs of a name and a mapping of options, not {each!r}")
        if name not in known:
            raise OptionError(f"providers: this onnxruntime has no {name!r}; it has {', '.join(known)}")
