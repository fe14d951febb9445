"""Ways to spoil a model a little. A mutant is decided by its seed and number alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from tools.fuzz import fields, graphs, tensors

Mutation = Callable[[onnx.ModelProto, np.random.Generator], None]

MUTATIONS: Mapping[str, Mutation] = {
    each.__name__: each
    for each in (
        fields.drop_attribute,
        fields.change_attribute,
        fields.add_attribute,
        fields.change_dim,
        fields.change_rank,
        fields.change_type,
        fields.stale_value_info,
        fields.change_opset,
        fields.change_ir_version,
        fields.odd_name,
        graphs.rewire_input,
        graphs.swap_inputs,
        graphs.drop_input,
        graphs.add_input,
        graphs.delete_node,
        graphs.repeat_node,
        graphs.insert_node,
        graphs.change_op,
        graphs.change_domain,
        graphs.move_node,
        graphs.rename_value,
        graphs.rename_nodes,
        graphs.change_outputs,
        graphs.change_inputs,
        tensors.change_values,
        tensors.change_shape,
        tensors.change_element_type,
        tensors.spoil_payload,
        tensors.drop_tensor,
        tensors.make_it_an_input,
    )
}
_OFTEN = (
    *("change_attribute", "drop_attribute", "change_dim", "change_rank", "stale_value_info", "rewire_input"),
    *("swap_inputs", "insert_node", "change_op", "delete_node", "change_values", "change_shape", "change_opset"),
)
"""Those that leave many models valid."""
_BYTES_SHARE = 0.06
_HOW_MANY = (1, 1, 1, 2, 2, 3)


@dataclass(frozen=True)
class Mutant:
    """What was done to which model, and the bytes of its file."""

    index: int
    base: str
    mutations: tuple[str, ...]
    content: bytes


def make_mutant(bases: Mapping[str, onnx.ModelProto], seed: int, index: int) -> Mutant:
    rng = np.random.default_rng([seed, index])
    name = list(bases)[index % len(bases)]
    if rng.random() < _BYTES_SHARE:
        content, done = _spoil_bytes(bases[name].SerializeToString(), rng)
        return Mutant(index, name, (done,), content)
    model = onnx.ModelProto()
    model.CopyFrom(bases[name])
    done = tuple(_apply(model, rng, int(rng.choice(_HOW_MANY))))
    return Mutant(index, name, done, model.SerializeToString())


def _apply(model: onnx.ModelProto, rng: np.random.Generator, count: int) -> Iterator[str]:
    """Applies mutations until `count` of them found something to change."""
    names = [*MUTATIONS, *_OFTEN, *_OFTEN, *_OFTEN]
    for _ in range(20 * count):
        before = model.SerializeToString()
        name = str(rng.choice(names))
        MUTATIONS[name](model, rng)
        if model.SerializeToString() != before:
            yield name
            count -= 1
            if not count:
                return


def _spoil_bytes(content: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    data = bytearray(content)
    kind = rng.integers(4)
    at = int(rng.integers(len(data)))
    if kind == 0:
        return bytes(data[:at]), "cut the file"
    if kind == 1:
        for place in rng.integers(len(data), size=rng.integers(1, 9)):
            data[place] ^= 1 << int(rng.integers(8))
        return bytes(data), "flip bits"
    if kind == 2:
        del data[at : at + int(rng.integers(1, 40))]
        return bytes(data), "remove bytes"
    data[at:at] = rng.integers(0, 256, int(rng.integers(1, 20))).astype(np.uint8).tobytes()
    return bytes(data), "insert bytes"
