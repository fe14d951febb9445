"""Runs AITemplate's graph in numpy: each op in order, in float64, rounded where it is written.

Works on the graph that was constructed and on what AITemplate's passes made of it: ops that write parts of a common
output, that read parts of a common input, and views are followed as the kernels would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from aitemplate.utils import graph_utils

from ortisan.codegen.ait.worker.meanings import meaning_of
from ortisan.codegen.ait.worker.memory import Array, Memory
from ortisan.codegen.ait.worker.own import PREFIX
from ortisan.codegen.ait.worker.own_meanings import OWN_MEANINGS

_VIEWS = frozenset({"reshape", "flatten", "squeeze", "unsqueeze"})


def interpret(graph: Sequence[Any], memory: Memory) -> dict[str, Array]:
    """The outputs by name. `graph` are tensors in order, as AITemplate sorts them."""
    with np.errstate(all="ignore"):
        for op in graph_utils.get_sorted_ops(graph):
            try:
                _run(op, memory)
            except (ValueError, KeyError, IndexError) as error:
                names = [tensor._attrs["name"] for tensor in (*op._attrs["inputs"], *op._attrs["outputs"])]
                raise RuntimeError(f"AITemplate's {op._attrs['op']} of {names}: {error}") from error
    return {t._attrs["name"]: memory.value(t) for t in graph if t._attrs["is_output"]}


def _run(op: Any, memory: Memory) -> None:
    attrs = op._attrs
    if attrs["op"] in _VIEWS and attrs["outputs"][0]._attrs["is_view_of"] is not None:
        return
    inputs = [_wide(x) for x in _read(op, memory)]
    if attrs["op"] == "concatenate" and not all(attrs["input_masks"]):
        _write_parts(op, inputs, memory)
        return
    if attrs["op"].startswith(PREFIX):
        meaning = OWN_MEANINGS[attrs["op"].removeprefix(PREFIX)]
        results = meaning(attrs["kernel"]["attributes"], inputs, memory.evaluate)
    else:
        results = meaning_of(attrs["op"])(op, inputs, lambda tensor: memory.shape(tensor.shape()))
    if "output_masks" in attrs:
        results = [x for x, kept in zip(results, attrs["output_masks"], strict=True) if kept]
    accessors = _accessors(attrs.get("output_accessors"), len(attrs["outputs"]))
    for tensor, accessor, result in zip(attrs["outputs"], accessors, results, strict=True):
        memory.write(tensor, accessor, np.asarray(result))


def _read(op: Any, memory: Memory) -> list[Array]:
    tensors = op._attrs["inputs"]
    accessors = _accessors(op._attrs.get("input_accessors"), len(tensors))
    return [memory.read(tensor, accessor) for tensor, accessor in zip(tensors, accessors, strict=True)]


def _accessors(given: Sequence[Any] | None, count: int) -> list[Any]:
    return [*(given or ()), *[None] * (count - len(given or ()))]


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x


def _write_parts(op: Any, inputs: list[Array], memory: Memory) -> None:
    """A concatenation some of whose parts were written in place by the ops that made them."""
    attrs, (output,) = op._attrs, op._attrs["outputs"]
    whole, axis, left, start = memory.value(output), op._attrs["concat_dim"], iter(inputs), 0
    for tensor, masked in zip(attrs["original_inputs"], attrs["input_masks"], strict=True):
        size = memory.number(tensor.shape()[axis])
        if masked:
            where = [slice(None)] * whole.ndim
            where[axis] = slice(start, start + size)
            whole[tuple(where)] = next(left).astype(whole.dtype)
        start += size
