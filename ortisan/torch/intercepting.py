"""Reports the arguments of every call: shape, type, device and range of each tensor."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ortisan.errors import OptionError
from ortisan.torch.axes import named_leaves
from ortisan.torch.tree import leaves_with_names


@dataclass(frozen=True)
class Argument:
    """One argument. `low` and `high` are None for what has no order: no elements, or no tensor at all."""

    name: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    low: float | None = None
    high: float | None = None
    value: Any = field(default=None, repr=False, compare=False)
    """The argument itself: a tensor is the one that the call gets, so it has to be copied to be kept."""

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.kind}"
        text = f"{self.name}: {self.dtype}{list(self.shape)} on {self.device}"
        return text if self.low is None else f"{text} from {self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True)
class Call:
    """A call of a module: its name, and what it was given."""

    module: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return "\n".join([self.module, *(f"  {argument}" for argument in self.arguments)])


def describe_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    return Call(name, tuple(_describe(path, leaf) for path, leaf in leaves_with_names(args, kwargs)))


def describe_named(name: str, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """A call of a module, whose arguments have the names of its forward."""
    return Call(name, tuple(_describe(path, leaf) for path, leaf in named_leaves(module, args, kwargs)))


def show(call: Call, to: bool | Callable[[Call], None]) -> None:
    """Passes the call to a function, or prints it to stderr."""
    if callable(to):
        to(call)
    else:
        sys.stderr.write(f"{call}\n")


def intercept(
    module: nn.Module, fn: Callable[[Call], None] | None = None, *, names: str | Sequence[str] = ""
) -> Interception:
    """Prints every call of `module`, or hands it to `fn`, then runs the forward as it is.

    `names` are patterns of submodules: "" is the module itself, "encoder.layer.*" all of a list, "*" everything. It
    ends with `.remove()`, or with the block when it is used in a `with` statement.
    """
    patterns = [names] if isinstance(names, str) else list(names)
    chosen = [
        (name, part)
        for name, part in module.named_modules()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    if not chosen:
        raise OptionError(f"no submodule of {type(module).__name__} matches {', '.join(patterns)}")
    return Interception(module, chosen, fn if fn is not None else True)


class Interception:
    """Hooks on modules, until they are removed."""

    def __init__(
        self, root: nn.Module, chosen: Sequence[tuple[str, nn.Module]], to: bool | Callable[[Call], None]
    ) -> None:
        self._handles = [
            part.register_forward_pre_hook(_hook(name or type(root).__name__, to), with_kwargs=True)
            for name, part in chosen
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Interception:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _hook(name: str, to: bool | Callable[[Call], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        show(describe_named(name, module, args, kwargs), to)

    return hook


def _describe(name: str, leaf: Any) -> Argument:
    if not isinstance(leaf, torch.Tensor):
        return Argument(name, repr(leaf)[:60], value=leaf)
    low = high = None
    if leaf.numel() and leaf.layout == torch.strided and not leaf.dtype.is_complex and leaf.device.type != "meta":
        numbers = leaf.detach()
        numbers = numbers.float() if numbers.dtype.is_floating_point else numbers.long()
        low, high = float(numbers.min()), float(numbers.max())
    dtype = str(leaf.dtype).removeprefix("torch.")
    return Argument(name, "tensor", tuple(leaf.shape), dtype, str(leaf.device), low, high, leaf)
