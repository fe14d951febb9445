"""Caches of decoders as inputs: a DynamicCache in the wrapper, a StaticCache under torch.compile."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

import ortisan.torch

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=96,
    vocab_size=97,
)
model = LlamaForCausalLM(config).eval()
ids = torch.randint(0, 97, (1, 6))


@torch.no_grad()
def decode(call, cache, steps: int = 5) -> list[int]:
    """Greedy, one token a step; the cache is changed in place."""
    tokens, place = ids, torch.arange(ids.shape[1])
    found = []
    for _ in range(steps):
        logits = call(tokens, past_key_values=cache, cache_position=place).logits
        tokens, place = logits[:, -1:].argmax(-1), place[-1:] + 1
        found.append(int(tokens))
    return found


wanted = decode(model, DynamicCache(config=config))

# The cache goes in as tensors, and is updated as eager does: the prompt is one session, and the steps another.
fast, cache = ortisan.torch.compile(model, dynamic=True), DynamicCache(config=config)
assert decode(fast, cache) == wanted
print("DynamicCache:", cache.get_seq_length(), "tokens,", fast.cache_info().misses, "sessions, same tokens")

# A StaticCache is written in place, which only torch.compile does: tensors of fixed size, so steps are one graph.
step = torch.compile(model, backend="ortisan")
static = StaticCache(config=config, max_cache_len=16)
assert decode(step, static) == wanted
print("StaticCache: same tokens")

# generate() by itself.
with fast.as_forward(), torch.no_grad():
    tokens = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
assert tokens[0, 6:].tolist() == wanted
print("generate(): same tokens")
