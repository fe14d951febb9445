"""Symbolic dims: clean names for the symbols of a model, and fixed values for those that the caller fixes.

A name that is not an identifier ("batch-size", "") would be read as an expression or not at all, so such symbols get a
clean name. Expressions of other input symbols ("past + seq") stay expressions. An unknown dim of a graph input gets a
symbol of its own: two unknowns are never assumed equal. What exporters write for an unknown dim ("?", -1) is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import onnx_ir as ir

from ortisan.errors import OptionError

Dim = int | ir.SymbolicDim
Bound: TypeAlias = int | tuple[int, int] | Literal["free"]
Bounds: TypeAlias = Mapping[str, Bound]
FREE: Literal["free"] = "free"
"""For a dim whose name inputs share though their sizes need not be equal."""

_MAX_NAME = 40
_ASCENDING = "ortisan.ascending"
_PLACEHOLDERS = frozenset({"?", "-1", "None"})


def declare_ascending(model: ir.Model, dims: Sequence[Dim]) -> None:
    """Records that each of these dims is at most as large as the next; the model fails otherwise."""
    model.metadata_props[_ASCENDING] = ",".join(map(str, dims))


def ascending(model: ir.Model) -> tuple[str, ...]:
    """Returns what `declare_ascending` recorded: names, or numbers for dims that were fixed since."""
    text = model.metadata_props.get(_ASCENDING, "")
    return tuple(text.split(",")) if text else ()


def name_symbols(model: ir.Model) -> dict[str, str]:
    """Cleans all symbols and names the unknown dims of graph inputs. Returns clean name -> name in the model."""
    _forget_placeholders(model)
    texts = {dim.value for value in _values(model) for dim in _symbolic(value) if dim.value is not None}
    plain = {text for text in texts if _is_clean(text)}
    input_symbols = {dim.value for value in model.graph.inputs for dim in _symbolic(value)} & plain
    originals: dict[str, str] = {text: text for text in sorted(plain)}
    renamed: dict[str, str] = {}
    for text in sorted(texts - plain - {""}):
        if not _is_expression_of(text, input_symbols):
            renamed[text] = fresh_symbol(text, originals)
            originals[renamed[text]] = text
    replace_symbols(model, lambda dim: ir.SymbolicDim(renamed.get(dim.value or "", dim.value or None)))
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        dims: list[Dim] = []
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, ir.SymbolicDim) and dim.value is None:
                name = fresh_symbol(f"{value.name}_dim{axis}", originals)
                originals[name] = name
                dims.append(ir.SymbolicDim(name))
            else:
                dims.append(dim)
        value.shape = ir.Shape(dims)
    return originals


def _forget_placeholders(model: ir.Model) -> None:
    for value in _values(model):
        if value.shape is not None and any(_is_placeholder(dim) for dim in value.shape):
            value.shape = ir.Shape([None if _is_placeholder(dim) else dim for dim in value.shape])


def _is_placeholder(dim: Dim) -> bool:
    return dim < 0 if isinstance(dim, int) else dim.value in _PLACEHOLDERS


def fix_dims(model: ir.Model, dims: Bounds, originals: Mapping[str, str]) -> int:
    """Replaces symbols by the fixed numbers of `dims`; ranges are only checked. Returns how many symbols were fixed.

    Symbols may be given by their name in the caller's model or by their clean name. Raises `OptionError`.
    """
    inputs = {name for value in model.graph.inputs for dim in _symbolic(value) for name in _free_symbols(dim)}
    clean = {originals.get(name, name): name for name in inputs} | {name: name for name in inputs}
    fixed: dict[str, int] = {}
    for name, bound in dims.items():
        if name not in clean:
            known = ", ".join(sorted(repr(originals.get(symbol, symbol)) for symbol in inputs)) or "none"
            raise OptionError(f"dims: the model has no symbolic dim '{name}'; its symbolic dims are: {known}")
        if isinstance(bound, tuple):
            _check_range(name, bound)
        elif isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0:
            fixed[clean[name]] = bound
        else:
            raise OptionError(f"dims: '{name}' must be a number >= 0, a range (low, high) or 'free', got {bound!r}")
    if fixed:
        replace_symbols(model, lambda dim: dim.evaluate(fixed) if _free_symbols(dim) & fixed.keys() else dim)
        if order := ascending(model):
            model.metadata_props[_ASCENDING] = ",".join(str(fixed.get(name, name)) for name in order)
    return len(fixed)


def _check_range(name: str, bound: tuple[int, ...]) -> None:
    numbers = all(isinstance(end, int) and not isinstance(end, bool) for end in bound)
    if len(bound) != 2 or not numbers or not 0 <= bound[0] <= bound[1]:
        raise OptionError(f"dims: the range of '{name}' must be (low, high) with 0 <= low <= high, got {bound!r}")


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def _symbolic(value: ir.Value) -> list[ir.SymbolicDim]:
    return [] if value.shape is None else [dim for dim in value.shape if isinstance(dim, ir.SymbolicDim)]


def replace_symbols(model: ir.Model, change: Callable[[ir.SymbolicDim], Dim]) -> None:
    """Changes the symbolic dims of all values."""
    for value in _values(model):
        if _symbolic(value) and value.shape is not None:
            value.shape = ir.Shape([change(dim) if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape])


def _is_clean(text: str) -> bool:
    return text.isidentifier() and text.isascii() and len(text) <= _MAX_NAME


def fresh_symbol(text: str, taken: Mapping[str, str]) -> str:
    """A clean name like `text` that is not taken."""
    stem = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:_MAX_NAME] or "dim"
    if stem[0].isdigit():
        stem = f"dim_{stem}"
    name, suffix = stem, 0
    while name in taken:
        suffix += 1
        name = f"{stem}_{suffix}"
    return name


def _free_symbols(dim: ir.SymbolicDim) -> frozenset[str]:
    return dim.free_symbols() if dim.value is not None else frozenset()


def _is_expression_of(text: str, symbols: set[str | None]) -> bool:
    try:
        names = ir.SymbolicDim(text).free_symbols()
    except ValueError:
        return False
    return bool(names) and names <= symbols
