"""Checks that a tensor's data fits its type and shape, before anything reads it."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from ortisan.errors import ModelError

_MOST_BYTES = 2**62
_FIELDS = {
    "float_data": ("FLOAT", "COMPLEX64"),
    "double_data": ("DOUBLE", "COMPLEX128"),
    "int64_data": ("INT64",),
    "uint64_data": ("UINT32", "UINT64"),
    "string_data": ("STRING",),
    "int32_data": ("INT32", "INT16", "INT8", "UINT16", "UINT8", "BOOL", "FLOAT16", "BFLOAT16"),
}
_FIELD_OF = {name: field for field, names in _FIELDS.items() for name in names}


def check_payload(tensor: ir.TensorProtocol, what: str) -> None:
    """Raises `ModelError` when the type is none, the shape is none that an array can have, or data is missing."""
    if tensor.dtype == ir.DataType.UNDEFINED:
        raise ModelError(f"{what} has no element type")
    dims = [dim for dim in tensor.shape if isinstance(dim, int)]
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{what} has a negative dim in its shape {dims}")
    if math.prod(max(dim, 1) for dim in dims) > _MOST_BYTES // 16:
        raise ModelError(f"{what} has the shape {dims}, which no array can have")
    if isinstance(tensor, ir.TensorProtoTensor):
        _check_fields(tensor.raw, tensor, what)


def _check_fields(proto: onnx.TensorProto, tensor: ir.TensorProtoTensor, what: str) -> None:
    if proto.HasField("raw_data"):
        have, need, unit = len(proto.raw_data), tensor.nbytes, "bytes"
    else:
        field = _FIELD_OF.get(tensor.dtype.name)
        if field is None:
            return
        pair = tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
        have, need, unit = len(getattr(proto, field)), tensor.size * (2 if pair else 1), "elements"
    if have != need:
        raise ModelError(
            f"{what} has {have} {unit} of data, but its type {tensor.dtype.name} and shape {list(proto.dims)} "
            f"need {need}"
        )
