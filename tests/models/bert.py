"""Small BERT encoders as torch exports them and as ONNX Runtime fuses them. Needs torch and transformers.

Weights are drawn wider than a trained model's, biases are not zero and layer norm weights are away from 1, so that an
error in any of them shows. Inputs are input_ids and attention_mask with dynamic dims batch and seq.
"""

from __future__ import annotations

import functools
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models.quiet import quiet

INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("last_hidden_state", "pooler_output")


@dataclass(frozen=True)
class BertSize:
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    intermediate: int = 128
    vocabulary: int = 100
    positions: int = 64


@functools.cache
def bert_dynamo(*, attention: str = "sdpa", opset: int = 20, **size: int) -> onnx.ModelProto:
    """The export of torch's current exporter."""
    import torch

    model, ids, mask = _torch_bert(BertSize(**size), attention)
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
    with quiet():
        program = torch.onnx.export(
            model,
            (ids, mask),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=(dims, dims),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    return program.model_proto


@functools.cache
def bert_legacy(*, attention: str = "eager", opset: int = 17, **size: int) -> onnx.ModelProto:
    """The export of torch's older exporter."""
    import torch

    model, ids, mask = _torch_bert(BertSize(**size), attention)
    axes = {name: {0: "batch", 1: "seq"} for name in (*INPUTS, OUTPUTS[0])} | {OUTPUTS[1]: {0: "batch"}}
    buffer = io.BytesIO()
    with quiet():
        torch.onnx.export(
            model,
            (ids, mask),
            buffer,
            dynamo=False,
            opset_version=opset,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
        )
    return onnx.load_from_string(buffer.getvalue())


@functools.cache
def bert_ort_fused(*, by: str = "transformers", opset: int = 17, **size: int) -> onnx.ModelProto:
    """The older export with contrib ops: `by` ORT's transformers optimizer, or by a "session" at level extended."""
    import onnxruntime as ort

    shape = BertSize(**size)
    with tempfile.TemporaryDirectory() as folder, quiet():
        source, target = Path(folder) / "bert.onnx", Path(folder) / "fused.onnx"
        onnx.save(bert_legacy(opset=opset, **size), source)
        if by == "transformers":
            from onnxruntime.transformers import optimizer

            fused = optimizer.optimize_model(
                str(source), "bert", num_heads=shape.heads, hidden_size=shape.hidden, opt_level=0
            )
            fused.save_model_to_file(str(target))
        else:
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(target)
            options.log_severity_level = 3
            ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        return onnx.load(target)


def bert_feeds(*, batch: int = 2, seq: int = 7, padding: int = 2, vocabulary: int = 100) -> dict[str, Any]:
    """Random ids, and a mask that hides the last `padding` keys of every row but the first."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (batch, seq))
    mask = np.ones((batch, seq), np.int64)
    if padding:
        mask[1:, -padding:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _torch_bert(size: BertSize, attention: str) -> tuple[Any, Any, Any]:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            num_hidden_layers=size.layers,
            hidden_size=size.hidden,
            num_attention_heads=size.heads,
            intermediate_size=size.intermediate,
            vocab_size=size.vocabulary,
            max_position_embeddings=size.positions,
            attn_implementation=attention,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm.weight" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.1 if parameter.ndim == 1 else 0.15)

    class TwoOutputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            result = self.bert(input_ids, attention_mask=attention_mask)
            return result.last_hidden_state, result.pooler_output

    feeds = bert_feeds(vocabulary=size.vocabulary)
    return TwoOutputs().eval(), *(torch.from_numpy(feeds[name]) for name in INPUTS)
