"""Writes standard ONNX nodes in the spelling of a given opset, to take the place of one contrib node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import tape

Array = npt.NDArray[np.generic]


class Refusal(Exception):
    """Raised if a contrib node can't be unfused; the message says why."""


class StandardOps(tape.Tape):
    """Collects the nodes that replace `node`; constants become initializers of its graph.

    `op` and `op_multi_out` write any node; the methods here are for ops that opsets spell differently or do not have.
    """

    def __init__(self, node: ir.Node, graph: ir.Graph, opset: int) -> None:
        super().__init__()
        self.node, self.graph, self.opset = node, graph, opset

    def constant(self, array: Array, hint: str) -> ir.Value:
        """An initializer with a name made from the node's and `hint`."""
        stem = f"{self.node.name}_{hint}"
        name, suffix = stem, 0
        while name in self.graph.initializers:
            suffix += 1
            name = f"{stem}_{suffix}"
        value = self.initializer(ir.tensor(array, name=name))
        self.graph.register_initializer(value)
        return value

    def like(self, number: float, value: ir.Value, hint: str) -> ir.Value:
        """A scalar of the type of `value`."""
        if value.dtype is None:
            raise Refusal(f"the type of '{value.name}' is unknown")
        return self.constant(np.asarray(number, dtype=value.dtype.numpy()), hint)

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.typed(self.op("Add", [a, b]), a)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.typed(self.op("Mul", [a, b]), a)

    def matmul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.typed(self.op("MatMul", [a, b]), a)

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        return self.typed(self.op("Transpose", [x], {"perm": list(perm)}), x)

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """0 keeps a dim, -1 takes what is left."""
        return self.typed(self.op("Reshape", [x, self.constant(np.array(shape, np.int64), "shape")]), x)

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        result = self.op("Cast", [x], {"to": int(dtype)})
        result.type = ir.TensorType(dtype)
        return result

    def unsqueeze(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self._with_axes("Unsqueeze", x, axes, 13, {})

    def reduce_mean(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self._with_axes("ReduceMean", x, axes, 18, {"keepdims": 1})

    def reduce_sum(self, x: ir.Value, axes: Sequence[int], *, keepdims: bool) -> ir.Value:
        return self._with_axes("ReduceSum", x, axes, 13, {"keepdims": int(keepdims)})

    def _with_axes(
        self, op_type: str, x: ir.Value, axes: Sequence[int], input_since: int, attributes: dict[str, int]
    ) -> ir.Value:
        if self.opset >= input_since:
            inputs = [x, self.constant(np.array(axes, np.int64), "axes")]
            return self.typed(self.op(op_type, inputs, attributes), x)
        return self.typed(self.op(op_type, [x], {"axes": list(axes), **attributes}), x)

    def layer_norm(self, x: ir.Value, scale: ir.Value, bias: ir.Value | None, epsilon: float) -> ir.Value:
        """Over the last axis. Written out below opset 17."""
        if self.opset >= 17:
            inputs = [x, scale] if bias is None else [x, scale, bias]
            return self.typed(self.op("LayerNormalization", inputs, {"axis": -1, "epsilon": epsilon}), x)
        if x.dtype == ir.DataType.FLOAT16:
            raise Refusal(f"float16 layer normalization can't be written in opset {self.opset}")
        centered = self.typed(self.op("Sub", [x, self.reduce_mean(x, [-1])]), x)
        variance = self.reduce_mean(self.mul(centered, centered), [-1])
        deviation = self.typed(self.op("Sqrt", [self.add(variance, self.like(epsilon, x, "epsilon"))]), x)
        result = self.mul(self.typed(self.op("Div", [centered, deviation]), x), scale)
        return result if bias is None else self.add(result, bias)

    def gelu(self, x: ir.Value, *, tanh: bool) -> ir.Value:
        """Written out below opset 20: x * (0.5 * (1 + erf(x / sqrt 2))), or its tanh approximation."""
        if self.opset >= 20:
            return self.typed(self.op("Gelu", [x], {"approximate": "tanh" if tanh else "none"}), x)
        if tanh:
            cube = self.mul(self.mul(x, x), x)
            inner = self.add(x, self.mul(cube, self.like(0.044715, x, "cubic")))
            curve = self.op("Tanh", [self.mul(inner, self.like(math.sqrt(2 / math.pi), x, "slope"))])
        else:
            curve = self.op("Erf", [self.op("Div", [x, self.like(math.sqrt(2), x, "sqrt2")])])
        raised = self.add(self.typed(curve, x), self.like(1.0, x, "one"))
        return self.mul(self.mul(x, raised), self.like(0.5, x, "half"))

    def typed(self, result: ir.Value, like: ir.Value) -> ir.Value:
        """Gives `result` the type of `like`, which later steps may read."""
        result.type = like.type
        return result
