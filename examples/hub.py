"""Models and tokenizers for the examples: a file, a folder or hub id of transformers, or random weights offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir


class Bytes:
    """A tokenizer that needs no files: one id for each byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Any) -> str:
        return bytes(int(i) % 256 for i in ids).decode(errors="replace")


def tokenizer(name: str | None) -> Any:
    """The model's own, or bytes where there is none."""
    if name is None or name.endswith(".onnx"):
        return Bytes()
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError):
        return Bytes()
    # A folder without a tokenizer's files may give one without words.
    return found if found.encode("the") else Bytes()


def load(name: str | None, make: Any, folder: Path, *, decoder: bool = False) -> Path:
    """An ONNX file: `name` itself, the export of a transformers model, or what `make` makes when there is no name."""
    if name is not None:
        if name.endswith(".onnx"):
            return Path(name)
        from export import export

        return export(name, folder / "model.onnx", decoder=decoder)
    onnx_ir.save(make(), folder / "model.onnx", external_data="model.onnx.data")
    return folder / "model.onnx"


def padded(prompts: list[list[int]]) -> tuple[Any, Any]:
    """Prompts of several lengths as ids and mask [batch, length], padded on the left."""
    length = max(map(len, prompts))
    ids = np.zeros((len(prompts), length), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = prompt
        mask[row, length - len(prompt) :] = 1
    return ids, mask
