"""The models that are not in the package: an MLP, a chain of elementwise ops and a vision transformer, random weights.

ViT:   x = [class token; Conv16x16(image)] + position                                       [B,197,hidden]
layer: x = x + Attention(LayerNorm(x)) W + b;  x = x + Gelu(LayerNorm(x) W + b) W + b
logits = LayerNorm(x)[:, 0] W + b                                                           [B,classes]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import numpy_helper
from onnx_ir.tape import Tape

_OPSET = 17
_IR_VERSION = 8
_EPSILON = 1e-12


def mlp() -> onnx.ModelProto:
    """64 -> 128 four times -> 10, each hidden layer followed by Gelu and LayerNormalization."""
    rng = np.random.default_rng(0)
    sizes = [64, 128, 128, 128, 128, 10]
    constants, lines, value = {}, [], "x"
    for index, (inner, outer) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{index}"] = (rng.normal(size=(inner, outer)) / inner**0.5).astype(np.float32)
        constants[f"b{index}"] = rng.normal(size=outer).astype(np.float32)
        result = "y" if index == len(sizes) - 2 else f"a{index}"
        lines.append(f"{result} = Gemm({value}, w{index}, b{index})")
        if result != "y":
            constants[f"s{index}"] = rng.uniform(0.5, 1.5, outer).astype(np.float32)
            lines.append(f"g{index} = Gelu({result})")
            lines.append(f"n{index} = LayerNormalization(g{index}, s{index}, b{index})")
            value = f"n{index}"
    return _parse("(float[batch,64] x) => (float[batch,10] y)", "\n".join(lines), constants)


def chain() -> onnx.ModelProto:
    """13 elementwise ops on two vectors."""
    body = """
        a = Add(x, z)  b = Mul(a, x)  c = Sigmoid(b)  d = Mul(c, z)  e = Tanh(d)  f = Sub(e, x)  g = Exp(f)
        h = Add(g, one)  i = Sqrt(h)  j = Div(z, i)  k = Erf(j)  l = Mul(k, half)  y = Add(l, a)"""
    constants = {"one": np.float32(1), "half": np.float32(0.5)}
    return _parse("(float[n] x, float[n] z) => (float[n] y)", body, constants)


def _parse(signature: str, body: str, constants: dict[str, Any]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> g {signature} {{ {body} }}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


@dataclass(frozen=True)
class VitSize:
    """The numbers that make a vision transformer; the defaults are ViT-base."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    image: int = 224
    patch: int = 16
    classes: int = 1000

    @property
    def tokens(self) -> int:
        return (self.image // self.patch) ** 2 + 1


def vit(size: VitSize | None = None) -> ir.Model:
    """A vision transformer with a classifier: pixel_values [batch, 3, image, image] of float."""
    size = size or VitSize()
    write = Writer()
    pixels = ir.Value(
        name="pixel_values",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape(["batch", 3, size.image, size.image]),
    )
    x = _embed(write, pixels, size)
    for index in range(size.layers):
        x = _layer(write, x, f"layer.{index}", size)
    x = norm(write, x, "norm", size)
    first = write("Gather", [x, write.constant("first", np.int64(0))], axis=1)
    weight = write.random("head.weight", (size.classes, size.hidden), size.hidden**-0.5)
    logits = write("Gemm", [first, weight, write.random("head.bias", (size.classes,), 0.2)], transB=1)
    logits.name = "logits"
    logits.type, logits.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["batch", size.classes])
    return model_of(write, [pixels], [logits], "vit")


def model_of(write: Writer, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str) -> ir.Model:
    """The model of what was written."""
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=write.tape.nodes,
        initializers=write.tape.initializers,
        opset_imports={"": _OPSET},
        name=name,
    )
    return ir.Model(graph, ir_version=_IR_VERSION, producer_name="ortisan")


