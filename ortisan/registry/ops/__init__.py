"""The op vocabulary: AITemplate's ops, each with shape inference and a numpy reference."""

from __future__ import annotations

from ortisan.registry.ops.attention import Attention
from ortisan.registry.ops.cache import CacheWrite
from ortisan.registry.ops.elementwise import Cast, Elementwise
from ortisan.registry.ops.gather import Gather, GatherNd, IndexSelect
from ortisan.registry.ops.generate import Arange, Full, Size
from ortisan.registry.ops.images import Conv2d, Pool2d
from ortisan.registry.ops.move import (
    Concatenate,
    DynamicSlice,
    Expand,
    Move,
    Pad,
    Permute,
    Reshape,
    Split,
    Trilu,
)
from ortisan.registry.ops.products import Bmm, Gemm
from ortisan.registry.ops.reduce import ArgReduce, CumSum, Reduce
from ortisan.registry.ops.rotary import Rotary
from ortisan.registry.ops.rows import LayerNorm, RmsNorm, Softmax

__all__ = [
    "Arange",
    "ArgReduce",
    "Attention",
    "Bmm",
    "CacheWrite",
    "Cast",
    "Concatenate",
    "Conv2d",
    "CumSum",
    "DynamicSlice",
    "Elementwise",
    "Expand",
    "Full",
    "Gather",
    "GatherNd",
    "Gemm",
    "IndexSelect",
    "LayerNorm",
    "Move",
    "Pad",
    "Permute",
    "Pool2d",
    "Reduce",
    "Reshape",
    "RmsNorm",
    "Rotary",
    "Size",
    "Softmax",
    "Split",
    "Trilu",
]
