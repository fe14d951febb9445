"""GridSample of images, as defined in opset 16 and with the words of opset 20."""

from __future__ import annotations

from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.windows import CHANNELS_FIRST, CHANNELS_LAST
from ortisan.registry.ops import GridSample
from ortisan.registry.ops.sampling import Mode
from ortisan.registry.refusal import Refused

_MODES: dict[str, Mode] = {
    "nearest": "nearest",
    "bilinear": "linear",
    "linear": "linear",
    "bicubic": "cubic",
    "cubic": "cubic",
}


@lowers("GridSample", since=16, attributes=["align_corners", "mode", "padding_mode"])
def grid_sample(site: Site) -> Value:
    b, x, grid = site.builder, site.need(0), site.need(1)
    if len(x.shape) != 4:
        raise Refused(f"GridSample is supported for images, with 4 dims, not for {x.type}")
    mode, padding = site.text("mode", "linear"), site.text("padding_mode", "zeros")
    if mode not in _MODES:
        raise Refused(f"GridSample with mode={mode} is not defined")
    if padding not in ("zeros", "border", "reflection"):
        raise Refused(f"GridSample with padding_mode={padding} is not defined")
    op = GridSample(_MODES[mode], padding, bool(site.attribute("align_corners", 0)))  # type: ignore[arg-type]
    return b.permute(b.add(op, b.permute(x, CHANNELS_LAST), b.cast(grid, x.dtype)), CHANNELS_FIRST)
