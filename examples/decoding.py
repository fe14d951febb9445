"""Greedy decoding on ONNX Runtime, for any decoder with a cache as exporters write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime


def greedy(session: Any, ids: Any, mask: Any, steps: int, *, capacity: int | None = None) -> Iterator[Any]:
    """The next `steps` tokens of each row. With a `capacity` the cache is one buffer that long, written in place."""
    step = _InPlace(session, len(ids), capacity) if capacity else _Copying(session, len(ids))
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    # The last token of a row, wherever its padding is.
    last = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    for _ in range(steps):
        logits = step.run({"input_ids": ids, "attention_mask": mask, "position_ids": positions})
        ids = logits[np.arange(len(ids)), last].argmax(axis=-1)[:, None]
        yield ids[:, 0]
        mask = np.concatenate([mask, np.ones_like(ids)], axis=1)
        positions = mask.sum(axis=1, keepdims=True) - 1
        last = np.zeros(len(ids), np.int64)


class _Step:
    def __init__(self, session: Any, batch: int) -> None:
        self.session = session
        inputs = {value.name: value.shape for value in session.get_inputs()}
        self.names, self.batch = set(inputs), batch
        self.pasts = {name: shape for name, shape in inputs.items() if name.startswith("past")}
        self.outputs = [value.name for value in session.get_outputs()]

    def empty(self, shape: list[Any], length: int) -> Any:
        return np.zeros((self.batch, shape[1], length, shape[3]), np.float32)

    def bind(self, binding: Any, feeds: dict[str, Any]) -> None:
        for name in self.names & set(feeds):
            binding.bind_cpu_input(name, feeds[name])


class _Copying(_Step):
    """The outputs of a step are the inputs of the next; they stay where the session computes."""

    def __init__(self, session: Any, batch: int) -> None:
        super().__init__(session, batch)
        self.device = "cuda" if "CUDAExecutionProvider" in session.get_providers() else "cpu"
        empty = [self.empty(shape, 0) for shape in self.pasts.values()]
        self.cache = [onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device, 0) for array in empty]

    def run(self, feeds: dict[str, Any]) -> Any:
        binding = self.session.io_binding()
        self.bind(binding, feeds)
        for past, cache in zip(self.pasts, self.cache, strict=True):
            binding.bind_ortvalue_input(past, cache)
        for index, name in enumerate(self.outputs):
            binding.bind_output(name, self.device if index else "cpu")
        self.session.run_with_iobinding(binding)
        logits, *self.cache = binding.get_outputs()
        return logits.numpy()


class _InPlace(_Step):
    """Past and present are the same memory, bound once."""

    def __init__(self, session: Any, batch: int, capacity: int) -> None:
        super().__init__(session, batch)
        self.binding = session.io_binding()
        for (past, shape), present in zip(self.pasts.items(), self.outputs[1:], strict=True):
            buffer = onnxruntime.OrtValue.ortvalue_from_numpy(self.empty(shape, capacity))
            self.binding.bind_ortvalue_input(past, buffer)
            self.binding.bind_ortvalue_output(present, buffer)

    def run(self, feeds: dict[str, Any]) -> Any:
        self.bind(self.binding, feeds)
        self.binding.bind_output(self.outputs[0])
        self.session.run_with_iobinding(self.binding)
        return self.binding.get_outputs()[-1].numpy()
