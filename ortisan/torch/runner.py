"""Runs a session on torch tensors without copies: inputs and outputs are bound in place."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from ortisan.errors import ArtifactError, UnsupportedError
from ortisan.runtime.artifact import Artifact, load
from ortisan.runtime.engine import sentence
from ortisan.torch.session_options import make_session_options

# ONNX's numbers of the element types, and how ONNX Runtime spells them.
_TYPES: Mapping[torch.dtype, tuple[int, str]] = {
    torch.float32: (1, "tensor(float)"),
    torch.uint8: (2, "tensor(uint8)"),
    torch.int8: (3, "tensor(int8)"),
    torch.uint16: (4, "tensor(uint16)"),
    torch.int16: (5, "tensor(int16)"),
    torch.int32: (6, "tensor(int32)"),
    torch.int64: (7, "tensor(int64)"),
    torch.bool: (9, "tensor(bool)"),
    torch.float16: (10, "tensor(float16)"),
    torch.float64: (11, "tensor(double)"),
    torch.uint32: (12, "tensor(uint32)"),
    torch.uint64: (13, "tensor(uint64)"),
    torch.bfloat16: (16, "tensor(bfloat16)"),
}
_ELEMENT = {dtype: number for dtype, (number, _) in _TYPES.items()}
_FILE = re.compile(r"'[^']*\.onnx'(?=: )")
_SMALL_BYTES = 64 << 10
_DTYPES = {spelled: dtype for dtype, (_, spelled) in _TYPES.items()}


def dtype_of_type(element: int, what: str) -> torch.dtype:
    """The dtype of one of ONNX's element types."""
    found = next((dtype for dtype, number in _ELEMENT.items() if number == element), None)
    if found is None:
        raise UnsupportedError(f"'{what}' has ONNX's element type {element}, which torch has no dtype for")
    return found


def open_runner(artifact: Artifact, session_options: Any = None, providers: Sequence[Any] = ()) -> Runner:
    """A session with the caller's options and providers; without options, with as many threads as torch uses now."""
    try:
        session = load(artifact, make_session_options(session_options), providers or None)
    except ArtifactError as error:
        # The file is one of the cache, which says nothing to the caller.
        raise ArtifactError(_FILE.sub("the graph", str(error))) from error
    return Runner(session)


class Runner:
    """Calls a session with tensors in the order of its inputs. Any number of threads may call it at once."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.inputs = tuple(value.name for value in session.get_inputs())
        self._types = [_DTYPES[value.type] for value in session.get_inputs()]
        self._outputs = [_Result(value) for value in session.get_outputs()]
        self._names = [output.name for output in self._outputs]
        known = {_DTYPES.get(value.type) for value in session.get_inputs()} | {each.dtype for each in self._outputs}
        sizes = [output.bytes for output in self._outputs]
        self._is_small = sum(sizes) <= _SMALL_BYTES and torch.bfloat16 not in known

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return self._run_small(tensors) if self._is_small else self._run_bound(tensors)
        except Exception as error:
            cast = [tensor.to(dtype) for tensor, dtype in zip(tensors, self._types, strict=True)]
            if any(given is not tensor for given, tensor in zip(cast, tensors, strict=True)):
                return self(cast)  # torch's fake tensors promise types that its kernels do not always give
            raise ArtifactError(f"the compiled graph can't run on these inputs: {sentence(error)}") from error

    def _run_small(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Runs with small outputs copied, which is faster than binding them."""
        try:
            feeds = {name: tensor.numpy() for name, tensor in zip(self.inputs, tensors, strict=True)}
        except RuntimeError:  # of a tensor that requires a gradient, or whose negation is still to be done
            feeds = {name: each.detach().resolve_neg().numpy() for name, each in zip(self.inputs, tensors, strict=True)}
        return [torch.from_numpy(array) for array in self.session.run(self._names, feeds)]

    def _run_bound(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        binding = self.session.io_binding()
        held = []
        for name, tensor in zip(self.inputs, tensors, strict=True):
            if not tensor.is_contiguous() or tensor.is_neg():
                tensor = tensor.contiguous().resolve_neg()  # noqa: PLW2901
                held.append(tensor)
            binding.bind_input(name, "cpu", 0, _ELEMENT[tensor.dtype], tensor.shape, tensor.data_ptr())
        results = [output.bind(binding) for output in self._outputs]
        self.session.run_with_iobinding(binding)
        values = binding.get_outputs() if any(result is None for result in results) else results
        return [
            _as_tensor(value, output.dtype) if result is None else result
            for result, value, output in zip(results, values, self._outputs, strict=True)
        ]


class _Result:
    """An output. Those of fixed shape are written into torch's memory, the others into ONNX Runtime's."""

    def __init__(self, value: Any) -> None:
        self.name: str = value.name
        self.dtype = _DTYPES[value.type]
        self.element = _ELEMENT[self.dtype]
        shape = value.shape
        fixed = all(isinstance(dim, int) and dim > 0 for dim in shape)
        self.shape = tuple(shape) if fixed else None
        self.bytes = math.prod(shape) * self.dtype.itemsize if fixed else _SMALL_BYTES + 1

    def bind(self, binding: Any) -> torch.Tensor | None:
        if self.shape is None:
            binding.bind_output(self.name)
            return None
        tensor = torch.empty(self.shape, dtype=self.dtype)
        binding.bind_output(self.name, "cpu", 0, self.element, self.shape, tensor.data_ptr())
        return tensor


def _as_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """Wraps ONNX Runtime's memory as a tensor that owns it."""
    if dtype == torch.bool or not hasattr(value, "__dlpack__"):
        return torch.from_numpy(value.numpy()) if dtype != torch.bfloat16 else _owning(value, dtype)
    return _owning(value, dtype) if dtype == torch.bfloat16 else torch.utils.dlpack.from_dlpack(value)


def _owning(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """The same for types that ONNX Runtime's DLPack and NumPy don't have."""
    shape = value.shape()
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(value.data_ptr())
    memory.owner = value
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)
