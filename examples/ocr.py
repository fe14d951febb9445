"""Reads a picture of text with PP-OCR's detector and recogniser, out of a published package: the same words, faster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import target
from PIL import Image, ImageDraw, ImageFont, ImageOps
from published import fetch
from timing import interleaved

import ortisan

PACKAGE = "rapidocr-onnxruntime==1.4.4"
MODELS = [f"rapidocr_onnxruntime/models/ch_PP-OCRv4_{kind}_infer.onnx" for kind in ("det", "rec")]
TEXTS = ("ONNX Runtime, one extra library", "no compiler on the server", "Total 1,284.50 EUR", "2026-11-19 08:15")


def draw() -> Any:
    page, font = Image.new("RGB", (640, 384), "white"), ImageFont.load_default(32)
    for number, text in enumerate(TEXTS):
        ImageDraw.Draw(page).text((40, 40 + 80 * number), text, "black", font)
    return page


def pixels(image: Any) -> Any:
    """[1, 3, height, width] between -1 and 1."""
    return (np.asarray(image, np.float32).transpose(2, 0, 1)[None] - 127.5) / 127.5


def lines(found: Any) -> Iterator[tuple[int, int, int, int]]:
    """The boxes of the rows of text in the detector's map, a little wider than what it marks."""
    marked = found[0, 0] > 0.3
    rows = np.flatnonzero(np.diff(marked.any(axis=1).astype(int), prepend=0, append=0))
    for top, bottom in rows.reshape(-1, 2):
        columns = np.flatnonzero(marked[top:bottom].any(axis=0))
        more = (bottom - top) // 2
        yield int(columns[0]) - more, int(top) - more, int(columns[-1]) + more, int(bottom) + more


def words(scores: Any, characters: list[str]) -> list[str]:
    """The likeliest characters, repeated ones and blanks (0) left out."""
    best = scores.argmax(axis=2)
    kept = (best != 0) & (best != np.pad(best, ((0, 0), (1, 0)))[:, :-1])
    return ["".join(characters[c] for c in row[keep]) for row, keep in zip(best, kept, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/examples"), help="for the models and what is built")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    page, read = draw(), {}
    for model in fetch(PACKAGE, MODELS, options.folder):
        crops = (
            [ImageOps.pad(page.crop(box), (640, 48), color="white", centering=(0, 0)) for box in lines(read["ortisan"])]
            if read
            else [page]
        )
        feeds = {"x": np.concatenate([pixels(crop) for crop in crops])}
        folder = ortisan.build(model, options.folder / model.stem, inputs=feeds, on_progress=target.show)
        stock = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        sessions = {"onnxruntime": stock, "ortisan": ortisan.load(folder)}
        read = {name: session.run(None, feeds)[0] for name, session in sessions.items()}
        times = interleaved(sessions, feeds, options.seconds)
        print(f"{model.stem:28}{times['onnxruntime']:8.2f} ms{times['ortisan']:8.2f} ms with ortisan")
    characters = ["", *stock.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    found = {name: words(scores, characters) for name, scores in read.items()}
    print("\n".join(found["ortisan"]))
    print("same words" if found["ortisan"] == found["onnxruntime"] else f"but onnxruntime reads {found['onnxruntime']}")


if __name__ == "__main__":
    main()
