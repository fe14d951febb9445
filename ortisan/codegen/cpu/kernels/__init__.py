"""Op -> kernel, one emitter per family of ops."""

from __future__ import annotations

from collections.abc import Callable

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec
from ortisan.codegen.cpu.kernels.attention import emit_attention
from ortisan.codegen.cpu.kernels.cache import emit_cache_write
from ortisan.codegen.cpu.kernels.elementwise import emit_elementwise
from ortisan.codegen.cpu.kernels.gather import emit_gather, emit_gather_nd, emit_index_select
from ortisan.codegen.cpu.kernels.generate import emit_arange, emit_full, emit_size, emit_trilu
from ortisan.codegen.cpu.kernels.move import (
    emit_concatenate,
    emit_expand,
    emit_pad,
    emit_permute,
    emit_slice,
    emit_split,
)
from ortisan.codegen.cpu.kernels.products import emit_bmm, emit_gemm
from ortisan.codegen.cpu.kernels.rotary import emit_rotary
from ortisan.codegen.cpu.kernels.rows import (
    emit_arg_reduce,
    emit_cumsum,
    emit_layernorm,
    emit_reduce,
    emit_rms_norm,
    emit_softmax,
)
from ortisan.registry import ops
from ortisan.registry.graph import Op

EMITTERS: dict[type[Op], Callable[[Group, EmitContext], KernelSpec]] = {
    ops.Arange: emit_arange,
    ops.ArgReduce: emit_arg_reduce,
    ops.Attention: emit_attention,
    ops.Bmm: emit_bmm,
    ops.CacheWrite: emit_cache_write,
    ops.Cast: emit_elementwise,
    ops.Concatenate: emit_concatenate,
    ops.CumSum: emit_cumsum,
    ops.DynamicSlice: emit_slice,
    ops.Elementwise: emit_elementwise,
    ops.Expand: emit_expand,
    ops.Full: emit_full,
    ops.Gather: emit_gather,
    ops.GatherNd: emit_gather_nd,
    ops.Gemm: emit_gemm,
    ops.IndexSelect: emit_index_select,
    ops.LayerNorm: emit_layernorm,
    ops.Pad: emit_pad,
    ops.Permute: emit_permute,
    ops.Reduce: emit_reduce,
    ops.RmsNorm: emit_rms_norm,
    ops.Rotary: emit_rotary,
    ops.Size: emit_size,
    ops.Softmax: emit_softmax,
    ops.Split: emit_split,
    ops.Trilu: emit_trilu,
}
"""Every op but the views, which run no kernel."""


def emit(group: Group, context: EmitContext) -> KernelSpec:
    return EMITTERS[type(group.nodes[0].op)](group, context)
