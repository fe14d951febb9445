"""Constants of products as 8-bit numbers in blocks of 32 along K, each with a scale: the largest magnitude / 127."""

from __future__ import annotations

import numpy as np

from ortisan.registry.dtypes import Array

BLOCK, BITS = 32, 8
_ZERO = 128
_CHUNK = 1 << 20
"""Elements at a time, so that temporaries stay small next to the weight."""


def block_quantize(w: Array) -> tuple[Array, Array, Array]:
    """w[N, K] -> q uint8[N, K in whole blocks], scale and zero float32[N, blocks]: w = (q - zero) * scale."""
    rows, depth = w.shape
    blocks = -(-depth // BLOCK)
    q = np.full((rows, blocks * BLOCK), _ZERO, np.uint8)
    scale = np.zeros((rows, blocks), np.float32)
    step = max(1, _CHUNK // (blocks * BLOCK))
    for first in range(0, rows, step):
        part = np.zeros((min(step, rows - first), blocks * BLOCK), np.float32)
        part[:, :depth] = w[first : first + step]
        numbers = part.reshape(-1, blocks, BLOCK)
        own = np.abs(numbers).max(axis=2) / np.float32(_ZERO - 1)
        inverse = np.divide(1, own, out=np.zeros_like(own), where=own > 0)
        whole = np.rint(numbers * inverse[..., np.newaxis]) + _ZERO
        q[first : first + step] = whole.reshape(part.shape).astype(np.uint8)
        scale[first : first + step] = own
    return q, scale, np.full_like(scale, _ZERO)
