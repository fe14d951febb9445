"""Makes a BERT and a GPT-2 with random weights and builds both: models.py OUT --target cuda:80."""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx_ir as ir

import ortisan
from ortisan.models import BertSize, Gpt2Size, bert, gpt2

SMALL_BERT = BertSize(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=256, positions=128)
SMALL_GPT2 = Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=256, positions=128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--target", default="cpu", help="cpu, or cuda:80")
    parser.add_argument("--batch", type=int, default=8, help="the largest batch")
    parser.add_argument("--small", action="store_true", help="two narrow layers")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = {
        "bert": bert(SMALL_BERT if options.small else None),
        "gpt2": gpt2(SMALL_GPT2 if options.small else None),
    }
    most = 64 if options.small else 512
    for name, model in models.items():
        path = options.out / f"{name}.onnx"
        ir.save(model, path, external_data=f"{name}.onnx.data")
        bounds = {"batch": (1, options.batch), "sequence": (1, most), "past_sequence": (0, most)}
        bounds["total_sequence"] = (1, 2 * most)
        dims = {dim: bounds[dim] for dim in _dims(model)}
        print(ortisan.build(path, options.out / name, target=options.target, dims=dims, on_progress=print))


def _dims(model: ir.Model) -> list[str]:
    """The symbolic dims of the inputs that stand for themselves."""
    dims = [dim for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)]
    return list(dict.fromkeys(dim.value for dim in dims if dim.value and dim.value.isidentifier()))


if __name__ == "__main__":
    main()
