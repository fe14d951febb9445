"""A Phi-like model: prompts of several lengths in one session, and text by generate()."""

import torch
from transformers import PhiConfig, PhiForCausalLM

import ortisan.torch

torch.manual_seed(0)
config = PhiConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=199,
    partial_rotary_factor=0.5, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
model = PhiForCausalLM(config).eval()

axes = {0: "batch", 1: "seq"}
forward = ortisan.torch.compile(model, dynamic={"input_ids": axes, "attention_mask": axes})
with torch.no_grad():
    for batch, length in ((2, 5), (4, 11)):
        ids = torch.randint(3, 199, (batch, length))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        torch.testing.assert_close(forward(**inputs).logits, model(**inputs).logits, atol=1e-4, rtol=1e-3)
print("forward:", forward.cache_info())

ids = torch.randint(3, 199, (2, 6))
mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])  # padded on the left
greedy = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False}
wanted = model.generate(ids, **greedy)
text = ortisan.torch.compile(model, dynamic=True)
with text.as_forward():
    tokens = model.generate(ids, **greedy)
assert torch.equal(tokens, wanted)
print("generate():", text.cache_info(), "same tokens")
