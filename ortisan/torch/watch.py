"""Detects changes of a module: its submodules, parameters, buffers, or training mode."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn


class Watch:
    """A snapshot of a module's state.

    Detects replaced submodules, and tensors that were replaced, written to or moved. It misses writes that torch does
    not count (`parameter.data.add_(1)`) and attributes that are not tensors.
    """

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self._modes = [part.training for part in modules]
        self._modules = modules
        tables: list[dict[str, Any]] = []
        for part in modules:
            tables += [part._modules, part._parameters, part._buffers]
        self._tables = [table for table in tables if table]
        self._items = [list(table.values()) for table in self._tables]
        tensors = itertools.chain(module.parameters(), module.buffers())
        self._tensors: list[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        self._state = self._read()

    def has_changed(self) -> bool:
        for table, items in zip(self._tables, self._items, strict=True):
            values = list(table.values())
            if len(values) != len(items) or any(map(_is_other, values, items)):
                return True
        return self._modes != [part.training for part in self._modules] or self._state != self._read()

    def _read(self) -> list[int]:
        return [number for tensor in self._tensors for number in (tensor._version, tensor.data_ptr())]


def _is_other(a: Any, b: Any) -> bool:
    return a is not b
