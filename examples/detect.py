"""Builds a detector whose NonMaxSuppression stays in ONNX Runtime, compares the boxes, and times both."""

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
from ortisan.models import yolo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small images and few filters")
    parser.add_argument("--shown", type=int, default=5, help="how many boxes are printed")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    size = {"image": 128, "width": 8, "classes": 10} if options.small else {}
    with tempfile.TemporaryDirectory() as folder:
        model = load(None, lambda: yolo(batch=1, select=True, **size), Path(folder))
        artifact = ortisan.build(model, Path(folder) / "yolo", on_progress=target.show)
        stock = onnxruntime.InferenceSession(model)
        pixels = stock.get_inputs()[0]
        feeds = {pixels.name: np.random.default_rng(0).standard_normal(pixels.shape, dtype=np.float32)}
        sessions = {"onnxruntime": stock, "ortisan": ortisan.load(artifact)}
        found = {name: session.run(None, feeds) for name, session in sessions.items()}
        boxes, scores, chosen = found["ortisan"]
        for image, kind, place in chosen[: options.shown]:
            corners = ", ".join(f"{side:.1f}" for side in boxes[image, place])
            print(f"class {kind} with {scores[image, kind, place]:.3f} at [{corners}]")
        same = np.array_equal(chosen, found["onnxruntime"][2])
        difference = abs(boxes - found["onnxruntime"][0]).max()
        print(f"{'same' if same else 'OTHER'} {len(chosen)} boxes, largest difference {difference:.1e} pixels")
        compare(sessions, feeds, options.seconds)


if __name__ == "__main__":
    main()
