"""Nodes that shape inference can't see through: what they make stays unknown, and inference goes on behind them.

A node is opaque when its op has no rule, or when its rule fails. The reason is kept on the node, so that whoever needs
the type of a later value can say where the knowledge ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, registry

from ortisan.registry.dims import is_long
from ortisan.registry.surprise import Surprise, surprises

Rule = Callable[[ShapeInferenceContext, ir.Node], None]

OPAQUE = "ortisan.opaque"
_guarded: ContextVar[bool] = ContextVar("guarded", default=False)


@contextmanager
def opaque_failures() -> Iterator[None]:
    """Inside, a rule that fails makes its node opaque. Elsewhere the rules of the package fail as they always did."""
    token = _guarded.set(True)
    try:
        yield
    finally:
        _guarded.reset(token)


@functools.cache
def guard_rules() -> None:
    """Wraps every rule that is registered; called when all are."""
    for domain, op_type, versions in list(registry.iter_supported()):
        for version in dict.fromkeys(versions):
            rule = registry.get(domain, op_type, version)
            if rule is not None:
                registry.register(domain, op_type, since_version=version)(guard(rule))


def guard(rule: Rule) -> Rule:
    """The rule, as it is inside of `opaque_failures`: it never fails, and makes no long dims."""

    def guarded(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        if not _guarded.get():
            rule(ctx, node)
            return
        node.metadata_props.pop(OPAQUE, None)
        try:
            with surprises():
                rule(ctx, node)
        except Surprise as surprise:
            node.metadata_props[OPAQUE] = f"fails in shape inference ({surprise})"
        for value in node.outputs:
            _forget_long_dims(ctx, value)

    return guarded


def _forget_long_dims(ctx: ShapeInferenceContext, value: ir.Value) -> None:
    """Gives a dim that is made of very many parts a name of its own: its arithmetic would take longer each time."""
    if value.shape is None or all(isinstance(dim, int) or _is_short(dim) for dim in value.shape):
        return
    value.shape = ir.Shape(
        [dim if isinstance(dim, int) or _is_short(dim) else ctx.new_symbolic_dim() for dim in value.shape]
    )


def _is_short(dim: ir.SymbolicDim) -> bool:
    return dim.value is None or not is_long(dim._expr)  # the parsed form of dim.value, which has no public name


def has_failures(model: ir.Model) -> bool:
    """Whether the rule of any node failed."""
    return any(OPAQUE in node.metadata_props for node in model.graph.all_nodes())


def why_unknown(value: ir.Value) -> str:
    """Where the knowledge about a value without type or rank ends: the first node on the way to it that hides it."""
    seen: set[ir.Value] = set()
    while (node := value.producer()) is not None:
        source = next((each for each in node.inputs if each is not None and _is_unknown(each)), None)
        if source is None or source in seen or OPAQUE in node.metadata_props:
            break
        seen.add(source)
        value = source
    if node is None:
        return f"the model does not declare it for '{value.name}'"
    reason = node.metadata_props.get(OPAQUE)
    if reason is None and not registry.has(node.domain, node.op_type):
        reason = "has no rule of shape inference"
    return f"{node.op_type} '{node.name}' {reason or 'makes what only its data decides'}"


def _is_unknown(value: ir.Value) -> bool:
    return value.dtype is None or value.shape is None
