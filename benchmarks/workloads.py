"""What is timed: each model with the inputs it is timed on, and how much work that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from benchmarks.decoder import GPT2, decoder, weight_bytes
from benchmarks.models import VitSize, chain, mlp, vit
from ortisan.models import BertSize, bert

Feeds: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Fusible:
    """What onnxruntime.transformers' optimizer is told about a model."""

    model_type: str
    heads: int
    hidden: int


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    make: Callable[[], Any]
    feeds: Callable[[], Feeds]
    flops: int = 0
    """Of the products alone: what an FMA peak can be compared with."""
    moved_bytes: int = 0
    """What has to be read and written once, for a workload that memory limits."""
    fusible: Fusible | None = None
    quick: bool = True
    """Part of `--quick`."""
    huge: bool = False
    """Also timed with its weights copied to 2 MB pages."""


def as_proto(model: Any) -> onnx.ModelProto:
    return ir.to_proto(model) if isinstance(model, ir.Model) else model


def _tokens(batch: int, sequence: int, vocabulary: int, padded: bool) -> Feeds:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocabulary, (batch, sequence))
    mask = np.ones_like(ids)
    if padded:
        for row, length in enumerate(np.linspace(sequence // 2, sequence, batch).astype(int)):
            mask[row, length:] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _normal(**shapes: tuple[int, ...]) -> Feeds:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def _layers_flops(size: BertSize | VitSize, batch: int, sequence: int) -> int:
    rows = batch * sequence
    dense = 2 * rows * size.hidden * (4 * size.hidden + 2 * size.intermediate)
    return size.layers * (dense + 4 * rows * sequence * size.hidden)


def _bert(name: str, title: str, size: BertSize, batch: int, sequence: int, **more: Any) -> Workload:
    padded = batch > 1
    return Workload(
        name,
        title,
        lambda: bert(size),
        lambda: _tokens(batch, sequence, size.vocabulary, padded),
        flops=_layers_flops(size, batch, sequence) + 2 * batch * size.hidden**2,
        fusible=Fusible("bert", size.heads, size.hidden),
        **more,
    )


def _vit(name: str, title: str, size: VitSize, **more: Any) -> Workload:
    patches = 2 * (size.tokens - 1) * size.hidden * 3 * size.patch**2
    return Workload(
        name,
        title,
        lambda: vit(size),
        lambda: _normal(pixel_values=(1, 3, size.image, size.image)),
        flops=_layers_flops(size, 1, size.tokens) + patches + 2 * size.hidden * size.classes,
        fusible=Fusible("vit", size.heads, size.hidden),
        **more,
    )


def _decode(name: str, title: str, size: VitSize, past: int, **more: Any) -> Workload:
    shape = (1, size.heads, past, size.hidden // size.heads)
    pasts = {f"past_{part}_{index}": shape for index in range(size.layers) for part in ("key", "value")}
    return Workload(
        name,
        title,
        lambda: decoder(size),
        lambda: _normal(x=(1, 1, size.hidden), **pasts),
        moved_bytes=weight_bytes(size),
        huge=True,
        **more,
    )


_SMALL = BertSize(layers=2, hidden=128, heads=2, intermediate=512, vocabulary=1000)
_FLOATS = 2**20

WORKLOADS = (
    _bert("bert", "BERT-base, batch 1, seq 128", BertSize(), 1, 128, huge=True),
    _bert("bert_batch", "BERT-base, 8 x 64, padded", BertSize(), 8, 64, quick=False),
    _bert("encoder", "2 layers, hidden 128, seq 32", _SMALL, 1, 32),
    _vit("vit", "ViT-base, 224 x 224", VitSize(), quick=False),
    _decode("decode", "GPT-2 decode, past 64", GPT2, 64, quick=False),
    Workload(
        "mlp",
        "MLP 64-128x4-10, batch 32",
        mlp,
        lambda: _normal(x=(32, 64)),
        flops=2 * 32 * (64 * 128 + 3 * 128 * 128 + 128 * 10),
    ),
    Workload(
        "chain",
        "13 elementwise, 1 M floats",
        chain,
        lambda: _normal(x=(_FLOATS,), z=(_FLOATS,)),
        moved_bytes=3 * 4 * _FLOATS,
    ),
)
