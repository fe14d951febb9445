"""Reductions, ArgMax/ArgMin, CumSum, global pools."""

from __future__ import annotations

from collections.abc import Callable

from ortisan.registry.axes import normalize_axis, read_axes
from ortisan.registry.builder import Builder, known_ints
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import ML_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import ArgReduce, CumSum, Reduce
from ortisan.registry.ops.reduce import reduced_shape
from ortisan.registry.refusal import Refused

_KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}


def reduce_axes(b: Builder, x: Value, kind: str, axes: tuple[int, ...], keepdim: bool) -> Value:
    """Reduces any set of axes; axes that are not adjacent are moved to the end first."""
    if not axes:
        # A reduction over no axes still applies its function to each element.
        one_more = b.reshape(x, (*x.shape, 1))
        return b.add(Reduce(kind, len(x.shape), len(x.shape), keepdim=False), one_more)
    if axes[-1] - axes[0] + 1 == len(axes):
        return b.add(Reduce(kind, axes[0], axes[-1], keepdim), x)
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    moved = b.permute(x, (*kept, *axes))
    result = b.add(Reduce(kind, len(kept), len(x.shape) - 1, keepdim=False), moved)
    return b.reshape(result, reduced_shape(x.shape, axes, keepdim))


def _keeps_dims(site: Site) -> bool:
    """ONNX defines 0 and 1; ONNX Runtime keeps the dims for 1 and no other number."""
    return bool(site.attribute("keepdims", 1) == 1)


def _reduction(kind: str) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        x = site.need(0)
        axes = read_axes(site, len(x.shape), input_index=1)
        if not axes:
            if site.attribute("noop_with_empty_axes", 0):
                if kind not in ("sum", "mean", "max", "min", "prod"):
                    raise Refused("noop_with_empty_axes with no axes is not supported")
                return x
            axes = tuple(range(len(x.shape)))
        return reduce_axes(site.builder, x, kind, axes, _keeps_dims(site))

    return lower


for _op_type, _kind in _KINDS.items():
    lowers(_op_type, attributes=["axes", "keepdims", "noop_with_empty_axes"])(_reduction(_kind))


def _arg(kind: str) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        x = site.need(0)
        axis = normalize_axis(site.attribute("axis", 0), len(x.shape))
        keepdim, last = _keeps_dims(site), bool(site.attribute("select_last_index", 0))
        return site.builder.add(ArgReduce(kind, axis, keepdim, last), x)

    return lower


lowers("ArgMax", attributes=["axis", "keepdims", "select_last_index"])(_arg("max"))
lowers("ArgMin", attributes=["axis", "keepdims", "select_last_index"])(_arg("min"))


@lowers("CumSum", since=11, attributes=["exclusive", "reverse"])
def cumulative_sum(site: Site) -> Value:
    x = site.need(0)
    (axis,) = known_ints(site.need(1), "the axis")
    exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))
    return site.builder.add(CumSum(normalize_axis(axis, len(x.shape)), exclusive, reverse), x)


@lowers("GlobalAveragePool", "GlobalMaxPool")
def global_pool(site: Site) -> Value:
    x = site.need(0)
    if len(x.shape) < 3:
        raise Refused(f"{site.op_type} needs a batch, channels and places, {x.type} has not all of them")
    kind = "max" if site.op_type == "GlobalMaxPool" else "mean"
    return site.builder.add(Reduce(kind, 2, len(x.shape) - 1, True), x)


@lowers("Normalizer", domain=ML_DOMAIN, attributes=["norm"])
def normalizer(site: Site) -> Value:
    """x by the largest element of its row, its sum of absolute values or its length, unless that is 0; in float32."""
    b, x = site.builder, site.need(0)
    norm = site.attribute("norm", "MAX")
    if len(x.shape) not in (1, 2) or norm not in _NORMS:
        raise Refused(f"Normalizer of '{norm}' of {x.type} is not supported")
    rows, axis = b.cast(x, DType.FLOAT32), len(x.shape) - 1
    by = b.add(Reduce(_NORMS[norm], axis, axis, keepdim=True), rows)
    zero = b.number(0.0, DType.FLOAT32)
    return b.elementwise("WHERE", b.elementwise("EQ", by, zero), rows, b.elementwise("DIV", rows, by))


_NORMS = {"MAX": "max", "L1": "l1", "L2": "l2"}
