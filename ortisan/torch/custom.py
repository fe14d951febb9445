"""Maps torch ops that torch.onnx does not know to ONNX functions or C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ortisan.errors import OptionError
from ortisan.torch.graph import changed_argument
from ortisan.torch.snippet import translate_to_cpp
from ortisan.torch.translations import all_translations

_mapped: dict[Callable[..., Any], Callable[..., Any]] = {}


def map_op(
    op: str | Callable[..., Any],
    function: Callable[..., Any] | None = None,
    *,
    cpp: str | None = None,
    reference: Callable[..., Any] | None = None,
) -> None:
    """Exports a torch op as an ONNX function, `map_op("mylib::scale", scale)`, or as C++, `map_op(..., cpp="x * y")`.

    `op` is a name or an op of `torch.ops`. A second registration takes the place of the first.

    `function` is an onnxscript function of the same arguments, annotated. Ops inside it are compiled like any other.

    `cpp` computes one element of an elementwise op: an expression of the op's arguments, by their names, or statements
    that return one. Tensors and numbers are of type T, which is float or double. `reference` is the same on numpy
    arrays of float64; when it is not given, the op itself is called, on the CPU.
    """
    if (function is None) == (cpp is None):
        raise OptionError(f"'{op}' needs an ONNX function or cpp=, and not both")
    if cpp is not None:
        found = find_op(op)
        _mapped[found] = translate_to_cpp(found, cpp, reference)
        return
    if reference is not None:
        raise OptionError(f"reference= of '{op}' only applies to cpp=; an ONNX function is its own reference")
    if not callable(function):
        raise OptionError(f"the ONNX function of '{op}' must be a function, not {function!r}")
    signature = getattr(function, "op_signature", None)
    if signature is not None and not signature.outputs:
        raise OptionError(f"the ONNX function of '{op}' does not say what it returns; annotate its result")
    found = find_op(op)
    if (changed := changed_argument(found)) is not None:
        raise OptionError(
            f"'{op}' changes its argument '{changed}' in place, which an ONNX function can't; map an op that returns "
            "the new value"
        )
    _mapped[found] = function


def unmap_op(op: str | Callable[..., Any]) -> None:
    """Removes a mapping made by `map_op`."""
    _mapped.pop(find_op(op), None)


def find_op(op: str | Callable[..., Any]) -> Any:
    """Resolves an op; a name or a packet stands for its default overload."""
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


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The translation table for torch.onnx: all mapped ops and our own."""
    return {**all_translations(), **_mapped}
