"""Session settings of an artifact's custom ops: which there are and their defaults are in its manifest.

`weights` says where sessions read the weights: "mapped" reads them where ONNX Runtime mapped the file, "huge" copies
them once per process to 2 MB pages, "auto" lets the library decide: it copies where products have few rows and memory
is plenty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from ortisan.errors import OptionError

Weights: TypeAlias = Literal["auto", "mapped", "huge"]
AUTO: Weights = "auto"


def check_weights(weights: str) -> None:
    *others, last = map(repr, get_args(Weights))
    if weights not in get_args(Weights):
        raise OptionError(f"weights must be {', '.join(others)} or {last}, not {weights!r}")


def apply_settings(
    options: Any, ops: Iterable[str], defaults: Mapping[str, str], chosen: Mapping[str, str] | None = None
) -> None:
    """Puts settings into session options, before the library is registered in them.

    `defaults` are for ops that neither `chosen` nor the caller's own options speak of.
    """
    for op in ops:
        for name, default in defaults.items():
            key = setting_key(op, name)
            if chosen and name in chosen:
                options.add_session_config_entry(key, chosen[name])
            elif default != AUTO and not has_entry(options, key):
                options.add_session_config_entry(key, default)


def setting_key(op: str, name: str) -> str:
    """The session config entry of a setting."""
    return f"custom_op.{op}.{name}"


def has_entry(options: Any, key: str) -> bool:
    try:
        options.get_session_config_entry(key)
    except RuntimeError:
        return False
    return True
