"""Tells whether tensors hold what they held: every byte is read, so a change counts however it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ortisan.codegen.cpu.digest import DIGEST_BYTES, load_digest
from ortisan.codegen.cpu.isa import find_isa


class Contents:
    """What some tensors held when this was made.

    The digest has 128 bits for each tensor. With `freeze`, memory is not read: torch's write counters and addresses
    have to do, so a change through `tensor.data` or NumPy goes unnoticed.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], *, freeze: bool) -> None:
        self._forms = _forms(tensors)
        self._freeze = freeze
        self._dense = list(map(_is_dense, tensors))
        self._bytes = [tensor.nbytes for tensor in tensors]
        self._prepare()
        self._read = self._marks(tensors) if freeze else self._contents(tensors)

    def part(self, indices: Sequence[int]) -> Contents:
        """The same for some of the tensors, without reading them again."""
        part: Contents = object.__new__(Contents)
        part._forms, part._freeze = [self._forms[i] for i in indices], self._freeze
        part._dense = [self._dense[i] for i in indices]
        part._bytes = [self._bytes[i] for i in indices]
        read = [self._of(i) for i in indices]
        part._read = read if self._freeze else b"".join(read)
        part._prepare()
        return part

    def _prepare(self) -> None:
        self._is_dense = all(self._dense)
        if not self._freeze:
            self._digest = load_digest(find_isa("native")).prepare(self._bytes)

    def are_in(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these tensors, in this order, hold the same."""
        if _forms(tensors) != self._forms:
            return False
        return bool(self._read == (self._marks(tensors) if self._freeze else self._contents(tensors)))

    def have_forms_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these tensors have the same shapes, strides and types."""
        return _forms(tensors) == self._forms

    def changed_in(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The indices of the tensors that hold something else. There are as many as there were."""
        now = Contents(tensors, freeze=self._freeze)
        return [
            index
            for index in range(len(tensors))
            if self._forms[index] != now._forms[index] or self._of(index) != now._of(index)
        ]

    def _of(self, index: int) -> Any:
        return self._read[index] if self._freeze else self._read[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]

    def _contents(self, tensors: Sequence[torch.Tensor]) -> Any:
        held = tensors if self._is_dense else [each.detach().contiguous().resolve_neg() for each in tensors]
        return self._digest([each.data_ptr() for each in held], torch.get_num_threads())

    @staticmethod
    def _marks(tensors: Sequence[torch.Tensor]) -> Any:
        return [(0 if each.is_inference() else each._version, each.data_ptr()) for each in tensors]


def _forms(tensors: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    return [(each.shape, each.stride(), each.dtype, each.is_neg()) for each in tensors]


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a piece of memory without gaps, in whatever order."""
    if tensor.is_neg() or tensor.is_conj():
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
