"""A detector like YOLOv8n: features at three sizes, joined down and up, and a box and classes for each of their pixels.

C2f(x)  = conv1x1([a, b, b + conv(conv(b)), ...]),  [a, b] = conv1x1(x)
box     = (pixel - l, pixel - t, pixel + r, pixel + b) stride,  [l, t, r, b] = Softmax(bins) [0 .. 15]
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ortisan.models.network import Network

_BINS = 16
_MOST, _OVERLAP, _SCORE = 10, 0.5, 0.6


def yolo(
    *,
    batch: int | str = "batch",
    image: int = 640,
    width: int = 16,
    classes: int = 80,
    select: bool = False,
    seed: int = 0,
) -> ir.Model:
    """boxes [batch, places, 4] and scores [batch, classes, places]; `select` also has NonMaxSuppression choose some.

    `image` is a multiple of 32.
    """
    net = Network(batch, image, seed)
    levels = _necks(net, _backbone(net, width), width)
    boxes, scores = (
        net.write("Concat", parts, {"axis": 2}) for parts in zip(*_heads(net, levels, width, classes), strict=True)
    )
    sides = [image // 8 >> level for level in range(3)]
    places = sum(side * side for side in sides)
    boxes, scores = _decoded(net, boxes, sides), net.write("Sigmoid", [scores])
    net.write.declare(boxes, "boxes", [batch, places, 4])
    net.write.declare(scores, "scores", [batch, classes, places])
    if not select:
        return net.model("yolo", [boxes, scores])
    limits = (np.array([_MOST]), np.array([_OVERLAP], np.float32), np.array([_SCORE], np.float32))
    chosen = net.write("NonMaxSuppression", [boxes, scores, *map(net.write.constant, limits)])
    chosen.name, chosen.type, chosen.shape = "chosen", ir.TensorType(ir.DataType.INT64), ir.Shape(["chosen", 3])
    return net.model("yolo", [boxes, scores, chosen])


def _backbone(net: Network, width: int) -> list[ir.Value]:
    """The features at an eighth, a sixteenth and a thirty-second of the size."""
    x = net.conv(net.conv(net.pixels, width, 3, 2, "silu"), 2 * width, 3, 2, "silu")
    x = _c2f(net, x, 2 * width, 1, residual=True)
    levels = []
    for times, blocks in ((4, 2), (8, 2), (16, 1)):
        x = _c2f(net, net.conv(x, times * width, 3, 2, "silu"), times * width, blocks, residual=True)
        levels.append(x)
    pooled = [net.conv(levels.pop(), 8 * width, act="silu")]
    for _ in range(3):
        pooled.append(net.pool(pooled[-1], 5, 1))
    return [*levels, net.conv(net.join(*pooled), 16 * width, act="silu")]


def _necks(net: Network, levels: list[ir.Value], width: int) -> list[ir.Value]:
    near, middle, far = levels
    up = _c2f(net, net.join(net.doubled(far), middle), 8 * width, 1, residual=False)
    found = [_c2f(net, net.join(net.doubled(up), near), 4 * width, 1, residual=False)]
    for other, times in ((up, 8), (far, 16)):
        down = net.conv(found[-1], net.channels[found[-1]], 3, 2, "silu")
        found.append(_c2f(net, net.join(down, other), times * width, 1, residual=False))
    return found


def _c2f(net: Network, x: ir.Value, channels: int, blocks: int, *, residual: bool) -> ir.Value:
    parts = net.halves(net.conv(x, channels, act="silu"))
    for _ in range(blocks):
        y = net.conv(net.conv(parts[-1], channels // 2, 3, act="silu"), channels // 2, 3, act="silu")
        parts.append(net.add(parts[-1], y) if residual else y)
    return net.conv(net.join(*parts), channels, act="silu")


def _heads(net: Network, levels: list[ir.Value], width: int, classes: int) -> list[tuple[ir.Value, ir.Value]]:
    """Of each level the bins [batch, 64, pixels] and the logits [batch, classes, pixels]."""
    flat = net.write.constant(np.array([0, 0, -1]))

    def head(x: ir.Value, inner: int, filters: int) -> ir.Value:
        y = net.conv(net.conv(x, inner, 3, act="silu"), inner, 3, act="silu")
        return net.write("Reshape", [net.conv(y, filters), flat])

    return [(head(x, 4 * width, 4 * _BINS), head(x, max(4 * width, classes), classes)) for x in levels]


def _decoded(net: Network, bins: ir.Value, sides: list[int]) -> ir.Value:
    """Corners [batch, places, 4] of the boxes, of their bins [batch, 64, places]."""
    write = net.write
    strides = [8 << level for level in range(len(sides))]
    columns, rows = (
        np.concatenate([np.indices((side, side))[axis].ravel() + 0.5 for side in sides]) for axis in (1, 0)
    )
    pixels = np.stack([columns, rows, columns, rows], 1).astype(np.float32)[None]
    scale = np.concatenate([np.full(side * side, stride) for side, stride in zip(sides, strides, strict=True)])
    split = write("Reshape", [bins, write.constant(np.array([0, 4, _BINS, -1]))])
    shares = write("Softmax", [write("Transpose", [split], {"perm": [0, 3, 1, 2]})], {"axis": -1})
    numbers = write.constant(np.arange(_BINS, dtype=np.float32)[:, None])
    distances = write("Squeeze", [write("MatMul", [shares, numbers]), write.constant(np.array([-1]))])
    signed = write("Mul", [distances, write.constant(np.array([-1, -1, 1, 1], np.float32))])
    corners = write("Add", [signed, write.constant(pixels)])
    return write("Mul", [corners, write.constant(scale.astype(np.float32)[None, :, None])])
