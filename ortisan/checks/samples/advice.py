"""What to tell a person when the samples don't fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ortisan.checks.samples.shapes import extents, symbols_of

_MOST_INPUTS = 12
_MOST_TRIED = 12
_EXAMPLE_SIZE = 64


def how_to_give_inputs(
    inputs: Sequence[ir.Value],
    tried: Sequence[str],
    message: str,
    names: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> str:
    """What was tried and why the last of it failed, what the inputs are, and the ways out: to fix a dim, the lines that
    make a file of inputs, or no comparison at all.

    `tried` are the labels of attempts, `message` is what ONNX Runtime said to the last one; `names` maps symbols to the
    names that the caller knows, `sizes` to sizes for the examples.
    """
    names, sizes = names or {}, sizes or dict.fromkeys(symbols_of(inputs), _EXAMPLE_SIZE)
    labels = list(dict.fromkeys(tried))
    more = f" and {len(labels) - _MOST_TRIED} more" if len(labels) > _MOST_TRIED else ""
    lines = [
        f"ONNX Runtime itself runs the model on none of the sample inputs{f' ({message})' if message else ''}; tried: "
        f"{'; '.join(labels[:_MOST_TRIED]) or 'nothing'}{more}.",
        "The inputs are:",
        *(f"    {value.name}: {_type(value, names)}" for value in inputs[:_MOST_INPUTS]),
    ]
    if len(inputs) > _MOST_INPUTS:
        lines.append(f"    and {len(inputs) - _MOST_INPUTS} more")
    if symbols := symbols_of(inputs):
        longest = max(symbols, key=lambda name: sizes.get(name, _EXAMPLE_SIZE))
        name, size = names.get(longest, longest), sizes.get(longest, _EXAMPLE_SIZE)
        lines.append(f"If one size of a dim is enough, fix it: --dim {name}={size}, or dims={{{name!r}: {size}}}.")
    lines += ["Else give inputs in sizes that the model takes (--inputs inputs.npz, or inputs=):", *_npz(inputs, sizes)]
    lines.append("Or build without comparing: --no-verify --keep all, or verify=False, keep='all'.")
    return "\n".join(lines)


def _type(value: ir.Value, names: Mapping[str, str]) -> str:
    if not isinstance(value.type, ir.TensorType):
        return str(value.type)
    if value.shape is None:
        return f"{value.type.dtype.name.lower()} of unknown rank"
    dims = ", ".join(str(dim) if isinstance(dim, int) else names.get(str(dim), str(dim)) for dim in value.shape)
    return f"{value.type.dtype.name.lower()}[{dims}]"


def _npz(inputs: Sequence[ir.Value], sizes: Mapping[str, int]) -> list[str]:
    """Python that writes a file with an array for each input; names that are no identifiers need a dict."""
    arrays = [(value.name or "", _zeros(value, sizes)) for value in inputs]
    if all(name.isidentifier() and name != "file" for name, _ in arrays):
        listed = ", ".join(f"{name}={zeros}" for name, zeros in arrays)
    else:
        listed = "**{" + ", ".join(f"{name!r}: {zeros}" for name, zeros in arrays) + "}"
    return ["    import numpy as np", f'    np.savez("inputs.npz", {listed})']


def _zeros(value: ir.Value, sizes: Mapping[str, int]) -> str:
    shape = extents(value, sizes) if value.shape is not None else (1,)
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return f'np.full({shape}, "text")'
    return f"np.zeros({shape}, np.{value.dtype.numpy().name})"
