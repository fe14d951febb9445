"""Decoders with a cache (the families "gpt2 past" and "llama past" of zoo.py) and the inputs of a growing sequence."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from tests.models.zoo import FAMILIES, LAYERS, VOCABULARY
from tests.models.zoo_exports import export

PAST = tuple(f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))
LOGITS, PRESENT = "output_0", tuple(f"output_{index + 1}" for index in range(len(PAST)))
OUTPUTS = (LOGITS, *PRESENT)

Array = npt.NDArray[np.generic]


def dynamo(kind: str) -> onnx.ModelProto:
    """As torch's current exporter writes it: the mask's length is a symbol of its own."""
    return export(f"{kind} past")


@functools.cache
def legacy(kind: str, total: str = "total") -> onnx.ModelProto:
    """As torch's older exporter writes it; `total` names the length of the mask."""
    model = onnx.ModelProto()
    model.CopyFrom(export(f"{kind} past", exporter="legacy", opset=17))
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = total
    return model


def empty_cache(kind: str, batch: int, length: int = 0, fill: float = 0) -> dict[str, Array]:
    """One array for each input of the cache."""
    (heads, size) = next((one.dims[1], one.dims[3]) for one in FAMILIES[f"{kind} past"].inputs if one.name == PAST[0])
    return {name: np.full((batch, heads, length, size), fill, np.float32) for name in PAST}


def steps(batch: int, lengths: Sequence[int], padding: str = "none") -> list[Mapping[str, Array]]:
    """Inputs of a growing sequence but for the cache. Padding hides positions of the first step: "left" or "right"."""
    rng = np.random.default_rng(batch)
    mask, made = np.zeros((batch, 0), np.int64), []
    for length in lengths:
        seen = np.ones((batch, length), np.int64)
        if not made and padding != "none":
            for row in range(1, batch):
                hidden = min(row, length - 1)
                seen[row, :hidden] = padding != "left"
                seen[row, length - hidden :] = padding != "right"
        mask = np.concatenate([mask, seen], axis=1)
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -length:]
        ids = rng.integers(0, VOCABULARY, (batch, length))
        made.append({"input_ids": ids, "attention_mask": mask, "position_ids": positions})
    return made
