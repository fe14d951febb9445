"""What decoders share: a step of S new tokens after a past of P, as torch's current exporter writes it.

keys, values = [past; new]                                                                  [B,G,T,D], T = P + S
seen   = (key <= query) and attention_mask[:, key]                                          [B,1,S,T]
y      = Softmax(q keys' / sqrt(D) + Where(seen, 0, lowest)) values                         [B,S,H D]
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ortisan.models.writer import HIDDEN_LOGIT, Writer

_OPSET = 20
_IR_VERSION = 10


class Decoder:
    """Writes a decoder: the inputs, what its layers share, and the cache.

    input_ids and position_ids [batch, sequence], attention_mask [batch, total_sequence],
    past_key_values.I.key and .value [batch, heads, past_sequence, width] -> logits [batch, sequence, vocabulary],
    present.I.key and .value [batch, heads, total_sequence, width]
    """

    def __init__(self, seed: int, layers: int, heads: int, width: int) -> None:
        self.write = write = Writer(seed)
        self._cache: list[int | str] = ["batch", heads, "past_sequence", width]
        self.ids = write.input("input_ids", ["batch", "sequence"])
        mask = write.input("attention_mask", ["batch", "total_sequence"])
        self.positions = write.input("position_ids", ["batch", "sequence"])
        self._past = [
            write.input(f"past_key_values.{index}.{part}", self._cache, ir.DataType.FLOAT)
            for index in range(layers)
            for part in ("key", "value")
        ]
        self._inputs = [self.ids, mask, self.positions, *self._past]
        self._present: list[ir.Value] = []
        self.batch, self.sequence = self._dim(self.ids, 0), self._dim(self.ids, 1)
        self._bias = self._mask_bias(mask)

    def dims(self, *parts: ir.Value | int) -> ir.Value:
        """Builds a shape from numbers and from dims that are values."""
        known = [part if isinstance(part, ir.Value) else self.write.constant(np.array([part])) for part in parts]
        return self.write("Concat", known, {"axis": 0})

    def heads(self, x: ir.Value, width: int, at: str) -> ir.Value:
        """[B,S,H D] -> [B,H,S,D]."""
        return self.write(
            "Transpose",
            [self.write("Reshape", [x, self.dims(self.batch, self.sequence, -1, width)], at=at)],
            {"perm": [0, 2, 1, 3]},
            at=at,
        )

    def remember(self, new: ir.Value, at: str) -> ir.Value:
        """The next key or value of the cache: the past, followed by the new positions."""
        name = self._past[len(self._present)].name or ""
        present = self.write("Concat", [self._past[len(self._present)], new], {"axis": -2}, at=at)
        dims = ["total_sequence" if dim == "past_sequence" else dim for dim in self._cache]
        self.write.declare(present, name.replace("past_key_values", "present"), dims)
        self._present.append(present)
        return present

    def attend(self, q: ir.Value, keys: ir.Value, values: ir.Value, width: int, at: str) -> ir.Value:
        write = self.write
        logits = write("MatMul", [q, write("Transpose", [keys], {"perm": [0, 1, 3, 2]}, at=at)], at=at)
        scaled = write("Mul", [logits, write.constant(np.float32(1 / math.sqrt(width)))], at=at)
        weights = write("Softmax", [write("Add", [scaled, self._bias], at=at)], {"axis": -1}, at=at)
        context = write("MatMul", [weights, values], at=at)
        context = write("Transpose", [context], {"perm": [0, 2, 1, 3]}, at=at)
        return write("Reshape", [context, self.dims(self.batch, self.sequence, -1)], at=at)

    def model(self, name: str, logits: ir.Value, vocabulary: int) -> ir.Model:
        self.write.declare(logits, "logits", ["batch", "sequence", vocabulary])
        outputs = [logits, *self._present]
        return self.write.model(name, self._inputs, outputs, opset=_OPSET, ir_version=_IR_VERSION)

    def _dim(self, value: ir.Value, axis: int) -> ir.Value:
        return self.write("Shape", [value], {"start": axis, "end": axis + 1})

    def _mask_bias(self, mask: ir.Value) -> ir.Value:
        """0 where a key is seen, the lowest number where it is not: [B,1,S,T]."""
        write = self.write
        past = self._dim(self._past[0], 2)
        total = write("Add", [past, self.sequence])
        rows = self._numbers(self.batch, 1, 2, 3)
        queries = write("Add", [self._numbers(self.sequence, 0, 1, 3), past])
        keys = self._numbers(total, 0, 1, 2)
        causal = write("And", [write.constant(np.array(True)), write("LessOrEqual", [keys, queries])])
        both = write("Shape", [write("Max", [rows, keys])])
        last = write.constant(np.array([-1]))
        places = [write("Unsqueeze", [write("Expand", [index, both]), last]) for index in (rows, keys)]
        flags = write("Cast", [mask], {"to": ir.DataType.BOOL.value})
        shown = write("GatherND", [flags, write("Concat", places, {"axis": -1})])
        seen = write("And", [causal, shown])
        return write("Where", [seen, write.constant(np.float32(0)), write.constant(np.float32(HIDDEN_LOGIT))])

    def _numbers(self, count: ir.Value, *axes: int) -> ir.Value:
        """0, 1, ... count - 1, with dims of 1 at `axes`."""
        write = self.write
        numbers = [write.constant(np.int64(0)), write("Squeeze", [count]), write.constant(np.int64(1))]
        outer, inner = write.constant(np.array(axes[:2])), write.constant(np.array(axes[2:]))
        return write("Unsqueeze", [write("Unsqueeze", [write("Range", numbers), outer]), inner])
