"""Names the tensors in a call's arguments and chooses which of their dims stay symbolic."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from ortisan.errors import OptionError
from ortisan.torch.tree import leaves_with_names

Dynamic: TypeAlias = "bool | Mapping[str, Mapping[int, str]]"


def argument_names(module: nn.Module, args: Any, kwargs: Any) -> tuple[str, ...]:
    """Names each tensor by its argument and its place in it."""
    return tuple(name for name, leaf in named_leaves(module, args, kwargs) if isinstance(leaf, torch.Tensor))


def named_leaves(module: nn.Module, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    words: list[str] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind == parameter.VAR_POSITIONAL:
            words += [f"{parameter.name}_{index}" for index in range(len(args) - len(words))]
        else:
            words.append(parameter.name)
    named = {words[index] if index < len(words) else f"arg{index}": value for index, value in enumerate(args)}
    return list(leaves_with_names((), {**named, **kwargs}))


def check_dynamic(dynamic: Any) -> Dynamic:
    """Refuses what is neither a bool nor dims by argument; torch's own `Dim` stands for its name."""
    if isinstance(dynamic, bool):
        return dynamic
    expected = "dynamic must be True, False, or a mapping such as {'x': {0: 'batch'}}"
    if not isinstance(dynamic, Mapping):
        raise OptionError(f"{expected}, not {dynamic!r}")
    checked: dict[str, dict[int, str]] = {}
    for name, axes in dynamic.items():
        if not isinstance(name, str) or not isinstance(axes, Mapping):
            raise OptionError(f"{expected}, and '{name}' has {axes!r}")
        words: dict[Any, Any] = {axis: getattr(word, "__name__", word) for axis, word in axes.items()}
        for axis, word in words.items():
            if isinstance(axis, bool) or not isinstance(axis, int) or not isinstance(word, str) or not word:
                raise OptionError(f"{expected}, and '{name}' has {axis!r}: {word!r}")
        checked[name] = words
    return checked


def symbolic_axes(
    names: Sequence[str], tensors: Sequence[torch.Tensor], dynamic: Dynamic, bounds: Mapping[str, Any]
) -> dict[str, dict[int, str]]:
    """The dims of each tensor to keep symbolic; sizes 0 and 1 are always fixed, because torch fixes them."""
    if dynamic is False:
        return {}
    wide = {
        name: [axis for axis, size in enumerate(tensor.shape) if size > 1]
        for name, tensor in zip(names, tensors, strict=True)
    }
    if dynamic is True:
        return {name: dict.fromkeys(axes, "") for name, axes in wide.items()}
    found: dict[str, dict[int, str]] = {}
    for pattern, axes in dynamic.items():
        fitting = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not fitting:
            raise OptionError(f"dynamic: no argument matches '{pattern}'; the arguments are {', '.join(names)}")
        for name in fitting:
            rank = tensors[names.index(name)].ndim
            wrong = [axis for axis in axes if not -rank <= axis < rank]
            if wrong:
                raise OptionError(f"dynamic: '{name}' has {rank} dims, so it has no dim {wrong[0]}")
            for axis, word in axes.items():
                check_size(word, tensors[names.index(name)].shape[axis], bounds.get(word))
            found[name] = {axis % rank: word for axis, word in axes.items() if axis % rank in wide[name]}
    return found


def check_size(name: str, size: int, bound: int | tuple[int, int] | None) -> None:
    """Raises `OptionError` for a size outside of its declared range."""
    low, high = bound if isinstance(bound, tuple) else (bound, bound)
    if low is not None and high is not None and not low <= size <= high:
        declared = f"from {low} to {high}" if low != high else str(low)
        raise OptionError(f"'{name}' is {size}, and was declared to be {declared}")
