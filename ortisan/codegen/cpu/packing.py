"""Weights in the layout the kernels read them in, made once, when the model is compiled."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ortisan.registry.dims import Dim, Shape, ceil_div, product
from ortisan.registry.dtypes import Array, DType

Layout = Literal["plain", "panels_rcr", "panels_rrr", "taps", "winograd", "fours_8", "fours_4"]
"""`panels_*`: columns of B in panels of `panel_width`, each K rows long, the last one padded with zeros; in panels
of bfloat16 pairs of k lie side by side (templates/cpu/products/panels.h). Matrices of a batch lie one after the other.
`fours_8` and `fours_4`: numbers of as many bits, four k of a column side by side (templates/cpu/products/block_gemm.h).
`taps`: a filter per channel, [taps][channels]. `winograd`: filters of 3 x 3 as `panels_rcr` of each of the 36 terms of
templates/cpu/images/winograd.h.
"""


def _winograd_filters(p: float, q: float) -> Array:
    """G of F(4, 3): the filter as a polynomial at 0, p, -p, q, -q and infinity, by what B's polynomials are there."""
    at_p, at_q = 2 * p**2 * (p**2 - q**2), 2 * q**2 * (q**2 - p**2)
    rows = [(1 / (p * q) ** 2, 0.0, 0.0)]
    rows += [(1 / at_p, x / at_p, x**2 / at_p) for x in (p, -p)]
    rows += [(1 / at_q, x / at_q, x**2 / at_q) for x in (q, -q)]
    return np.array([*rows, (0.0, 0.0, 1.0)])


_WINOGRAD = _winograd_filters(0.75, 1.5)


def panel_width(dtype: DType) -> int:
    """Columns per panel; `panel_width<T>` in templates/cpu/products/tile.h."""
    return 8 if dtype is DType.FLOAT64 else 16


def pack(data: Array, layout: Layout) -> Array:
    """A weight as the kernels read it, contiguous."""
    if layout == "plain":
        return np.ascontiguousarray(data)
    if layout == "winograd":
        terms = np.einsum("ai,bj,oijc->aboc", _WINOGRAD, _WINOGRAD, data.astype(np.float64), optimize=True)
        return pack(terms.reshape(-1, len(data), data.shape[-1]).astype(data.dtype), "panels_rcr")
    if layout == "taps":
        return np.ascontiguousarray(data.reshape(len(data), -1).T).reshape(-1)
    if layout in ("fours_8", "fours_4"):
        return _pack_fours(data, 8 if layout == "fours_8" else 4)
    if data.ndim > 2:
        return np.concatenate([pack(matrix, layout) for matrix in data])
    b = data.T if layout == "panels_rcr" else data  # [K, N]
    depth, columns = b.shape
    dtype = DType.from_numpy(data.dtype)
    width = panel_width(dtype)
    panels = -(-columns // width)
    whole = columns // width
    packed = np.zeros((panels, panel_depth(depth, dtype), width), data.dtype)
    packed[:whole, :depth] = b[:, : whole * width].reshape(depth, whole, width).swapaxes(0, 1)
    if whole < panels:
        packed[whole, :depth, : columns - whole * width] = b[:, whole * width :]
    if dtype is DType.BFLOAT16:
        packed = packed.reshape(panels, -1, 2, width).swapaxes(2, 3)
    return packed.reshape(-1)


def _pack_fours(q: Array, bits: int) -> Array:
    """q[N, K] with K in whole blocks, so that it can be cut by eights."""
    width = panel_width(DType.FLOAT32)
    columns, depth = q.shape
    padded = np.zeros((ceil_div(columns, width) * width, depth), np.uint8)
    padded[:columns] = q
    fours = padded.reshape(-1, width, depth // 4, 4).swapaxes(1, 2)
    if bits == 4:
        fours = fours[:, 0::2] | (fours[:, 1::2] << 4)
    return np.ascontiguousarray(fours).reshape(-1)


def packed_bytes(shape: Shape, dtype: DType, layout: Layout) -> int:
    """The size of a packed constant."""
    if layout in ("plain", "taps"):
        return int(dtype.size * product(shape))
    if layout in ("fours_8", "fours_4"):
        return int(packed_elements(shape[1], shape[0], DType.FLOAT32)) // (1 if layout == "fours_8" else 2)
    if layout == "winograd":
        return int(dtype.size * len(_WINOGRAD) ** 2 * packed_elements(shape[-1], shape[0], dtype))
    columns, depth = shape[-2:] if layout == "panels_rcr" else reversed(shape[-2:])
    return int(dtype.size * product((*shape[:-2], packed_elements(depth, columns, dtype))))


def packed_elements(depth: Dim, columns: Dim, dtype: DType) -> Dim:
    width = panel_width(dtype)
    return product((ceil_div(columns, width), width, panel_depth(depth, dtype)))


def panel_depth(depth: Dim, dtype: DType) -> Dim:
    """Rows of a panel: `panel_depth<T>` in templates/cpu/products/panels.h."""
    return 2 * ceil_div(depth, 2) if dtype is DType.BFLOAT16 else depth
