"""The same as gpt2.py with a Llama: grouped queries, rotary positions, RMS norm, SwiGLU."""

from __future__ import annotations

from gpt2 import main

from ortisan.models import LlamaSize, llama

# A Llama of 110 million weights, and one for a quick look.
MIDDLE = LlamaSize(layers=8, hidden=768, heads=12, kv_heads=4, intermediate=2048)
SMALL = LlamaSize(layers=2, hidden=64, heads=4, kv_heads=2, intermediate=96, vocabulary=256)

if __name__ == "__main__":
    main(lambda small: llama(SMALL if small else MIDDLE))
