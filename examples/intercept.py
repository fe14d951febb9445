"""See what reaches a module: the arguments of every call, by name, and every run compared with eager."""

from __future__ import annotations

import argparse

import torch
from transformers import BertConfig, BertModel

import ortisan.torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="encoder.layer.*.attention", help="a pattern of submodules")
    parser.add_argument("--dump", help="a folder for all that is exported and built")
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(**sizes)).eval()
    ids = torch.randint(5, 1000, (2, 9))

    print("calls in eager:")
    with torch.no_grad(), ortisan.torch.intercept(model, print, names=options.names):
        model(ids)

    print("calls of the compiled module:")
    fast = ortisan.torch.compile(model, intercept=print, check="eager", dump=options.dump)
    with torch.no_grad():
        fast(ids)
    print(f"same as eager; {fast.cache_info()}")


if __name__ == "__main__":
    main()
