"""DFT and STFT as products: a transform of known length is a matrix.

X[k] = sum(x[n] e^(-2 pi i k n / N)), so the rows of the matrix for frequency k are cos(2 pi k n / N) and
-sin(2 pi k n / N). The frames of a short-time transform overlap, as what the pixels of a convolution read does: it is
one with the matrix as filters.

Lengths are powers of two: for others ONNX Runtime's results are off by 1e-4 of the largest, so nothing could be
verified.
"""

from __future__ import annotations

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.dims import is_static
from ortisan.registry.dtypes import Array
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Conv2d, Gemm
from ortisan.registry.refusal import Refused

_LONGEST = 2048
"""Above, the matrix is large and a fast transform does much less."""


@lowers("STFT", attributes=["onesided"])
def stft(site: Site) -> Value:
    b, signal, window = site.builder, site.need(0), site.optional(2)
    if len(signal.shape) not in (2, 3) or (len(signal.shape) == 3 and signal.shape[2] != 1):
        raise Refused(f"STFT is supported for real signals, not for {signal.type}")
    step, length = _number(site, 1, "step"), _number(site, 3, "length of a frame")
    if window is not None and (window.data is None or len(window.shape) != 1):
        raise Refused("STFT needs a constant window")
    size = length if length is not None else window.shape[0] if window is not None else None
    if step is None or step < 1 or not isinstance(size, int):
        raise Refused("STFT needs a constant step, and frames of a constant length")
    _check_length(site, size)
    if window is not None and window.shape[0] != size:
        raise Refused(f"the window of STFT has {window.shape[0]} elements, and frames have {size}")
    matrix = _matrix(size, onesided=bool(site.attribute("onesided", 1)))
    if window is not None:
        matrix *= window.data
    filters = b.constant(matrix.astype(signal.dtype.numpy).reshape(len(matrix), 1, size, 1))
    batch, samples = signal.shape[:2]
    made = b.add(Conv2d((1, step)), b.reshape(signal, (batch, 1, samples, 1)), filters)
    return b.reshape(made, (batch, made.shape[2], len(matrix) // 2, 2))


@lowers("DFT", attributes=["axis", "inverse", "onesided"])
def dft(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    rank = len(x.shape)
    axis = _number(site, 2, "axis") if len(site.inputs) > 2 else site.attribute("axis", 1 if site.version < 20 else -2)
    inverse, onesided = bool(site.attribute("inverse", 0)), bool(site.attribute("onesided", 0))
    if rank < 2 or x.shape[-1] not in (1, 2) or axis is None or not -rank <= axis < rank or axis % rank == rank - 1:
        raise Refused(f"DFT of {x.type} along axis {axis} is not defined")
    size = x.shape[axis]
    if not is_static(size) or _number(site, 1, "length") not in (None, size):
        raise Refused("DFT is supported over the whole of an axis of known length")
    _check_length(site, size)
    if onesided and (inverse or x.shape[-1] == 2):
        raise Refused("DFT of one side is supported for real inputs, forwards")
    matrix = _matrix(size, onesided=onesided)
    if inverse:
        matrix[1::2] *= -1
        matrix /= size
    if x.shape[-1] == 2:
        matrix = _for_complex(matrix)
    return _along(b, x, axis % rank, b.constant(matrix.astype(x.dtype.numpy)))


def _check_length(site: Site, size: int) -> None:
    if not 1 <= size <= _LONGEST or size & (size - 1):
        raise Refused(
            f"{site.op_type} is supported for lengths that are powers of two up to {_LONGEST}, not for {size}"
        )


def _number(site: Site, index: int, what: str) -> int | None:
    value = site.optional(index)
    if value is None:
        return None
    if value.data is None or value.data.dtype == object or value.data.size != 1:
        raise Refused(f"the {what} of {site.op_type} is computed")
    return int(value.data.reshape(()))


def _matrix(size: int, *, onesided: bool) -> Array:
    """[2 bins, size] of float64: real and imaginary parts in turn."""
    bins = size // 2 + 1 if onesided else size
    angles = 2 * np.pi * (np.arange(bins)[:, None] * np.arange(size) % size) / size
    return np.stack([np.cos(angles), -np.sin(angles)], axis=1).reshape(2 * bins, size)


def _for_complex(matrix: Array) -> Array:
    """[2 bins, 2 size]: (c + i s) (x + i y) = c x - s y + i (s x + c y), the parts of an element side by side."""
    real, imaginary = matrix[0::2], matrix[1::2]
    rows = np.stack([np.stack([real, -imaginary], -1), np.stack([imaginary, real], -1)], axis=1)
    return rows.reshape(len(matrix), -1)


def _along(b: Builder, x: Value, axis: int, matrix: Value) -> Value:
    """The transform of an axis of x[..., parts]."""
    rank = len(x.shape)
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    turned = b.permute(x, order)
    outer = turned.shape[: rank - 2]
    made = b.add(Gemm("rcr"), b.reshape(turned, (*outer, matrix.shape[1])), matrix)
    apart = b.reshape(made, (*outer, matrix.shape[0] // 2, 2))
    return b.permute(apart, [order.index(a) for a in range(rank)])
