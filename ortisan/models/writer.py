"""Adds nodes to a graph under the names that an exporter would give them, and draws random weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from ortisan.registry.dtypes import Array

HIDDEN_LOGIT = float(np.finfo(np.float32).min)
"""What exporters add to the logit of a key that is not seen."""


class Writer:
    def __init__(self, seed: int) -> None:
        self.tape = Tape()
        self._rng = np.random.default_rng(seed)
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], ir.Value] = {}

    def __call__(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        at: str = "",
    ) -> ir.Value:
        return self.several(op, inputs, 1, attributes, at=at)[0]

    def several(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        outputs: int,
        attributes: Mapping[str, Any] | None = None,
        *,
        at: str = "",
    ) -> Sequence[ir.Value]:
        """A node with several outputs."""
        base = "/".join(["", *([at] if at else []), op])
        count = self._names[base] = self._names.get(base, -1) + 1
        name = f"{base}_{count}" if count else base
        values = self.tape.op_multi_out(op, inputs, attributes or {}, num_outputs=outputs, name=name)
        for index, value in enumerate(values):
            value.name = f"{name}_output_{index}"
        return values

    def input(self, name: str, shape: Sequence[int | str], dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))

    def declare(self, value: ir.Value, name: str, shape: Sequence[int | str]) -> None:
        """Makes a value an output of the graph."""
        value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)

    def constant(self, number: Any) -> ir.Value:
        array = np.asarray(number)
        key = (array.dtype.str, array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = self._initializer(f"onnx::Constant_{len(self._constants)}", array)
        return self._constants[key]

    def matrix(self, name: str, rows: int, columns: int, *, transposed: bool = False) -> ir.Value:
        """rows x columns, scaled so that products with it keep the size of their input; `transposed` as Gemm has it."""
        array = self._draw((columns, rows) if transposed else (rows, columns), 1.0 / math.sqrt(rows))
        return self._initializer(name, array)

    def table(self, name: str, rows: int, columns: int) -> ir.Value:
        return self._initializer(name, self._draw((rows, columns), 0.5))

    def vector(self, name: str, length: int, *, around: float = 0.0) -> ir.Value:
        return self._initializer(name, self._draw((length,), 0.2) + np.float32(around))

    def filters(self, name: str, count: int, channels: int, *sides: int, gain: float = 1.0) -> ir.Value:
        """count filters of these sides, scaled so that images keep their size, of which an activation takes a share."""
        scale = math.sqrt(gain / (channels * math.prod(sides)))
        return self._initializer(name, self._draw((count, channels, *sides), scale))

    def model(
        self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], *, opset: int, ir_version: int
    ) -> ir.Model:
        """Returns the finished model."""
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self.tape.nodes,
            initializers=self.tape.initializers,
            opset_imports={"": opset},
            name=name,
        )
        return ir.Model(graph, ir_version=ir_version, producer_name="ortisan")

    def _draw(self, shape: tuple[int, ...], scale: float) -> Array:
        array: Array = self._rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        return array

    def _initializer(self, name: str, array: Array) -> ir.Value:
        return self.tape.initializer(ir.tensor(array, name=name), name)
