"""Writes convolutional networks: convolutions with batch norms folded in, and what stands between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ortisan.models.writer import Writer

_OPSET = 17
_IR_VERSION = 8


class Network:
    """A network over images, pixel_values [batch, 3, image, image] of float. It knows the channels of what it wrote."""

    def __init__(self, batch: int | str, image: int, seed: int) -> None:
        self.write = Writer(seed)
        self.batch = batch
        self.pixels = self.write.input("pixel_values", [batch, 3, image, image], ir.DataType.FLOAT)
        self.channels = {self.pixels: 3}
        self._convolutions = 0

    def conv(
        self,
        x: ir.Value,
        filters: int,
        size: int = 1,
        stride: int = 1,
        act: str = "",
        *,
        groups: int = 1,
        gain: float | None = None,
    ) -> ir.Value:
        """act(Conv(x) + b), padded so that stride 1 keeps the size. `gain` is by how much it raises the variance."""
        name = f"conv.{self._convolutions}"
        self._convolutions += 1
        gain = gain or (2.0 if act else 1.0)
        weight = self.write.filters(f"{name}.weight", filters, self.channels[x] // groups, size, size, gain=gain)
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4, "group": groups}
        y = self.write("Conv", [x, weight, self.write.vector(f"{name}.bias", filters)], attributes, at=name)
        return self.act(self._with(y, filters), act)

    def act(self, x: ir.Value, act: str) -> ir.Value:
        """An activation by its ONNX name, or relu6 or silu; x itself for none."""
        if not act:
            return x
        if act == "relu6":
            bounds = (self.write.constant(np.float32(bound)) for bound in (0, 6))
            return self._like(self.write("Clip", [x, *bounds]), x)
        if act == "silu":
            return self.mul(x, self.write("Sigmoid", [x]))
        return self._like(self.write(act, [x]), x)

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self._like(self.write("Add", [x, y]), x)

    def mul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self._like(self.write("Mul", [x, y]), x)

    def join(self, *parts: ir.Value) -> ir.Value:
        return self._with(self.write("Concat", parts, {"axis": 1}), sum(self.channels[part] for part in parts))

    def halves(self, x: ir.Value) -> list[ir.Value]:
        """The first and the second half of the channels."""
        half = self.channels[x] // 2
        parts = self.write.several("Split", [x, self.write.constant(np.array([half, half]))], 2, {"axis": 1})
        return [self._with(part, half) for part in parts]

    def pool(self, x: ir.Value, size: int, stride: int) -> ir.Value:
        """The largest element of each window."""
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [(size - 1) // 2] * 4}
        return self._like(self.write("MaxPool", [x], attributes), x)

    def mean(self, x: ir.Value) -> ir.Value:
        return self._like(self.write("GlobalAveragePool", [x]), x)

    def doubled(self, x: ir.Value) -> ir.Value:
        """Each pixel four times."""
        scales = self.write.constant(np.array([1, 1, 2, 2], np.float32))
        how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self._like(self.write("Resize", [x, None, scales], how), x)

    def classifier(self, x: ir.Value, classes: int, name: str) -> ir.Model:
        """The model that ends in logits [batch, classes] of the means of x."""
        weight = self.write.matrix("head.weight", self.channels[x], classes, transposed=True)
        inputs = [self.write("Flatten", [self.mean(x)]), weight, self.write.vector("head.bias", classes)]
        logits = self.write("Gemm", inputs, {"transB": 1}, at="head")
        self.write.declare(logits, "logits", [self.batch, classes])
        return self.model(name, [logits])

    def model(self, name: str, outputs: Sequence[ir.Value]) -> ir.Model:
        return self.write.model(name, [self.pixels], outputs, opset=_OPSET, ir_version=_IR_VERSION)

    def _like(self, y: ir.Value, x: ir.Value) -> ir.Value:
        return self._with(y, self.channels[x])

    def _with(self, y: ir.Value, channels: int) -> ir.Value:
        self.channels[y] = channels
        return y
