"""Builds a BERT, compares it with stock ONNX Runtime on padded batches, and times both."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import target
from hub import load, padded, tokenizer
from timing import compare

from ortisan.models import BertSize, bert

SMALL = BertSize(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=256, positions=128)
TEXTS = ("ONNX Runtime, one extra library, no compiler on the server.", "Short.", "Something of a length in between.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an .onnx file, or a folder or hub id of transformers")
    target.add_options(parser)
    parser.add_argument("--small", action="store_true", help="two layers, when there is no --model")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    target.check(options)
    words = tokenizer(options.model)
    ids, mask = padded([words.encode(text) for text in TEXTS])
    with tempfile.TemporaryDirectory() as folder:
        model = load(options.model, lambda: bert(SMALL if options.small else None), Path(folder))
        dims = target.bounds(options, model)
        if target.only_sources(options, model, "bert", **dims):
            return
        artifact = target.build(options, model, Path(folder) / "bert", **dims)
        stock = onnxruntime.InferenceSession(model, providers=target.providers(options))
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feeds = {value.name: feeds[value.name] for value in stock.get_inputs()}
        sessions = {"onnxruntime": stock, "ortisan": target.session(options, artifact)}
        outputs = [session.run(None, feeds) for session in sessions.values()]
        difference = max(float(abs(a - b).max()) for a, b in zip(*outputs, strict=True))
        print(f"largest difference       {difference:8.1e}")
        if not options.emulate:
            compare(sessions, feeds, options.seconds)


if __name__ == "__main__":
    main()
