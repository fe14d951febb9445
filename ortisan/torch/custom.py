"""Torch ops that torch.onnx does not know: which ONNX function each becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ortisan.errors import OptionError

_mapped: dict[Callable[..., Any], Callable[..., Any]] = {}


def map_op(op: str | Callable[..., Any], function: Callable[..., Any]) -> None:
    """Exports a torch op as an ONNX function: `map_op("mylib::scale", scale)`.

    `op` is a name or an op of `torch.ops`, `function` an onnxscript function of the same arguments, annotated. Ops
    inside the function are compiled like any other. A second registration takes the place of the first.
    """
    if not callable(function):
        raise OptionError(f"the ONNX function of '{op}' must be a function, not {function!r}")
    signature = getattr(function, "op_signature", None)
    if signature is not None and not signature.outputs:
        raise OptionError(f"the ONNX function of '{op}' does not say what it returns; annotate its result")
    _mapped[find_op(op)] = function


def unmap_op(op: str | Callable[..., Any]) -> None:
    """Forgets what `map_op` was told."""
    _mapped.pop(find_op(op), None)


def find_op(op: str | Callable[..., Any]) -> Any:
    """The overload that is meant: the default one of a name or a packet."""
    if isinstance(op, str):
        space, _, name = op.replace("::", ".").partition(".")
        name, _, overload = name.partition(".")
        packet = getattr(getattr(torch.ops, space), name, None) if name else None
        if packet is None:
            raise OptionError(f"there is no torch op '{op}'; register it with torch.library first")
        return getattr(packet, overload or "default")
    if isinstance(op, torch._ops.OpOverloadPacket):
        return op.default
    if not isinstance(op, torch._ops.OpOverload):
        raise OptionError(f"expected the name of a torch op or an op of torch.ops, got {op!r}")
    return op


def translations() -> dict[Callable[..., Any], Callable[..., Any]] | None:
    return dict(_mapped) or None
