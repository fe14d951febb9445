"""Builds a ResNet, compares its five likeliest classes with stock ONNX Runtime's, and times both."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import target
from hub import load
from timing import compare

import ortisan
from ortisan.models import resnet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an .onnx file that makes logits of images")
    parser.add_argument("--small", action="store_true", help="a narrow ResNet-18, when there is no --model")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = {"depth": 18, "image": 64, "width": 16, "classes": 100} if options.small else {}
        model = load(options.model, lambda: resnet(**small), Path(folder))
        artifact = ortisan.build(model, Path(folder) / "resnet", on_progress=target.show)
        stock = onnxruntime.InferenceSession(model)
        pixels = stock.get_inputs()[0]
        shape = [size if isinstance(size, int) else options.batch for size in pixels.shape]
        feeds = {pixels.name: np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
        sessions = {"onnxruntime": stock, "ortisan": ortisan.load(artifact)}
        logits = {name: session.run(None, feeds)[0] for name, session in sessions.items()}
        best = {name: np.argsort(-found)[:, :5] for name, found in logits.items()}
        for image, classes in enumerate(best["ortisan"]):
            print(f"image {image}: classes {', '.join(map(str, classes))}")
        same = np.array_equal(best["ortisan"], best["onnxruntime"])
        print(f"{'same' if same else 'OTHER'} classes, largest difference {np.ptp([*logits.values()], 0).max():.1e}")
        compare(sessions, feeds, options.seconds)


if __name__ == "__main__":
    main()
