"""Builds the U-Net of Stable Diffusion 1.5, denoises latents with it and with stock ONNX Runtime, and times both."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import target
from hub import load
from timing import compare

import ortisan
from ortisan.models import DiffusionSize, diffusion_unet

SMALL = DiffusionSize(width=32, levels=(1, 2), layers=1, heads=2, groups=8, states=64, tokens=16)
TIMES = 1000
KEPT = np.cumprod(1 - np.linspace(0.00085**0.5, 0.012**0.5, TIMES) ** 2)
"""The share of the picture, the rest being noise, at each time."""


def feeds_of(session: Any, latents: Any, time: int, states: Any) -> dict[str, Any]:
    """The latents twice: for no text, and for the text."""
    kind = next(value.type for value in session.get_inputs() if value.name == "timestep")
    times = np.full(2, time, np.int64 if "int64" in kind else np.float32)
    return {"sample": np.concatenate([latents] * 2), "timestep": times, "encoder_hidden_states": states}


def denoise(session: Any, latents: Any, states: Any, steps: int, guidance: float) -> Any:
    """DDIM: at each step the picture that the noise leaves, and as much of that noise as the next time has."""
    pace = max(1, TIMES // steps)
    for time in range(TIMES - 1, -1, -pace):
        after = KEPT[time - pace] if time >= pace else 1.0
        plain, told = np.split(session.run(None, feeds_of(session, latents, time, states))[0], 2)
        noise = plain + guidance * (told - plain)
        picture = (latents - (1 - KEPT[time]) ** 0.5 * noise) / KEPT[time] ** 0.5
        latents = (after**0.5 * picture + (1 - after) ** 0.5 * noise).astype(np.float32)
    return latents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="an .onnx file of a whole U-Net; without, a narrow one with random weights")
    parser.add_argument("--states", type=Path, help="an .npy file [2, tokens, width]: those of no text and of a text")
    parser.add_argument("--image", type=int, default=16, help="the size of the latents; 64 for pictures of 512 pixels")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    target.add_options(parser)
    options = parser.parse_args()
    target.check(options)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        model = load(options.model, lambda: diffusion_unet(SMALL, image=options.image), Path(folder))
        more = target.bounds(options, Path(model))
        if target.only_sources(options, model, "stable_diffusion", **more):
            return
        how = {"target": options.target, "on_progress": target.show, **more}
        artifact = ortisan.build(model, Path(folder) / "unet", **how)
        stock = onnxruntime.InferenceSession(model, providers=target.providers(options))
        sessions = {"onnxruntime": stock, "ortisan": ortisan.load(artifact)}
        tokens, width = next(i.shape for i in stock.get_inputs() if i.name == "encoder_hidden_states")[1:]
        sizes = (2, tokens if isinstance(tokens, int) else 77, width)
        states = np.load(options.states) if options.states else random.standard_normal(sizes)
        latents = random.standard_normal((1, 4, options.image, options.image), dtype=np.float32)
        loop = latents, states.astype(np.float32), options.steps, options.guidance
        found = {name: denoise(session, *loop) for name, session in sessions.items()}
        difference = abs(found["ortisan"] - found["onnxruntime"]).max() / abs(found["onnxruntime"]).max()
        print(f"{options.steps} steps, largest difference {difference:.1e} of the largest latent")
        compare(sessions, feeds_of(stock, latents, 0, loop[1]), options.seconds)


if __name__ == "__main__":
    main()
