"""MatMulNBits of com.microsoft: x times a weight of 2, 4 or 8 bits in blocks, each with a scale and a zero point.

    w[n, k] = (q[n, k] - zero[n, k // block]) * scale[n, k // block]

In float32 the weight stays as it is, 2 bits as 4, and accuracy level 4 lets blocks of x be rounded to 8 bits. In other
types it is written out when the model is compiled, and nothing of the products is quantized, whatever the level.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ortisan.registry.builder import is_constant
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.entries import CONTRIB_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import BlockGemm, Gemm
from ortisan.registry.refusal import Refused

_ATTRIBUTES = ("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked")
_ROUNDED = 4
"""The accuracy level that allows products of 8-bit integers."""
_ENDS = ("", "/scale", "/zero")
_CHUNK = 1 << 20
"""Elements unpacked at a time, so that temporaries stay small next to the weight."""


@lowers("MatMulNBits", attributes=_ATTRIBUTES, domain=CONTRIB_DOMAIN)
def matmul_n_bits(site: Site) -> Value:
    x, bias = site.need(0), site.optional(5)
    if site.optional(4) is not None:
        raise Refused("g_idx is not supported; ONNX Runtime calls it deprecated")
    if site.attribute("weight_prepacked", 0):
        raise Refused("weight_prepacked: the weight is packed for another device")
    more = () if bias is None else (bias,)
    weight = _weight(site)
    if x.dtype is DType.FLOAT32:
        rounded = site.attribute("accuracy_level", 0) == _ROUNDED
        op = BlockGemm(max(weight.bits, 4), weight.block, weight.columns, bias is not None, rounded)
        return site.builder.add(op, x, *weight.constants(site), *more)
    name = site.need(1).name
    return site.builder.add(
        Gemm("rcr", bias=bias is not None), x, site.builder.constant(weight.dequantized(x.dtype), name), *more
    )


@dataclass(frozen=True, eq=False)
class _Weight:
    """A weight[rows, columns], and the constants it is made of."""

    rows: int
    columns: int
    bits: int
    block: int
    packed: Array
    scales: Array
    zeros: Array | None

    def constants(self, site: Site) -> tuple[Value, Value, Value]:
        """q, scale and zero of a BlockGemm."""
        name, builder = site.need(1).name, site.builder
        scales = self.scales.reshape(self.rows, -1).astype(np.float32)
        zeros = np.broadcast_to(_zero_points(self.zeros, slice(None), *scales.shape, self.bits), scales.shape)
        made = unpack_bytes(self.packed.reshape(self.rows, -1), self.bits), scales, zeros.astype(np.float32)
        q, scale, zero = (builder.constant(data, f"{name}{end}") for data, end in zip(made, _ENDS, strict=True))
        return q, scale, zero

    def dequantized(self, dtype: DType) -> Array:
        sources = self.packed, self.scales, self.zeros
        weight = _remembered(*sources)
        if weight is None:
            parts = self.packed.reshape(self.rows, -1), self.scales.reshape(self.rows, -1), self.zeros
            weight = dequantize(*parts, bits=self.bits, columns=self.columns)
            _remember(weight, *sources)
        return weight.astype(dtype.numpy, copy=False)


def _weight(site: Site) -> _Weight:
    rows, columns = int(site.attribute("N", 0)), int(site.attribute("K", 0))
    bits, block = int(site.attribute("bits", 4)), int(site.attribute("block_size", 0))
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1) or rows <= 0 or columns <= 0:
        raise Refused(f"{bits} bits in blocks of {block} for a weight [{rows}, {columns}] are not defined")
    blocks = -(-columns // block)
    packed, scales, zeros = _constant(site, 1), _constant(site, 2), _constant(site, 3)
    if packed is None or packed.dtype != np.uint8 or packed.size != rows * blocks * block * bits // 8:
        raise Refused(f"the quantized weight is not uint8[{rows}, {blocks}, {block * bits // 8}]")
    if scales is None or scales.size != rows * blocks:
        raise Refused(f"the scales are not [{rows}, {blocks}]")
    zero_bytes = -(-blocks * bits // 8)
    if zeros is not None and zeros.size != rows * (zero_bytes if zeros.dtype == np.uint8 else blocks):
        raise Refused(f"the zero points don't fit the scales [{rows}, {blocks}]")
    return _Weight(rows, columns, bits, block, packed, scales, zeros)


def _constant(site: Site, index: int) -> Array | None:
    value = site.optional(index)
    if value is not None and not is_constant(value):
        raise Refused(f"input {index} is not a constant")
    return None if value is None else value.data


def dequantize(packed: Array, scales: Array, zeros: Array | None, *, bits: int, columns: int) -> Array:
    """packed[N, bytes], scales[N, blocks] -> [N, columns] in the type of the scales, computed in float32."""
    rows, blocks = scales.shape
    block = packed.shape[1] * 8 // (bits * blocks)
    weight = np.empty((rows, columns), scales.dtype)
    step = max(1, _CHUNK // (blocks * block))
    for first in range(0, rows, step):
        part = slice(first, first + step)
        numbers = unpack(packed[part], bits).reshape(-1, blocks, block)
        numbers -= _zero_points(zeros, part, rows, blocks, bits)[..., np.newaxis]
        numbers *= scales[part].astype(np.float32)[..., np.newaxis]
        weight[part] = numbers.reshape(len(numbers), -1)[:, :columns]
    return weight


def _zero_points(zeros: Array | None, part: slice, rows: int, blocks: int, bits: int) -> Array:
    """[rows of the part or 1, blocks], as float32."""
    if zeros is None:
        return np.full((1, blocks), 1 << (bits - 1), np.float32)
    own = zeros.reshape(rows, -1)[part]
    return unpack(own, bits)[:, :blocks] if own.dtype == np.uint8 else own.astype(np.float32)


def unpack_bytes(packed: Array, bits: int) -> Array:
    """Bytes to the numbers in them, the lowest bits first: uint8 [N, M] -> uint8 [N, M * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts: Array = (packed[..., np.newaxis] >> shifts) & np.uint8(255 >> (8 - bits))
    return parts.reshape(len(packed), -1)


def unpack(packed: Array, bits: int) -> Array:
    """Bytes to the numbers in them as float32, the lowest bits first: [N, M] -> [N, M * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    table = ((np.arange(256, dtype=np.uint8)[:, np.newaxis] >> shifts) & np.uint8(255 >> (8 - bits))).astype(np.float32)
    # One table element holds all numbers of a byte, so a lookup copies them together.
    together = {8: np.float32, 4: np.float64, 2: np.complex128}[bits]
    numbers: Array = table.view(together).reshape(256)[packed].view(np.float32)
    return numbers


_made: list[tuple[Callable[[], Array | None], ...]] = []
"""Weak references to a weight and to what it was made from."""


def _remembered(*sources: Array | None) -> Array | None:
    """The weight unpacked from these arrays, reused while alive: a graph is lowered more than once."""
    _made[:] = [entry for entry in _made if entry[0]() is not None]
    for weight, *known in _made:
        if all(reference() is source for reference, source in zip(known, sources, strict=True)):
            return weight()
    return None


def _remember(*arrays: Array | None) -> None:
    _made.append(tuple(_nothing if array is None else weakref.ref(array) for array in arrays))


def _nothing() -> None:
    return None
