"""Detects changes of modules: what they hold, whatever changed it, and how they are put together."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ortisan.torch.contents import Contents

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)
_DEEPEST = 4


class Watch:
    """A snapshot of modules.

    It sees replaced and changed tensors (parameters, buffers, and others that a module holds), replaced submodules,
    hooks, attributes and what they contain to a depth of 4, classes, and training mode. It does not see global
    variables and what a forward has in its closure. With `freeze`, tensors are not read: see `Contents`.
    """

    def __init__(self, modules: Sequence[nn.Module], *, freeze: bool) -> None:
        self._modules = list({id(part): part for root in modules for part in root.modules()}.values())
        self._classes = [type(part) for part in self._modules]
        held: list[torch.Tensor] = []
        holders = list(_holders(self._modules, held))
        tables = [each if isinstance(each, dict) else each.__dict__ for each in holders if not _is_row(each)]
        rows = [each for each in holders if _is_row(each)]
        # Most hooks and tables of a module are empty, and stay so.
        self._empty = [each for each in (*tables, *rows) if not each]
        self._tables = [each for each in tables if each]
        self._rows = [each for each in rows if each]
        self._keys, self._values = self._read()
        self._tensors = [each for each in {id(each): each for each in held}.values() if _is_readable(each)]
        self._contents = self._compared = Contents(self._tensors, freeze=freeze)
        self._to_compare = self._tensors

    def has_changed(self) -> bool:
        """Whether the modules are others than they were, apart from what their tensors hold."""
        if any(self._empty) or list(map(type, self._modules)) != self._classes:
            return True
        keys, values = self._read()
        if len(values) != len(self._values) or keys != self._keys:
            return True
        return not all(map(operator.is_, values, self._values)) and not all(map(_is_same, values, self._values))

    def _read(self) -> tuple[list[Any], list[Any]]:
        values = itertools.chain.from_iterable(map(dict.values, self._tables))
        return list(itertools.chain.from_iterable(self._tables)), [*values, *itertools.chain.from_iterable(self._rows)]

    def have_forms_changed(self) -> bool:
        """Whether a tensor has another shape, other strides or another type."""
        return not self._contents.have_forms_of(self._tensors)

    def have_tensors_changed(self) -> bool:
        return not self._compared.are_in(self._to_compare)

    @property
    def is_narrow(self) -> bool:
        return self._compared is not self._contents

    def leave_out(self, given: Collection[int]) -> None:
        """From now on the tensors with these ids are not compared, because sessions are given them in each run."""
        kept = [index for index, tensor in enumerate(self._tensors) if id(tensor) not in given]
        if len(kept) < len(self._tensors):
            self._compared = self._contents.part(kept)
            self._to_compare = [self._tensors[index] for index in kept]


def _is_readable(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and type(tensor).__name__ != "FakeTensor"


def _holders(modules: Sequence[nn.Module], tensors: list[torch.Tensor]) -> Iterator[Any]:
    """The modules, and the containers and objects in them; tensors on the way are collected."""
    seen: set[int] = set()
    todo: list[tuple[Any, int]] = [(each, 0) for each in reversed(modules)]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            continue
        if isinstance(value, (*_PLAIN, *_OPAQUE)) or id(value) in seen or depth > _DEEPEST:
            continue
        if isinstance(value, nn.Module) and depth:
            continue
        seen.add(id(value))
        if isinstance(value, dict) or _is_row(value):
            inner = value.values() if isinstance(value, dict) else value
        elif isinstance(getattr(value, "__dict__", None), dict):
            inner = value.__dict__.values()
        else:
            continue
        yield value
        todo += [(each, depth + 1) for each in inner]


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset))


def _is_same(a: Any, b: Any) -> bool:
    """Plain values by type and value, all others by identity."""
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and bool(a == b))
