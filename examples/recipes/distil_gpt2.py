"""Distil-GPT-2: six layers of GPT-2. `--model distilbert/distilgpt2` takes the real weights, which are downloaded."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="a folder or hub id; random narrow weights without it")
options = parser.parse_args()

torch.manual_seed(0)
if options.model:
    model = GPT2LMHeadModel.from_pretrained(options.model)
else:
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=96, n_head=4, vocab_size=499, bos_token_id=0, eos_token_id=0))
model.eval()

ids = torch.randint(1, 499, (1, 8))
how = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
wanted = model.generate(ids, **how)

model.forward = torch.compile(model.forward, backend="ortisan")
tokens = model.generate(ids, **how)
assert torch.equal(tokens, wanted)
print("same tokens:", tokens[0, 8:].tolist())
