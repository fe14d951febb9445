"""The table of the CPU backend: one row per op, from one module per family of ops."""

from __future__ import annotations

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, ScalarCall
from ortisan.codegen.cpu.kernels import (
    attention,
    cache,
    elementwise,
    gather,
    generate,
    images,
    move,
    products,
    reduce,
    rotary,
    rows,
    sampling,
)
from ortisan.codegen.cpu.kernels.images import blocks
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.errors import UnsupportedError
from ortisan.registry.graph import Node, Op

_FAMILIES = (attention, cache, elementwise, gather, generate, images, move, products, reduce, rotary, rows, sampling)
KERNELS: dict[type[Op], CpuKernel] = {kernel.op: kernel for family in _FAMILIES for kernel in family.KERNELS}


def kernel_of(node: Node) -> CpuKernel:
    """The row of a node's op."""
    kernel = KERNELS.get(type(node.op))
    if kernel is None:
        raise UnsupportedError(f"node '{node.origin}': there is no CPU kernel for {node.op.stem}; exclude the node")
    return kernel


def objection(node: Node) -> str | None:
    """Why there is no kernel for a node."""
    kernel = KERNELS.get(type(node.op))
    return f"there is no CPU kernel for {node.op.stem} yet" if kernel is None else kernel.objection(node)


def scalar_call(node: Node) -> ScalarCall:
    """What a loop calls for an elementwise node."""
    scalar = kernel_of(node).scalar
    if scalar is None:
        raise TypeError(f"{node.op.name} is not elementwise")
    return scalar(node)


def follows(node: Node, before: Group) -> bool:
    """Whether a node runs in one kernel behind the group that makes its first input and that nobody else reads."""
    return blocks.expands(node, before) or blocks.projects(node, before)


def emit(group: Group, context: EmitContext) -> KernelSpec:
    """The kernel of a group."""
    if group.before is not None:
        return blocks.emit_block(group, context)
    first = group.nodes[0]
    kernel = kernel_of(first)
    if kernel.emit is None:
        raise TypeError(f"{first.op.name} runs no kernel")
    spec = kernel.emit(group, context)
    if spec.template not in kernel.templates:
        raise TypeError(f"the row of {first.op.name} does not name the template '{spec.template.name}'")
    return spec
