"""Two layers of BERT, GPT-2 and Llama, cut for a GPU by the rules, with what flows into the custom op from ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import ortisan
from ortisan.checks.isolated import Isolated
from ortisan.checks.samples import Case
from ortisan.codegen.ait.adapter import Adapter
from ortisan.codegen.ait.backend import AitPlanner
from ortisan.codegen.reference.backend import ReferencePlan
from ortisan.converter.substitute import substitute
from ortisan.models import BertSize, Gpt2Size, LlamaSize, bert, gpt2, llama
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.parts import boundary_values
from tests.ait.interpreted import Run

Feeds = Mapping[str, np.ndarray[Any, Any]]
VOCABULARY, LAYERS, HEADS, SIZE = 100, 2, 4, 16
BOUNDS = {"batch": (1, 4), "sequence": (1, 24)}
CACHED = {**BOUNDS, "past_sequence": (0, 24), "total_sequence": (1, 48)}
_RANDOM = np.random.default_rng(5)


@contextmanager
def rules_only() -> Iterator[None]:
    """Compiles without AITemplate: what the rules have nothing against is taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ortisan.codegen.ait.backend.find_aitemplate", lambda: None)
        patch.setattr(Adapter, "refusals", lambda self, graphs: [{} for _ in graphs])
        patch.setattr(AitPlanner, "plan", lambda self, graphs, **rest: [ReferencePlan(graph) for graph in graphs])
        yield


@dataclass(frozen=True, eq=False)
class GpuModel:
    name: str
    model: ir.Model
    dims: Mapping[str, tuple[int, int]]
    cases: Mapping[str, Feeds]

    def compiled(self) -> Compilation:
        with rules_only():
            return ortisan.compile(self.model, target="cuda:80", dims=dict(self.dims), name=self.name)

    def run(self, *, half: bool = False) -> tuple[Run, list[list[np.ndarray[Any, Any]]]]:
        """The custom op's graph with its inputs in every case, and what ONNX Runtime itself gives for its outputs."""
        compiled = self.compiled()
        (subgraph,) = compiled.subgraphs
        plain = substitute(compiled.model, ())
        inputs, outputs = [], []
        for label, feeds in self.cases.items():
            with tempfile.TemporaryDirectory() as folder, Isolated() as runner:
                values = boundary_values(runner, plain, [subgraph], [Case(label, feeds)], Path(folder))
            inputs.append([np.asarray(values[value.name or ""]) for value in subgraph.inputs])
            outputs.append([np.asarray(values[value.name or ""]) for value in subgraph.outputs])
        return Run(subgraph.graph, inputs, half, subgraph.graph.output_names), outputs


def _image(batch: int) -> np.ndarray[Any, Any]:
    return _RANDOM.standard_normal((batch, 3, 32, 32)).astype(np.float32)


def _ids(batch: int, length: int) -> np.ndarray[Any, Any]:
    return _RANDOM.integers(0, VOCABULARY, (batch, length))


def _mask(batch: int, length: int, hidden: str) -> np.ndarray[Any, Any]:
    """1 where a token counts. Row r hides its r last tokens ("right"), its r first ("left"), or every third ("holes")."""
    mask = np.ones((batch, length), np.int64)
    for row in range(1, batch):
        if hidden == "right":
            mask[row, length - row :] = 0
        elif hidden == "left":
            mask[row, :row] = 0
        elif hidden == "holes":
            mask[row, row::3] = 0
    return mask


def _bert_feeds(batch: int, length: int, hidden: str) -> Feeds:
    ids = _ids(batch, length)
    return {"input_ids": ids, "attention_mask": _mask(batch, length, hidden), "token_type_ids": ids % 2}


def _decoder_feeds(batch: int, length: int, past: int, hidden: str, heads: int) -> Feeds:
    mask = _mask(batch, past + length, hidden)
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, past:]
    cache = {
        f"past_key_values.{layer}.{part}": _RANDOM.standard_normal((batch, heads, past, SIZE)).astype(np.float32)
        for layer in range(LAYERS)
        for part in ("key", "value")
    }
    return {"input_ids": _ids(batch, length), "attention_mask": mask, "position_ids": positions, **cache}


def _decoder_cases(heads: int) -> dict[str, Feeds]:
    return {
        "prefill": _decoder_feeds(2, 7, 0, "none", heads),
        "prefill, padded on the left": _decoder_feeds(3, 6, 0, "left", heads),
        "prefill, padded on the right": _decoder_feeds(3, 24, 0, "right", heads),
        "a step": _decoder_feeds(1, 1, 11, "none", heads),
        "a step, padded on the left": _decoder_feeds(4, 1, 24, "left", heads),
        "several tokens behind a past": _decoder_feeds(2, 5, 9, "left", heads),
    }


def _resnet() -> ir.Model:
    """A stem with pooling, a block with a residual, a depthwise convolution, and a classifier."""
    names: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(*shape: int, low: float = -0.3) -> str:
        names.append(numpy_helper.from_array(_RANDOM.uniform(low, 0.3, shape).astype(np.float32), f"w{len(names)}"))
        return names[-1].name

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], name=f"n{len(nodes)}", **attributes))
        return f"v{len(nodes) - 1}"

    def conv(x: str, channels: int, filters: int, size: int, stride: int = 1, group: int = 1) -> str:
        pads = [size // 2] * 4
        y = node(
            "Conv", x, weight(filters, channels // group, size, size), strides=[stride, stride], pads=pads, group=group
        )
        return node("BatchNormalization", y, *(weight(filters, low=0.1) for _ in range(4)))

    x = node("Relu", conv("image", 3, 16, 7, 2))
    x = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = conv(node("Relu", conv(x, 16, 16, 3)), 16, 16, 3)
    x = node("Relu", node("Add", y, x))
    x = node("Relu", conv(x, 16, 32, 1, 2))
    x = node("Flatten", node("GlobalAveragePool", x))
    nodes.append(helper.make_node("Gemm", [x, weight(32, 10), weight(10)], ["logits"], name="last"))
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", ["batch", 3, 32, 32]), ("logits", ["batch", 10]))
    ]
    graph = helper.make_graph(nodes, "resnet", infos[:1], infos[1:], names)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ir.from_proto(model)


def gpu_models() -> Sequence[GpuModel]:
    narrow = BertSize(LAYERS, HEADS * SIZE, HEADS, 128, VOCABULARY, 32)
    small = Gpt2Size(LAYERS, HEADS * SIZE, HEADS, VOCABULARY, 64)
    grouped = LlamaSize(LAYERS, HEADS * SIZE, HEADS, 2, 128, VOCABULARY)
    texts = {
        "one token": _bert_feeds(1, 1, "none"),
        "no padding": _bert_feeds(2, 9, "none"),
        "padded on the right": _bert_feeds(4, 24, "right"),
        "padded on the left": _bert_feeds(3, 7, "left"),
        "holes": _bert_feeds(3, 10, "holes"),
    }
    return (
        GpuModel("bert", bert(narrow), BOUNDS, texts),
        GpuModel("gpt2", gpt2(small), CACHED, _decoder_cases(HEADS)),
        GpuModel("resnet", _resnet(), {"batch": (1, 4)}, {f"{n}": {"image": _image(n)} for n in (1, 3)}),
        GpuModel("llama", llama(grouped), CACHED, _decoder_cases(2)),
    )
