"""An exported model before and after: how many nodes of each kind, and what they became."""

import tempfile
from collections import Counter
from pathlib import Path

import onnx
import torch
from transformers import BertConfig, BertModel

import ortisan

torch.manual_seed(0)
sizes = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 97,
}
model = BertModel(BertConfig(**sizes), add_pooling_layer=False).eval()
ids = torch.randint(0, 97, (2, 9))
program = torch.onnx.export(model, (ids,), kwargs={"attention_mask": torch.ones_like(ids)}, dynamo=True, verbose=False)

with tempfile.TemporaryDirectory() as folder:
    before = Counter(node.op_type for node in program.model.graph)
    artifact = ortisan.build(program, Path(folder) / "built")
    after = Counter(
        node.op_type
        for node in onnx.load(artifact.folder / artifact.manifest["model"], load_external_data=False).graph.node
    )
    inside = artifact.manifest["op_counts"]

print(f"before: {sum(before.values())} nodes, most of them", dict(before.most_common(4)))
print(f"after: {sum(after.values())} nodes", dict(after))
print("in custom ops:", dict(inside))
assert sum(after.values()) < sum(before.values()) / 4
