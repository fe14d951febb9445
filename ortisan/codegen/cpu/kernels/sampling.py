"""Images between their pixels: resize2d, grid_sample, roi_align."""

from __future__ import annotations

import numpy as np

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, only_node
from ortisan.codegen.cpu.loops.boxes import bits
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import flag, literal
from ortisan.registry.dtypes import DType
from ortisan.registry.interpolation import CROP
from ortisan.registry.ops import GridSample, Resize2d, RoiAlign

_RESIZE = call_of("resize.h")
_GRID = call_of("grid_sample.h")
_REGIONS = call_of("roi_align.h")


def emit_resize(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Resize2d)
    x, y = node.inputs[0], node.output
    is_cropped = op.coordinates == CROP
    # What only moves elements does so by their size, unless it makes some.
    type_ = x.dtype.cpp if op.mode != "nearest" or is_cropped else bits(x.dtype)
    params = (Param("x", type_), Param("y", type_, written=True))
    axes = []
    for index, (want, scale) in enumerate(zip(op.size, op.scales, strict=True)):
        sizes = context.printer.all((x.shape[1 + index], want))
        axes.append(f"{{{', '.join((*sizes, *map(_float, (scale or 0.0, op.crop[index], op.crop[index + 2]))))}}}")
    shape = f"ResizeShape{{{', '.join((*context.printer.all((x.shape[0], x.shape[3])), *axes))}}}"
    outside = f"store<{type_}>({literal(op.outside, x.dtype)})" if is_cropped else f"{type_}{{}}"
    resizing = f"Resizing<{type_}>{{coordinates::{op.coordinates}, {flag(is_cropped)}, {outside}}}"
    more = {
        "nearest": (f"roundings::{op.rounding}",),
        "linear": (),
        "cubic": (_float(op.cubic), flag(op.excludes_outside)),
    }[op.mode]
    body = CallContext(params, op.name, (type_,), (shape, resizing, *more, "x", "y"))
    return KernelSpec(_RESIZE, group.name, body, (context.read(x), context.write(y)))


def _float(number: float) -> str:
    return f"{float(np.float32(number)).hex()}f"


def emit_grid_sample(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, GridSample)
    x, grid = node.inputs
    cpp = x.dtype.cpp
    params = (Param("x", cpp), Param("grid", cpp), Param("y", cpp, written=True))
    shape = f"GridShape{{{', '.join(context.printer.all((*x.shape, *grid.shape[1:3])))}}}"
    types = (cpp, f"GridPadding::{op.padding}", flag(op.align_corners))
    body = CallContext(params, op.name, types, (shape, "x", "grid", "y"))
    return KernelSpec(_GRID, group.name, body, (context.read(x), context.read(grid), context.write(node.output)))


def emit_roi_align(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, RoiAlign)
    x, rois, _ = node.inputs
    cpp = x.dtype.cpp
    reads = (Param("x", cpp), Param("rois", cpp), Param("indices", DType.INT64.cpp))
    params = (*reads, Param("y", cpp, written=True), Param("message", "char"))
    sizes = (*context.printer.all((*x.shape, rois.shape[0])), *map(str, (*op.size, op.samples)), flag(op.half_pixel))
    passed = (f"RegionShape{{{', '.join(sizes)}}}", literal(op.scale, x.dtype), "x", "rois", "indices", "y", "message")
    message = context.message(f"node '{node.origin}': a region is of an image that is not in the batch")
    arguments = (*map(context.read, node.inputs), context.write(node.output), message)
    return KernelSpec(_REGIONS, group.name, CallContext(params, op.name, (cpp,), passed), arguments)


KERNELS = (
    CpuKernel(GridSample, emit_grid_sample, (_GRID,)),
    CpuKernel(Resize2d, emit_resize, (_RESIZE,)),
    CpuKernel(RoiAlign, emit_roi_align, (_REGIONS,)),
)
