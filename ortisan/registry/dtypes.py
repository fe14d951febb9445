"""Element types: one row per type, with its numpy, ONNX and C++ spelling."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class _Row:
    onnx: int
    numpy: Any
    cpp: str
    kind: str  # float, int, uint, bool


class DType(Enum):
    """The element types Ortisan computes with; the value is AITemplate's spelling where it has one."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"

    @property
    def onnx(self) -> int:
        return _ROWS[self].onnx

    @property
    def numpy(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(_ROWS[self].numpy)
        return dtype

    @property
    def cpp(self) -> str:
        return _ROWS[self].cpp

    @property
    def compute_cpp(self) -> str:
        """The C++ type arithmetic is done in."""
        return "float" if self in (DType.FLOAT16, DType.BFLOAT16) else self.cpp

    @property
    def size(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return _ROWS[self].kind == "float"

    @property
    def is_integer(self) -> bool:
        return _ROWS[self].kind in ("int", "uint")

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:
        return _BY_NUMPY[np.dtype(dtype)]

    @classmethod
    def from_onnx(cls, number: int) -> DType | None:
        """The type with this TensorProto number, or None when Ortisan does not compute with it."""
        return _BY_ONNX.get(number)


_ROWS = {
    DType.FLOAT32: _Row(1, np.float32, "float", "float"),
    DType.FLOAT64: _Row(11, np.float64, "double", "float"),
    DType.FLOAT16: _Row(10, np.float16, "half", "float"),
    DType.BFLOAT16: _Row(16, ml_dtypes.bfloat16, "bfloat16", "float"),
    DType.INT8: _Row(3, np.int8, "int8_t", "int"),
    DType.INT16: _Row(5, np.int16, "int16_t", "int"),
    DType.INT32: _Row(6, np.int32, "int32_t", "int"),
    DType.INT64: _Row(7, np.int64, "int64_t", "int"),
    DType.UINT8: _Row(2, np.uint8, "uint8_t", "uint"),
    DType.UINT16: _Row(4, np.uint16, "uint16_t", "uint"),
    DType.UINT32: _Row(12, np.uint32, "uint32_t", "uint"),
    DType.UINT64: _Row(13, np.uint64, "uint64_t", "uint"),
    DType.BOOL: _Row(9, np.bool_, "bool", "bool"),
}
_BY_NUMPY = {np.dtype(row.numpy): dtype for dtype, row in _ROWS.items()}
_BY_ONNX = {row.onnx: dtype for dtype, row in _ROWS.items()}
