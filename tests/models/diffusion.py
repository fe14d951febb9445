"""A small U-Net as diffusion models have it: residual blocks with a time, attention to a text, one level down and up."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ortisan.models.writer import Writer

CHANNELS, GROUPS, HEADS, IMAGE, LATENT, TEXT, TIME = 32, 8, 4, 8, 4, 24, 32


def diffusion(*, image: int = IMAGE, seed: int = 3) -> ir.Model:
    """noise [batch, 4, image, image] of sample, time [batch, 32] and text [batch, tokens, 24]."""
    return _Block(image, seed).model()


class _Block:
    def __init__(self, image: int, seed: int) -> None:
        self.write, self.image = Writer(seed), image
        self.sample, self.time, self.text = (
            self.write.input(name, ["batch", *shape], ir.DataType.FLOAT)
            for name, shape in (("sample", (LATENT, image, image)), ("time", (TIME,)), ("text", ("tokens", TEXT)))
        )

    def model(self) -> ir.Model:
        write = self.write
        x = self.conv(self.sample, LATENT, CHANNELS, "in")
        x = self.attention(self.residual(x, CHANNELS, "first"), "first")
        skip = x
        x = self.residual(self.conv(x, CHANNELS, CHANNELS, "down", stride=2), CHANNELS, "middle")
        scales = write.constant(np.array([1, 1, 2, 2], np.float32))
        how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        x = self.conv(write("Resize", [x, None, scales], how), CHANNELS, CHANNELS, "up")
        x = self.residual(write("Concat", [x, skip], {"axis": 1}), 2 * CHANNELS, "last")
        noise = self.conv(self.silu(self.group_norm(x, CHANNELS, "out")), CHANNELS, LATENT, "out")
        write.declare(noise, "noise", ["batch", LATENT, self.image, self.image])
        return write.model("diffusion", [self.sample, self.time, self.text], [noise], opset=17, ir_version=8)

    def conv(self, x: ir.Value, channels: int, filters: int, name: str, *, size: int = 3, stride: int = 1) -> ir.Value:
        weights = [
            self.write.filters(f"{name}.weight", filters, channels, size),
            self.write.vector(f"{name}.bias", filters),
        ]
        how = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "strides": [stride] * 2}
        return self.write("Conv", [x, *weights], how, at=name)

    def silu(self, x: ir.Value) -> ir.Value:
        return self.write("Mul", [x, self.write("Sigmoid", [x])])

    def group_norm(self, x: ir.Value, channels: int, name: str) -> ir.Value:
        """As PyTorch's exporter writes it."""
        write = self.write
        ones, zeros = (write.constant(np.full(GROUPS, number, np.float32)) for number in (1, 0))
        flat = write("Reshape", [x, write.constant(np.array([0, GROUPS, -1]))])
        y = write("InstanceNormalization", [flat, ones, zeros], {"epsilon": 1e-5}, at=f"{name}.norm")
        y = write("Reshape", [y, write("Shape", [x])])
        for op, part, around in (("Mul", "weight", 1.0), ("Add", "bias", 0.0)):
            vector = write.vector(f"{name}.norm.{part}", channels, around=around)
            y = write(op, [y, write("Unsqueeze", [vector, write.constant(np.array([1, 2]))])])
        return y

    def residual(self, x: ir.Value, channels: int, name: str) -> ir.Value:
        """x, narrowed where it is wide, + conv(silu(norm(conv(silu(norm(x))) + time)))."""
        write = self.write
        y = self.conv(self.silu(self.group_norm(x, channels, f"{name}.0")), channels, CHANNELS, f"{name}.0")
        time = self.dense(self.silu(self.time), TIME, CHANNELS, f"{name}.time")
        y = write("Add", [y, write("Unsqueeze", [time, write.constant(np.array([2, 3]))])])
        y = self.conv(self.silu(self.group_norm(y, CHANNELS, f"{name}.1")), CHANNELS, CHANNELS, f"{name}.1")
        return write(
            "Add", [y, x if channels == CHANNELS else self.conv(x, channels, CHANNELS, f"{name}.skip", size=1)]
        )

    def dense(self, x: ir.Value, inner: int, outer: int, name: str, *, bias: bool = True) -> ir.Value:
        y = self.write("MatMul", [x, self.write.matrix(f"{name}.weight", inner, outer)], at=name)
        return self.write("Add", [y, self.write.vector(f"{name}.bias", outer)]) if bias else y

    def attention(self, x: ir.Value, name: str) -> ir.Value:
        """x + a transformer's block over its pixels: to themselves, to the text, and a gated unit."""
        write = self.write
        y = self.conv(self.group_norm(x, CHANNELS, f"{name}.in"), CHANNELS, CHANNELS, f"{name}.in", size=1)
        y = write(
            "Reshape", [write("Transpose", [y], {"perm": [0, 2, 3, 1]}), write.constant(np.array([0, -1, CHANNELS]))]
        )
        norm = self.layer_norm(y, f"{name}.self")
        y = write("Add", [y, self.attend(norm, norm, CHANNELS, f"{name}.self")])
        y = write("Add", [y, self.attend(self.layer_norm(y, f"{name}.text"), self.text, TEXT, f"{name}.text")])
        wide = self.dense(self.layer_norm(y, f"{name}.gate"), CHANNELS, 8 * CHANNELS, f"{name}.wide")
        halves = write.constant(np.array([4 * CHANNELS] * 2))
        left, right = write.several("Split", [wide, halves], 2, {"axis": -1})
        y = write(
            "Add", [y, self.dense(write("Mul", [left, self.gelu(right)]), 4 * CHANNELS, CHANNELS, f"{name}.narrow")]
        )
        shape = write.constant(np.array([-1, self.image, self.image, CHANNELS]))
        y = write("Transpose", [write("Reshape", [y, shape])], {"perm": [0, 3, 1, 2]})
        return write("Add", [x, self.conv(y, CHANNELS, CHANNELS, f"{name}.back", size=1)])

    def layer_norm(self, x: ir.Value, name: str) -> ir.Value:
        vectors = [
            self.write.vector(f"{name}.gamma", CHANNELS, around=1.0),
            self.write.vector(f"{name}.beta", CHANNELS),
        ]
        return self.write("LayerNormalization", [x, *vectors], {"axis": -1, "epsilon": 1e-5})

    def gelu(self, x: ir.Value) -> ir.Value:
        write = self.write
        erf = write("Erf", [write("Div", [x, write.constant(np.float32(math.sqrt(2)))])])
        half = write("Mul", [x, write("Add", [erf, write.constant(np.float32(1))])])
        return write("Mul", [half, write.constant(np.float32(0.5))])

    def attend(self, x: ir.Value, to: ir.Value, width: int, name: str) -> ir.Value:
        write = self.write
        shape = write.constant(np.array([0, -1, HEADS, CHANNELS // HEADS]))

        def heads(value: ir.Value, inner: int, part: str, order: tuple[int, ...]) -> ir.Value:
            made = self.dense(value, inner, CHANNELS, f"{name}.{part}", bias=False)
            return write("Transpose", [write("Reshape", [made, shape])], {"perm": order})

        q, k = heads(x, CHANNELS, "q", (0, 2, 1, 3)), heads(to, width, "k", (0, 2, 3, 1))
        scaled = write("Mul", [write("MatMul", [q, k]), write.constant(np.float32((CHANNELS // HEADS) ** -0.5))])
        seen = write("MatMul", [write("Softmax", [scaled], {"axis": -1}), heads(to, width, "v", (0, 2, 1, 3))])
        joined = write(
            "Reshape", [write("Transpose", [seen], {"perm": [0, 2, 1, 3]}), write.constant(np.array([0, -1, CHANNELS]))]
        )
        return self.dense(joined, CHANNELS, CHANNELS, f"{name}.out")
