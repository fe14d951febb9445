"""The U-Net of Stable Diffusion 1.5: it predicts the noise in latent images, at a time, for the states of a text.

res(x, t):     shortcut(x) + conv(silu(norm(conv(silu(norm(x))) + W silu(t))))
transform(x):  x + project(layer(project(norm(x)))),  layer: attention to the image, to the text, a gated perceptron

Group norms are written as torch's older exporter writes them: an instance norm of the groups between two reshapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.models.writer import Writer


@dataclass(frozen=True)
class DiffusionSize:
    """The sizes of the U-Net; `levels` are multiples of the width, and all but the last have attention."""

    width: int = 320
    levels: tuple[int, ...] = (1, 2, 4, 4)
    layers: int = 2
    heads: int = 8
    groups: int = 32
    states: int = 768
    tokens: int = 77


def diffusion_unet(
    size: DiffusionSize | None = None, *, batch: int | str = "batch", image: int | str = "image", seed: int = 0
) -> ir.Model:
    """(sample [batch, 4, image, image], timestep [batch], states [batch, tokens, states]) -> noise like the sample."""
    return _Unet(size or DiffusionSize(), batch, image, seed).model()


class _Unet:
    def __init__(self, size: DiffusionSize, batch: int | str, image: int | str, seed: int) -> None:
        self.size, self.write = size, Writer(seed)
        self.shape = [batch, 4, image, image]
        self.sample = self.write.input("sample", self.shape, ir.DataType.FLOAT)
        self.time = self.write.input("timestep", [batch])
        self.states = self.write.input("encoder_hidden_states", [batch, size.tokens, size.states], ir.DataType.FLOAT)
        self.channels: dict[ir.Value, int] = {self.sample: 4}
        self._count = 0

    def model(self) -> ir.Model:
        size, time = self.size, self._time()
        widths = [size.width * level for level in size.levels]
        x = self._conv(self.sample, size.width)
        seen = [x]
        for level, width in enumerate(widths):
            for _ in range(size.layers):
                x = self._block(x, width, time, attends=level + 1 < len(widths))
                seen.append(x)
            if level + 1 < len(widths):
                x = self._conv(x, width, stride=2)
                seen.append(x)
        x = self._residual(self._block(x, widths[-1], time, attends=True), widths[-1], time)
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(size.layers + 1):
                x = self._block(self._join(x, seen.pop()), width, time, attends=level + 1 < len(widths))
            if level:
                x = self._conv(self._doubled(x), width)
        noise = self._conv(self._silu(self._norm(x)), 4)
        self.write.declare(noise, "out_sample", self.shape)
        inputs = [self.sample, self.time, self.states]
        return self.write.model("diffusion_unet", inputs, [noise], opset=17, ir_version=8)

    def _block(self, x: ir.Value, width: int, time: ir.Value, *, attends: bool) -> ir.Value:
        x = self._residual(x, width, time)
        return self._transform(x) if attends else x

    def _time(self) -> ir.Value:
        """Sines and cosines of the time, through a perceptron."""
        half, inner = self.size.width // 2, self.size.width * 4
        rates = np.exp(-math.log(10000) * np.arange(half, dtype=np.float32) / half)[None]
        steps = self.write("Unsqueeze", [self.write("Cast", [self.time], {"to": 1}), self._ints(1)])
        angles = self.write("Mul", [steps, self.write.constant(rates)])
        waves = self.write("Concat", [self.write("Cos", [angles]), self.write("Sin", [angles])], {"axis": -1})
        first = self._silu(self._linear(waves, self.size.width, inner))
        return self._silu(self._linear(first, inner, inner))

    def _residual(self, x: ir.Value, width: int, time: ir.Value) -> ir.Value:
        y = self._conv(self._silu(self._norm(x)), width)
        shift = self._linear(time, self.size.width * 4, width)
        y = self._like(self.write("Add", [y, self.write("Unsqueeze", [shift, self._ints(2, 3)])]), y)
        y = self._conv(self._silu(self._norm(y)), width, gain=0.3)
        x = x if self.channels[x] == width else self._conv(x, width, kernel=1)
        return self._like(self.write("Add", [x, y]), y)

    def _transform(self, x: ir.Value) -> ir.Value:
        width = self.channels[x]
        y = self._conv(self._norm(x, 1e-6), width, kernel=1)
        shape = self.write("Shape", [y])
        flat = self.write("Reshape", [self.write("Transpose", [y], {"perm": [0, 2, 3, 1]}), self._ints(0, -1, width)])
        flat = self._layer(flat, width)
        parts = [self.write("Gather", [shape, self._ints(axis)], {"axis": 0}) for axis in (0, 2, 3)]
        places = self.write("Concat", [*parts, self._ints(width)], {"axis": 0})
        back = self.write("Transpose", [self.write("Reshape", [flat, places])], {"perm": [0, 3, 1, 2]})
        self.channels[back] = width
        return self._like(self.write("Add", [self._conv(back, width, kernel=1, gain=0.3), x]), x)

    def _layer(self, x: ir.Value, width: int) -> ir.Value:
        x = self.write("Add", [x, self._attention(self._layer_norm(x, width), None, width)])
        x = self.write("Add", [x, self._attention(self._layer_norm(x, width), self.states, width)])
        wide = self._linear(self._layer_norm(x, width), width, 8 * width)
        part, gate = self.write.several("Split", [wide, self._ints(4 * width, 4 * width)], 2, {"axis": -1})
        erf = self.write("Erf", [self.write("Div", [gate, self.write.constant(np.float32(math.sqrt(2)))])])
        bell = self.write("Mul", [gate, self.write("Add", [erf, self.write.constant(np.float32(1))])])
        gelu = self.write("Mul", [bell, self.write.constant(np.float32(0.5))])
        return self.write("Add", [x, self._linear(self.write("Mul", [part, gelu]), 4 * width, width)])

    def _attention(self, x: ir.Value, states: ir.Value | None, width: int) -> ir.Value:
        """Of the image to itself, or to the states of the text."""
        source, inner = (x, width) if states is None else (states, self.size.states)
        rows, columns = {"perm": [0, 2, 1, 3]}, {"perm": [0, 2, 3, 1]}
        q = self.write("Transpose", [self._heads(x, width, width)], rows)
        k = self.write("Transpose", [self._heads(source, inner, width)], columns)
        v = self.write("Transpose", [self._heads(source, inner, width)], rows)
        scale = self.write.constant(np.float32((width // self.size.heads) ** -0.5))
        logits = self.write("Mul", [self.write("MatMul", [q, k]), scale])
        mixed = self.write("MatMul", [self.write("Softmax", [logits], {"axis": -1}), v])
        together = self.write("Transpose", [mixed], {"perm": [0, 2, 1, 3]})
        return self._linear(self.write("Reshape", [together, self._ints(0, -1, width)]), width, width)

    def _heads(self, x: ir.Value, inner: int, width: int) -> ir.Value:
        made = self.write("MatMul", [x, self.write.matrix(self._name("to.weight"), inner, width)])
        return self.write("Reshape", [made, self._ints(0, -1, self.size.heads, width // self.size.heads)])

    def _linear(self, x: ir.Value, inner: int, outer: int) -> ir.Value:
        name = self._name("linear")
        made = self.write("MatMul", [x, self.write.matrix(f"{name}.weight", inner, outer)])
        return self.write("Add", [made, self.write.vector(f"{name}.bias", outer)])

    def _norm(self, x: ir.Value, epsilon: float = 1e-5) -> ir.Value:
        groups, channels, name = self.size.groups, self.channels[x], self._name("norm")
        ones, zeros = (self.write.constant(np.full(groups, number, np.float32)) for number in (1, 0))
        grouped = self.write("Reshape", [x, self._ints(0, groups, -1)])
        normal = self.write("InstanceNormalization", [grouped, ones, zeros], {"epsilon": epsilon})
        y = self.write("Reshape", [normal, self.write("Shape", [x])])
        for op, kind, around in (("Mul", "weight", 1.0), ("Add", "bias", 0.0)):
            factor = self.write.vector(f"{name}.{kind}", channels, around=around)
            y = self.write(op, [y, self.write("Unsqueeze", [factor, self._ints(1, 2)])])
        return self._like(y, x)

    def _layer_norm(self, x: ir.Value, width: int) -> ir.Value:
        name = self._name("layer_norm")
        affine = [self.write.vector(f"{name}.weight", width, around=1.0), self.write.vector(f"{name}.bias", width)]
        return self.write("LayerNormalization", [x, *affine], {"axis": -1})

    def _conv(self, x: ir.Value, filters: int, *, kernel: int = 3, stride: int = 1, gain: float = 1.0) -> ir.Value:
        name = self._name("conv")
        operands = [x, self.write.filters(f"{name}.weight", filters, self.channels[x], kernel, kernel, gain=gain)]
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = self.write("Conv", [*operands, self.write.vector(f"{name}.bias", filters)], attributes, at=name)
        self.channels[y] = filters
        return y

    def _doubled(self, x: ir.Value) -> ir.Value:
        how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        scales = self.write.constant(np.array([1, 1, 2, 2], np.float32))
        return self._like(self.write("Resize", [x, None, scales], how), x)

    def _join(self, x: ir.Value, y: ir.Value) -> ir.Value:
        made = self.write("Concat", [x, y], {"axis": 1})
        self.channels[made] = self.channels[x] + self.channels[y]
        return made

    def _silu(self, x: ir.Value) -> ir.Value:
        y = self.write("Mul", [x, self.write("Sigmoid", [x])])
        return self._like(y, x) if x in self.channels else y

    def _like(self, y: ir.Value, x: ir.Value) -> ir.Value:
        self.channels[y] = self.channels[x]
        return y

    def _ints(self, *numbers: int) -> ir.Value:
        return self.write.constant(np.array(numbers))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}.{self._count}"
