"""RoiAlign: before opset 16 places were not moved by half a pixel."""

from __future__ import annotations

from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.windows import CHANNELS_FIRST, CHANNELS_LAST
from ortisan.registry.ops import RoiAlign
from ortisan.registry.refusal import Refused

_ATTRIBUTES = ("mode", "output_height", "output_width", "sampling_ratio", "spatial_scale")


@lowers("RoiAlign", since=10, until=10, attributes=_ATTRIBUTES)
@lowers("RoiAlign", since=16, attributes=[*_ATTRIBUTES, "coordinate_transformation_mode"])
def roi_align(site: Site) -> Value:
    b, x, rois, indices = site.builder, site.need(0), site.need(1), site.need(2)
    if len(x.shape) != 4:
        raise Refused(f"RoiAlign needs images with 4 dims, not {x.type}")
    mode = site.text("mode", "avg")
    default = "half_pixel" if site.version >= 16 else "output_half_pixel"
    coordinates = site.text("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        raise Refused(f"RoiAlign with mode={mode} and coordinate_transformation_mode={coordinates} is not defined")
    size = tuple(int(site.attribute(name, 1)) for name in ("output_height", "output_width"))
    samples, scale = int(site.attribute("sampling_ratio", 0)), float(site.attribute("spatial_scale", 1.0))
    if min(size) < 1 or samples < 0:
        raise Refused(f"RoiAlign to {list(size)} bins of {samples} samples is not defined")
    op = RoiAlign("mean" if mode == "avg" else "max", (size[0], size[1]), samples, scale, coordinates == "half_pixel")
    made = b.add(op, b.permute(x, CHANNELS_LAST), rois, b.cast(indices, DType.INT64))
    return b.permute(made, CHANNELS_FIRST)
