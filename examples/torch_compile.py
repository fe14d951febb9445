"""torch.compile with Ortisan as its backend: BERT, or a Llama whose lengths change, against eager."""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, BertConfig, LlamaConfig

import ortisan.torch

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def make(name: str, small: bool) -> Any:
    """A model with random weights of the real size, or with two narrow layers."""
    if name == "bert":
        return AutoModel.from_config(BertConfig(**SMALL if small else {}))
    sizes = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 2048}
    return AutoModelForCausalLM.from_config(LlamaConfig(**SMALL if small else sizes, vocab_size=32000))


def best(run: Any, seconds: float) -> float:
    """Milliseconds of the fastest run."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["bert", "llama"], nargs="?", default="bert")
    parser.add_argument("--small", action="store_true", help="two narrow layers")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to time each")
    parser.add_argument("--explain", action="store_true", help="say what is compiled, and what is not and why")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = make(options.model, options.small).eval()
    more = {} if options.model == "bert" else {"use_cache": False}
    batches = [torch.randint(5, 1000, (1 if options.model == "bert" else 2, length)) for length in (128, 96)]

    # Importing ortisan is not needed: torch finds the backend "ortisan" by itself where the package is installed.
    fast = torch.compile(model, backend=ortisan.torch.backend, dynamic=options.model == "llama")
    with torch.no_grad():
        if options.explain:
            print(ortisan.torch.explain(model, batches[0], **more))
        for ids in batches:
            start = time.perf_counter()
            difference = (fast(ids, **more)[0] - model(ids, **more)[0]).abs().max()
            took = time.perf_counter() - start
            print(f"{ids.shape[1]:4} tokens: first call {took:6.1f} s, largest difference {difference:.1e}")
        times = {name: best(lambda run=run: run(batches[-1], **more), options.seconds) for name, run in
                 {"eager": model, "ortisan": fast}.items()}  # fmt: skip
    for name, milliseconds in times.items():
        print(f"{name:12} {milliseconds:10.2f} ms")
    print(f"speedup      {times['eager'] / times['ortisan']:10.2f}")


if __name__ == "__main__":
    main()
