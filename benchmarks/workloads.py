"""What is timed: each model with the inputs it is timed on, and how much work that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from benchmarks.models import VitSize, chain, mlp, vit
from benchmarks.vision import convnext, diffusion_middle, mobilenet_v3, sound
from ortisan.models import (
    BertSize,
    Gpt2Size,
    LlamaSize,
    bert,
    efficientnet,
    gpt2,
    llama,
    mobilenet,
    resnet,
    unet,
    yolo,
)

Feeds: TypeAlias = "dict[str, Any]"

DECODER = "decoder"


@dataclass(frozen=True)
class Fusible:
    """What onnxruntime.transformers' optimizer is told about a model; decoders are rewritten by `group_attention`."""

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
    convolutional: bool = False
    """Its layers can be timed by `--layers`."""
    quick: bool = True
    """Part of `--quick`."""
    huge: bool = False
    """Also timed with its weights copied to 2 MB pages."""
    model: str = ""
    """Workloads of one model have the same name here, and share what is built from it."""
    capacity: int = 0
    """Ours has its cache in place, in buffers of so many positions; 0 is the model as it is."""

    @property
    def key(self) -> str:
        """What is built: the model and the place of its cache."""
        return (self.model or self.name) + ("_in_place" if self.capacity else "")

    def our_feeds(self) -> Feeds:
        """The inputs as ours takes them. What lies behind the past in a buffer is no number: nothing may read it."""
        feeds = self.feeds()
        return {name: self._buffer(array) if is_past(name) else array for name, array in feeds.items()}

    def _buffer(self, past: Any) -> Any:
        if not self.capacity:
            return past
        batch, heads, length, width = past.shape
        buffer = np.full((batch, heads, self.capacity, width), np.nan, past.dtype)
        buffer[:, :, :length] = past
        return buffer


def is_past(name: str) -> bool:
    """Whether an input is part of a decoder's cache."""
    return name.startswith("past_key_values.")


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


def _step_feeds(size: Gpt2Size | LlamaSize, tokens: int, past: int) -> Feeds:
    """`tokens` new tokens of one sequence, behind a past of random keys and values."""
    rng = np.random.default_rng(0)
    feeds: Feeds = {
        "input_ids": rng.integers(0, size.vocabulary, (1, tokens)),
        "attention_mask": np.ones((1, past + tokens), np.int64),
        "position_ids": np.arange(past, past + tokens)[None],
    }
    for index in range(size.layers):
        for part in ("key", "value"):
            shape = (1, _cached_heads(size), past, size.head_size)
            feeds[f"past_key_values.{index}.{part}"] = rng.standard_normal(shape, dtype=np.float32)
    return feeds


def _cached_heads(size: Gpt2Size | LlamaSize) -> int:
    return size.kv_heads if isinstance(size, LlamaSize) else size.heads


def _matrix_floats(size: Gpt2Size | LlamaSize) -> int:
    """Of the matrices that a step multiplies with, that of the logits among them."""
    if isinstance(size, LlamaSize):
        attention = 2 * size.hidden * (size.hidden + size.kv_heads * size.head_size)
        layer = attention + 3 * size.hidden * size.intermediate
    else:
        layer = 4 * size.hidden**2 + 2 * size.hidden * size.intermediate
    return size.layers * layer + size.hidden * size.vocabulary


def _decoder(
    name: str, title: str, size: Gpt2Size | LlamaSize, *, tokens: int, past: int, capacity: int = 0
) -> Workload:
    """A prompt of many tokens counts in operations, a step of one token in the bytes that it has to read, and to write
    where the past is copied.
    """
    products = 2 * tokens * _matrix_floats(size) + 4 * size.layers * tokens * (past + tokens) * size.hidden
    cache = 2 * size.layers * past * _cached_heads(size) * size.head_size * (1 if capacity else 2)
    return Workload(
        name,
        title,
        lambda: llama(size) if isinstance(size, LlamaSize) else gpt2(size),
        lambda: _step_feeds(size, tokens, past),
        flops=products if tokens > 1 else 0,
        moved_bytes=4 * (_matrix_floats(size) + cache) if tokens == 1 else 0,
        fusible=Fusible(DECODER, size.heads, size.hidden),
        quick=False,
        huge=tokens == 1,
        model="llama" if isinstance(size, LlamaSize) else "gpt2",
        capacity=capacity,
    )


def _images(
    name: str, title: str, make: Callable[[], ir.Model], flops: int, *, image: int = 224, batch: int = 1
) -> Workload:
    """A convolutional network."""
    shape = (batch, 3, image, image)
    return Workload(
        name, title, make, lambda: _normal(pixel_values=shape), flops=flops, convolutional=True, quick=False
    )


_SMALL = BertSize(layers=2, hidden=128, heads=2, intermediate=512, vocabulary=1000)
_LLAMA = LlamaSize(layers=8, hidden=768, heads=12, kv_heads=4, intermediate=2048)
_FLOATS = 2**20

WORKLOADS = (
    _bert("bert", "BERT-base, batch 1, seq 128", BertSize(), 1, 128, huge=True),
    _bert("bert_batch", "BERT-base, 8 x 64, padded", BertSize(), 8, 64, quick=False),
    _bert("encoder", "2 layers, hidden 128, seq 32", _SMALL, 1, 32),
    _vit("vit", "ViT-base, 224 x 224", VitSize(), quick=False),
    _decoder("gpt2_prefill", "GPT-2, prompt of 128", Gpt2Size(), tokens=128, past=0),
    _decoder("gpt2_decode_64", "GPT-2 decode, past 64", Gpt2Size(), tokens=1, past=64),
    _decoder("gpt2_decode_512", "GPT-2 decode, past 512", Gpt2Size(), tokens=1, past=512),
    _decoder("gpt2_in_place_512", "GPT-2 in place, past 512", Gpt2Size(), tokens=1, past=512, capacity=1024),
    _decoder("llama_prefill", "Llama, prompt of 128", _LLAMA, tokens=128, past=0),
    _decoder("llama_decode", "Llama decode, past 128", _LLAMA, tokens=1, past=128),
    _images("resnet50", "ResNet-50, 224 x 224", resnet, 8_178_368_512),
    _images("resnet18_batch", "ResNet-18, 8 x 224 x 224", lambda: resnet(18), 29_025_173_504, batch=8),
    _images("mobilenet", "MobileNetV2, 224 x 224", mobilenet, 601_548_544),
    _images("efficientnet", "EfficientNet-B0, 224 x 224", efficientnet, 771_629_504),
    _images("yolo", "YOLOv8n, 640 x 640", yolo, 8_743_987_200, image=640),
    _images("unet", "U-Net, 256 x 256", unet, 21_256_732_672, image=256),
    _images("mobilenet_v3", "MobileNetV3-small, 224 x 224", mobilenet_v3, 113_020_800),
    _images("convnext", "ConvNeXt-tiny, 224 x 224", convnext, 8_911_062_528),
    Workload(
        "diffusion",
        "SD 1.5 U-Net's middle, 8 x 8",
        diffusion_middle,
        lambda: _normal(image=(1, 1280, 8, 8), time=(1, 1280), text=(1, 77, 768)),
        flops=12_099_584_000,
        convolutional=True,
        quick=False,
    ),
    Workload(
        "sound",
        "wav2vec2's convolutions, 1 s",
        sound,
        lambda: _normal(samples=(1, 16000)),
        flops=5_401_204_736,
        convolutional=True,
        quick=False,
    ),
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
