"""Submodules that stay functions in the exported model, for graph viewers and transforms."""

import tempfile
from pathlib import Path

import onnx
import torch
from transformers import BertConfig, BertModel

import ortisan.torch

torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 97}
model = BertModel(BertConfig(**sizes)).eval()
ids = torch.randint(0, 97, (2, 9))

with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    fast = ortisan.torch.compile(model, functions=["BertLayer", "BertSelfAttention"], dump=folder)
    result = fast(ids).last_hidden_state
    torch.testing.assert_close(result, model(ids).last_hidden_state, atol=1e-5, rtol=1e-4)
    (path,) = Path(folder).rglob("exported.onnx")
    exported = onnx.load(path, load_external_data=False)

for function in exported.functions:
    if "Bert" in function.name:
        print(f"{function.domain}.{function.name}: {len(function.node)} nodes")
calls = [node.op_type for node in exported.graph.node if node.op_type == "BertLayer"]
print(f"{len(exported.graph.node)} nodes in the graph, {len(calls)} of them calls of BertLayer; same as eager")
