"""The table of compositions: ops of the op graph that become several ops of AITemplate, or one of another form."""

from __future__ import annotations

from ortisan.codegen.ait.compose.attention import attention
from ortisan.codegen.ait.compose.images import conv2d
from ortisan.codegen.ait.compose.move import cache_write, concatenate, expand, full, pad, permute, reshape, split
from ortisan.codegen.ait.compose.products import bmm, gemm
from ortisan.codegen.ait.compose.rotary import rotary
from ortisan.codegen.ait.compose.rows import elementwise, layernorm, reduce, rms_norm, softmax
from ortisan.codegen.ait.compose.select import dynamic_slice, gather, index_select
from ortisan.codegen.ait.dialect import Row
from ortisan.registry import ops
from ortisan.registry.graph import Op

COMPOSITIONS: dict[type[Op], Row] = {
    ops.Attention: attention,
    ops.Bmm: bmm,
    ops.CacheWrite: cache_write,
    ops.Concatenate: concatenate,
    ops.Conv2d: conv2d,
    ops.DynamicSlice: dynamic_slice,
    ops.Elementwise: elementwise,
    ops.Expand: expand,
    ops.Full: full,
    ops.Gather: gather,
    ops.Gemm: gemm,
    ops.IndexSelect: index_select,
    ops.LayerNorm: layernorm,
    ops.Pad: pad,
    ops.Permute: permute,
    ops.Reduce: reduce,
    ops.Reshape: reshape,
    ops.RmsNorm: rms_norm,
    ops.Rotary: rotary,
    ops.Softmax: softmax,
    ops.Split: split,
}
"""Op -> how it is composed; an op that is in no row is taken as it is."""
