"""The setting `weights`: where sessions read the weights of an artifact.

"mapped" reads them where ONNX Runtime mapped the file, "huge" copies them once per process to 2 MB pages, "auto" lets
the library decide: it copies where products have few rows and memory is plenty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, get_args

from ortisan.errors import OptionError

Weights: TypeAlias = Literal["auto", "mapped", "huge"]
AUTO: Weights = "auto"


def check_weights(weights: str) -> None:
    known = get_args(Weights)
    if weights not in known:
        raise OptionError(f"weights must be one of {', '.join(known)}, not {weights!r}")


def set_weights(options: Any, ops: Iterable[str], weights: str | None, default: str) -> None:
    """Puts the setting into session options, before the library is registered in them.

    `default` is for ops that neither `weights` nor the caller's own options speak of.
    """
    for op in ops:
        key = f"custom_op.{op}.weights"
        if weights is not None:
            options.add_session_config_entry(key, weights)
        elif default != AUTO and not _has_entry(options, key):
            options.add_session_config_entry(key, default)


def _has_entry(options: Any, key: str) -> bool:
    try:
        options.get_session_config_entry(key)
    except RuntimeError:
        return False
    return True
