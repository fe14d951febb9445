"""A profile of ONNX Runtime: which nodes a compiled model spends its time in."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

import ortisan.torch

torch.manual_seed(0)
sizes = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 97,
}
model = BertModel(BertConfig(**sizes)).eval()
ids = torch.randint(0, 97, (2, 9))

with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    settings = {"enable_profiling": True, "profile_file_prefix": f"{folder}/profile"}
    # exclude= leaves the softmaxes to ONNX Runtime, so that there is more than one node to see.
    fast = ortisan.torch.compile(model, session_options=settings, exclude=["Softmax"])
    for _ in range(10):
        fast(ids)
    path = fast.entries()[0].runner.session.end_profiling()
    events = json.loads(Path(path).read_text())

spent: Counter[str] = Counter()
for event in events:
    if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
        spent[event["args"]["op_name"]] += event["dur"]
for name, microseconds in spent.most_common(5):
    print(f"{microseconds / 10:8.0f} us a run  {name}")
print(f"{len(spent)} kinds of nodes")
