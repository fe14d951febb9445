"""Convolutional networks that are not in the package, random weights.

ConvNeXt:  x + gamma W gelu(V LayerNorm(depthwise7x7(x)))         norm and products over channels, between permutes
wav2vec2:  y = gelu(LayerNorm(conv(y))) seven times, W LayerNorm(y), then x + gelu(conv128(x)) in 16 groups
U-Net:     residual, transformer, residual; residual = x + conv(silu(norm(conv(silu(norm(x))) + W silu(time))))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.models.network import Network
from ortisan.models.writer import Writer

_OPSET = 17
_IR_VERSION = 8
_EPSILON = 1e-6
_GAIN = 0.2


@dataclass(frozen=True)
class _Block:
    """An inverted block of MobileNetV3: `inner` channels in its middle, gated or not."""

    size: int
    inner: int
    channels: int
    gated: bool
    act: str
    stride: int = 1


_SMALL = (
    _Block(3, 16, 16, True, "Relu", 2),
    _Block(3, 72, 24, False, "Relu", 2),
    _Block(3, 88, 24, False, "Relu"),
    _Block(5, 96, 40, True, "HardSwish", 2),
    *(_Block(5, 240, 40, True, "HardSwish"),) * 2,
    _Block(5, 120, 48, True, "HardSwish"),
    _Block(5, 144, 48, True, "HardSwish"),
    _Block(5, 288, 96, True, "HardSwish", 2),
    *(_Block(5, 576, 96, True, "HardSwish"),) * 2,
)


def mobilenet_v3(*, image: int = 224, classes: int = 1000, seed: int = 0) -> ir.Model:
    """MobileNetV3-small; its gates are HardSigmoid(W relu(V mean(y)))."""
    net = Network("batch", image, seed)
    x = net.conv(net.pixels, 16, 3, 2, "HardSwish")
    for block in _SMALL:
        y = net.conv(x, block.inner, act=block.act) if block.inner != net.channels[x] else x
        y = net.conv(y, block.inner, block.size, block.stride, block.act, groups=block.inner)
        if block.gated:
            few = net.conv(net.mean(y), -(-block.inner // 32) * 8, act="Relu")
            gate = net.write("HardSigmoid", [net.conv(few, block.inner)], {"alpha": 1 / 6})
            y = net.mul(y, gate)
        y = net.conv(y, block.channels)
        x = net.add(x, y) if block.stride == 1 and net.channels[x] == block.channels else y
    y = net.mean(net.conv(x, 576, act="HardSwish"))
    return net.classifier(net.conv(y, 1024, act="HardSwish"), classes, "mobilenet_v3")


def convnext(*, image: int = 224, classes: int = 1000, seed: int = 0) -> ir.Model:
    """ConvNeXt-tiny."""
    net = Network("batch", image, seed)
    x = net.pixels
    for index, (channels, blocks) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if index == 0:
            x = _norm_of_images(net, _patches(net, x, channels, 4), channels)
        else:
            x = _patches(net, _norm_of_images(net, x, channels // 2), channels, 2)
        for _ in range(blocks):
            y = net.conv(x, channels, 7, groups=channels)
            x = net.add(x, _mixed(net, y, channels))
    return net.classifier(x, classes, "convnext")


def _patches(net: Network, x: ir.Value, filters: int, side: int) -> ir.Value:
    """A convolution over patches that don't overlap."""
    weight = net.write.filters(f"patches.{filters}", filters, net.channels[x], side, side)
    bias = net.write.vector(f"patches.{filters}.bias", filters)
    y = net.write("Conv", [x, weight, bias], {"kernel_shape": [side] * 2, "strides": [side] * 2})
    net.channels[y] = filters
    return y


def _norm_of_images(net: Network, x: ir.Value, channels: int) -> ir.Value:
    last = net.write("Transpose", [x], {"perm": [0, 2, 3, 1]})
    y = net.write("Transpose", [_norm(net.write, last, channels)], {"perm": [0, 3, 1, 2]})
    net.channels[y] = channels
    return y