class Writer:
    """Adds nodes, constants (each once) and random weights."""

    def __init__(self) -> None:
        self.tape = Tape()
        self._rng = np.random.default_rng(0)
        self._constants: dict[str, ir.Value] = {}

    def __call__(self, op: str, inputs: Sequence[ir.Value], **attributes: Any) -> ir.Value:
        name = f"{op}_{len(self.tape.nodes)}"
        value = self.tape.op(op, inputs, attributes, name=name)
        value.name = f"{name}_out"
        return value

    def constant(self, name: str, array: Any) -> ir.Value:
        if name not in self._constants:
            self._constants[name] = self.tape.initializer(ir.tensor(np.asarray(array), name=name), name)
        return self._constants[name]

    def random(self, name: str, shape: tuple[int, ...], scale: float, around: float = 0.0) -> ir.Value:
        array = self._rng.standard_normal(shape, dtype=np.float32) * np.float32(scale) + np.float32(around)
        return self.constant(name, array)


def _embed(write: Writer, pixels: ir.Value, size: VitSize) -> ir.Value:
    per_patch = 3 * size.patch**2
    kernel = write.random("patch.weight", (size.hidden, 3, size.patch, size.patch), per_patch**-0.5)
    sides = [size.patch, size.patch]
    patches = write(
        "Conv",
        [pixels, kernel, write.random("patch.bias", (size.hidden,), 0.2)],
        kernel_shape=sides,
        strides=sides,
    )
    flat = write("Reshape", [patches, write.constant("flat", np.array([0, size.hidden, -1]))])
    patches = write("Transpose", [flat], perm=[0, 2, 1])
    batch = write("Shape", [pixels], start=0, end=1)
    one_token = write("Concat", [batch, write.constant("one_token", np.array([1, size.hidden]))], axis=0)
    token = write("Expand", [write.random("class_token", (1, 1, size.hidden), 0.5), one_token])
    x = write("Concat", [token, patches], axis=1)
    return write("Add", [x, write.random("position", (1, size.tokens, size.hidden), 0.5)])


def _layer(write: Writer, x: ir.Value, name: str, size: VitSize) -> ir.Value:
    y = norm(write, x, f"{name}.norm1", size)
    q, k, v = (_heads(write, y, f"{name}.{part}", size) for part in ("query", "key", "value"))
    scale = write.constant("scale", np.float32(math.sqrt(size.hidden // size.heads)))
    scores = write("Div", [write("MatMul", [q, k]), scale])
    context = write("Transpose", [write("MatMul", [write("Softmax", [scores], axis=-1), v])], perm=[0, 2, 1, 3])
    joined = write("Reshape", [context, write.constant("joined", np.array([0, 0, size.hidden]))])
    x = write("Add", [dense(write, joined, f"{name}.out", size.hidden, size.hidden), x])
    y = norm(write, x, f"{name}.norm2", size)
    wide = gelu(write, dense(write, y, f"{name}.wide", size.hidden, size.intermediate))
    return write("Add", [dense(write, wide, f"{name}.narrow", size.intermediate, size.hidden), x])


def _heads(write: Writer, x: ir.Value, name: str, size: VitSize) -> ir.Value:
    """A projection of x, cut into heads: [B,H,S,D], or [B,H,D,S] for the keys."""
    cut = write.constant("heads", np.array([0, 0, size.heads, size.hidden // size.heads]))
    view = write("Reshape", [dense(write, x, name, size.hidden, size.hidden), cut])
    return write("Transpose", [view], perm=[0, 2, 3, 1] if name.endswith("key") else [0, 2, 1, 3])


def dense(write: Writer, x: ir.Value, name: str, inner: int, outer: int) -> ir.Value:
    product = write("MatMul", [x, write.random(f"{name}.weight", (inner, outer), inner**-0.5)])
    return write("Add", [write.random(f"{name}.bias", (outer,), 0.2), product])


def norm(write: Writer, x: ir.Value, name: str, size: VitSize) -> ir.Value:
    scale = write.random(f"{name}.weight", (size.hidden,), 0.2, around=1.0)
    shift = write.random(f"{name}.bias", (size.hidden,), 0.2)
    return write("LayerNormalization", [x, scale, shift], axis=-1, epsilon=_EPSILON)


def gelu(write: Writer, x: ir.Value) -> ir.Value:
    error = write("Erf", [write("Div", [x, write.constant("root", np.float32(math.sqrt(2.0)))])])
    double = write("Mul", [x, write("Add", [error, write.constant("one", np.float32(1))])])
    return write("Mul", [double, write.constant("half", np.float32(0.5))])
