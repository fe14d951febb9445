"""Generates text with GPT-2 and its cache: stock ONNX Runtime, compiled, and compiled with the cache in place."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import target
from decoding import greedy
from hub import load, padded, tokenizer

from ortisan.models import Gpt2Size, gpt2

SMALL = Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=256, positions=256)


def race(sessions: dict[str, tuple[Any, int | None]], ids: Any, mask: Any, steps: int, *, warm: bool) -> dict[str, Any]:
    """The tokens of each session; prints how many it made in a second."""
    results = {}
    for name, (session, capacity) in sessions.items():
        if warm:
            list(greedy(session, ids, mask, 2, capacity=capacity))
        start = time.perf_counter()
        results[name] = np.stack(list(greedy(session, ids, mask, steps, capacity=capacity)), axis=1)
        print(f"{name:24} {results[name].size / (time.perf_counter() - start):8.1f} tokens/s")
    return results


def main(make: Any = lambda small: gpt2(SMALL if small else None)) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an .onnx file with past_key_values, or a folder or hub id of transformers")
    target.add_options(parser)
    parser.add_argument("--small", action="store_true", help="two layers, when there is no --model")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--prompt", action="append", help="more than one make a padded batch")
    options = parser.parse_args()
    target.check(options)
    words = tokenizer(options.model)
    prompts = options.prompt or ["The quick brown fox"]
    ids, mask = padded([words.encode(prompt) for prompt in prompts])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = load(options.model, lambda: make(options.small), place, decoder=True)
        dims = target.bounds(options, model)
        if target.only_sources(options, model, "decoder", **dims):
            return
        build = {"keep": "all", **dims}
        copying = target.build(options, model, place / "copying", **build)
        sessions = {
            "onnxruntime": (onnxruntime.InferenceSession(model, providers=target.providers(options)), None),
            "ortisan": (target.session(options, copying), None),
        }
        if not target.is_gpu(options):
            in_place = target.build(options, model, place / "in_place", cache="in-place", **build)
            sessions["ortisan, cache in place"] = (target.session(options, in_place), ids.shape[1] + options.steps)
        results = race(sessions, ids, mask, options.steps, warm=not options.emulate)
    expected = results["onnxruntime"]
    print("same tokens" if all(np.array_equal(tokens, expected) for tokens in results.values()) else "DIFFERENT TOKENS")
    for prompt, tokens in zip(prompts, expected, strict=True):
        print(repr(prompt + words.decode(tokens)))


if __name__ == "__main__":
    main()
