"""Conv, MaxPool and AveragePool over images: the channels go last, and back where ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.registry.builder import Builder
from ortisan.registry.dims import is_static
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Conv2d, Pool2d
from ortisan.registry.ops.images import Pads, Pair
from ortisan.registry.refusal import Refused

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_POOL = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")


def _image(site: Site) -> Value:
    x = site.need(0)
    if len(x.shape) != 4:
        raise Refused(f"{site.op_type} is supported for images with 4 dims, not for {x.type}")
    return x


def _numbers(site: Site, name: str, default: Sequence[int]) -> list[int]:
    given = [int(number) for number in site.attributes.get(name) or default]
    if len(given) != len(default):
        raise Refused(f"{site.op_type} is supported for images with 4 dims, and its {name} are {given}")
    return given


def _pair(site: Site, name: str, default: int = 1) -> Pair:
    first, second = _numbers(site, name, (default, default))
    return first, second


def _pads(site: Site) -> Pads:
    kind = site.attributes.get("auto_pad", "NOTSET")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    if kind not in ("NOTSET", "VALID"):
        raise Refused(f"auto_pad={kind} is not supported; write the pads out")
    top, left, bottom, right = given = _numbers(site, "pads", (0, 0, 0, 0)) if kind == "NOTSET" else [0, 0, 0, 0]
    if min(given) < 0:
        raise Refused(f"pads of {given} are not supported")
    return top, left, bottom, right


def _first(b: Builder, y: Value) -> Value:
    return b.permute(y, CHANNELS_FIRST)


@lowers("Conv", attributes=["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])
def conv(site: Site) -> Value:
    b, x, w, bias = site.builder, _image(site), site.need(1), site.optional(2)
    if len(w.shape) != 4 or not all(map(is_static, w.shape)):
        raise Refused(f"Conv needs filters of known size with 4 dims, not {w.type}")
    group = int(site.attribute("group", 1))
    op = Conv2d(_pair(site, "strides"), _pads(site), _pair(site, "dilations"), group, bias is not None)
    operands = [b.permute(x, CHANNELS_LAST), b.permute(w, CHANNELS_LAST), *([bias] if bias is not None else [])]
    return _first(b, b.add(op, *operands))


@lowers("MaxPool", attributes=[*_POOL, "dilations", "storage_order"])
def max_pool(site: Site) -> Value:
    site.refuse_outputs(1)
    if _pair(site, "dilations") != (1, 1):
        raise Refused("MaxPool with dilations is not supported")
    return _pool(site, "max", counts=False)


@lowers("AveragePool", attributes=[*_POOL, "count_include_pad", "dilations"])
def average_pool(site: Site) -> Value:
    if _pair(site, "dilations") != (1, 1):
        raise Refused("AveragePool with dilations is not supported")
    return _pool(site, "mean", counts=bool(site.attribute("count_include_pad", 0)))


def _pool(site: Site, kind: str, *, counts: bool) -> Value:
    b, x = site.builder, _image(site)
    if site.attribute("ceil_mode", 0):
        raise Refused("ceil_mode=1 is not supported")
    op = Pool2d(kind, _pair(site, "kernel_shape"), _pair(site, "strides"), _pads(site), counts)  # type: ignore[arg-type]
    return _first(b, b.add(op, b.permute(x, CHANNELS_LAST)))
