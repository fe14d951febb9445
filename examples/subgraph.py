"""Compiles one layer of a BERT and leaves the rest to ONNX Runtime."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import target
from hub import load, padded, tokenizer

import ortisan
from ortisan.models import BertSize, bert

SMALL = BertSize(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=256, positions=128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an .onnx file, or a folder or hub id of transformers")
    target.add_options(parser)
    parser.add_argument("--layer", default="encoder.layer.1", help="the layer's name in the names of its nodes")
    options = parser.parse_args()
    if options.emulate:
        parser.error("only artifacts are emulated, and this builds none: bert.py and gpt2.py do")
    words = tokenizer(options.model)
    ids, mask = padded([words.encode("Only one layer of this is compiled.")])
    with tempfile.TemporaryDirectory() as folder:
        path = load(options.model, lambda: bert(SMALL), Path(folder))
        names = [node.name for node in onnx.load(path, load_external_data=False).graph.node]
        chosen = [name for name in names if options.layer in name.replace("/", ".")]
        dims = target.bounds(options, path)
        if target.only_sources(options, path, "layer", include=chosen, **dims):
            return
        compiled = ortisan.compile(path, target=options.target, include=chosen, **dims)
        print(f"{len(chosen)} of {len(names)} nodes chosen: {compiled}")
        library = ortisan.generate(compiled, Path(folder) / "layer")
        converted = ortisan.convert_graph(path, compiled)
        session_options = onnxruntime.SessionOptions()
        session_options.register_custom_ops_library(str(library.path))
        provider = "CUDAExecutionProvider" if target.is_gpu(options) else "CPUExecutionProvider"
        mine = onnxruntime.InferenceSession(converted.SerializeToString(), session_options, providers=[provider])
        stock = onnxruntime.InferenceSession(path)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feeds = {value.name: feeds[value.name] for value in stock.get_inputs()}
        pairs = zip(mine.run(None, feeds), stock.run(None, feeds), strict=True)
        print(f"largest difference {max(float(abs(a - b).max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