def _mixed(net: Network, x: ir.Value, channels: int) -> ir.Value:
    write = net.write
    y = _norm(write, write("Transpose", [x], {"perm": [0, 2, 3, 1]}), channels)
    y = _dense(write, _gelu(write, _dense(write, y, channels, 4 * channels)), 4 * channels, channels)
    y = write("Mul", [y, write.vector(_new(write, "gamma"), channels, around=_GAIN)])
    y = write("Transpose", [y], {"perm": [0, 3, 1, 2]})
    net.channels[y] = channels
    return y


def sound(*, width: int = 512, hidden: int = 768, seed: int = 0) -> ir.Model:
    """The convolutions of wav2vec2, from sound [batch, samples] to states [batch, frames, hidden]."""
    write = Writer(seed)
    samples = write.input("samples", ["batch", "length"], ir.DataType.FLOAT)
    y, channels = write("Unsqueeze", [samples, write.constant(np.array([1]))]), 1
    for size, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)):
        weight = write.filters(_new(write, "filters"), width, channels, size, gain=2.0)
        bias = write.vector(_new(write, "bias"), width)
        y, channels = write("Conv", [y, weight, bias], {"kernel_shape": [size], "strides": [stride]}), width
        y = write("Transpose", [y], {"perm": [0, 2, 1]})
        y = write("Transpose", [_gelu(write, _norm(write, y, width))], {"perm": [0, 2, 1]})
    x = _dense(write, _norm(write, write("Transpose", [y], {"perm": [0, 2, 1]}), width), width, hidden)
    first = write("Transpose", [x], {"perm": [0, 2, 1]})
    weight = write.filters(_new(write, "filters"), hidden, hidden // 16, 128)
    attributes = {"kernel_shape": [128], "pads": [64, 63], "group": 16}
    places = write("Conv", [first, weight, write.vector(_new(write, "bias"), hidden)], attributes)
    states = write("Add", [x, write("Transpose", [_gelu(write, places)], {"perm": [0, 2, 1]})])
    write.declare(states, "states", ["batch", "frames", hidden])
    return write.model("sound", [samples], [states], opset=_OPSET, ir_version=_IR_VERSION)


def diffusion_middle(
    *, side: int = 8, channels: int = 1280, heads: int = 8, context: int = 768, seed: int = 0
) -> ir.Model:
    """The middle block of Stable Diffusion 1.5's U-Net: image [batch, 1280, 8, 8], time and text to the same image."""
    net = Network("batch", side, seed)
    write = net.write
    image = write.input("image", ["batch", channels, side, side], ir.DataType.FLOAT)
    time = write.input("time", ["batch", channels], ir.DataType.FLOAT)
    text = write.input("text", ["batch", "tokens", context], ir.DataType.FLOAT)
    net.channels[image] = channels
    x = _residual(net, image, time, channels)
    x = _transformer(net, x, text, heads, context)
    x = _residual(net, x, time, channels)
    write.declare(x, "same_image", ["batch", channels, side, side])
    return write.model("diffusion_middle", [image, time, text], [x], opset=_OPSET, ir_version=_IR_VERSION)


def _residual(net: Network, x: ir.Value, time: ir.Value, channels: int) -> ir.Value:
    write = net.write
    y = net.conv(net.act(_group_norm(net, x), "silu"), channels, 3)
    moved = _dense(write, write("Mul", [time, write("Sigmoid", [time])]), channels, channels)
    y = net.add(y, write("Unsqueeze", [moved, write.constant(np.array([2, 3]))]))
    return net.add(x, net.conv(net.act(_group_norm(net, y), "silu"), channels, 3, gain=_GAIN))


def _group_norm(net: Network, x: ir.Value, groups: int = 32) -> ir.Value:
    """As exporters write it."""
    write, channels = net.write, net.channels[x]
    grouped = write("Reshape", [x, write.constant(np.array([0, groups, -1]))])
    ones, zeros = (write.constant(np.full(groups, value, np.float32)) for value in (1, 0))
    normed = write("InstanceNormalization", [grouped, ones, zeros], {"epsilon": _EPSILON})
    y = write("Reshape", [normed, write("Shape", [x])])
    axes = write.constant(np.array([1, 2]))
    for op, around in (("Mul", 1.0), ("Add", 0.0)):
        vector = write.vector(_new(write, "norm"), channels, around=around)
        y = write(op, [y, write("Unsqueeze", [vector, axes])])
    net.channels[y] = channels
    return y


def _transformer(net: Network, x: ir.Value, text: ir.Value, heads: int, context: int) -> ir.Value:
    write, channels = net.write, net.channels[x]
    y = net.conv(_group_norm(net, x), channels)
    y = write("Reshape", [y, write.constant(np.array([0, channels, -1]))])
    y = write("Transpose", [y], {"perm": [0, 2, 1]})
    normed = _norm(write, y, channels)
    y = write("Add", [y, _attention(write, normed, normed, hidden=channels, heads=heads, context=channels)])
    normed = _norm(write, y, channels)
    y = write("Add", [y, _attention(write, normed, text, hidden=channels, heads=heads, context=context)])
    wide = _dense(write, _norm(write, y, channels), channels, 8 * channels)
    half = write.constant(np.array([4 * channels, 4 * channels]))
    value, gate = write.several("Split", [wide, half], 2, {"axis": -1})
    y = write("Add", [y, _dense(write, write("Mul", [value, _gelu(write, gate)]), 4 * channels, channels)])
    y = write("Transpose", [y], {"perm": [0, 2, 1]})
    y = write("Reshape", [y, write("Shape", [x])])
    net.channels[y] = channels
    return net.add(x, net.conv(y, channels, gain=_GAIN))


def _attention(write: Writer, x: ir.Value, source: ir.Value, *, hidden: int, heads: int, context: int) -> ir.Value:
    """Of the pixels x to the source."""
    cut = write.constant(np.array([0, 0, heads, hidden // heads]))

    def cut_heads(value: ir.Value, inner: int, perm: list[int]) -> ir.Value:
        rows = write("MatMul", [value, write.matrix(_new(write, "heads"), inner, hidden)])
        return write("Transpose", [write("Reshape", [rows, cut])], {"perm": perm})

    q, k = cut_heads(x, hidden, [0, 2, 1, 3]), cut_heads(source, context, [0, 2, 3, 1])
    v = cut_heads(source, context, [0, 2, 1, 3])
    scale = write.constant(np.float32((hidden // heads) ** -0.5))
    shares = write("Softmax", [write("Mul", [write("MatMul", [q, k]), scale])], {"axis": -1})
    joined = write("Transpose", [write("MatMul", [shares, v])], {"perm": [0, 2, 1, 3]})
    rows = write("Reshape", [joined, write.constant(np.array([0, 0, hidden]))])
    return _dense(write, rows, hidden, hidden)


def _dense(write: Writer, x: ir.Value, inner: int, outer: int) -> ir.Value:
    product = write("MatMul", [x, write.matrix(_new(write, "dense"), inner, outer)])
    return write("Add", [product, write.vector(_new(write, "bias"), outer)])


def _norm(write: Writer, x: ir.Value, channels: int) -> ir.Value:
    scale = write.vector(_new(write, "norm.weight"), channels, around=1.0)
    inputs = [x, scale, write.vector(_new(write, "norm.bias"), channels)]
    return write("LayerNormalization", inputs, {"axis": -1, "epsilon": _EPSILON})


def _gelu(write: Writer, x: ir.Value) -> ir.Value:
    error = write("Erf", [write("Div", [x, write.constant(np.float32(2.0**0.5))])])
    double = write("Mul", [x, write("Add", [error, write.constant(np.float32(1))])])
    return write("Mul", [double, write.constant(np.float32(0.5))])


def _new(write: Writer, name: str) -> str:
    """A name that no weight has yet."""
    return f"{name}.{len(write.tape.initializers)}"
