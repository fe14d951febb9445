"""Builds of models for cuda:80, run by the emulator: what they compute and what they launch. Each runs in its own process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import ortisan
from ortisan.checks.verify import Verification
from ortisan.models import BertSize, Gpt2Size, bert, gpt2
from tests.ait.gpu_models import gpu_models
from tests.models.diffusion import diffusion

sys.path.append(str(Path(__file__).parent.parent.parent / "examples"))

Feeds = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Emulated:
    """What a build by emulation found."""

    errors: Mapping[str, float]
    """The largest relative error of each set of inputs."""
    launches: Mapping[str, int]
    left: tuple[str, ...]
    """Why custom ops were left out, if any were."""


def emulate_model(name: str, **options: Any) -> Emulated:
    """Built, and verified at several sets of inputs, all by emulation."""
    model, dims, cases = _models(name)
    with tempfile.TemporaryDirectory() as folder:
        artifact = ortisan.build(
            model, Path(folder) / "out", target="cuda:80", dims=dims, keep="all", verify="emulate", inputs=cases,
            on_progress=_tell, name=name.replace(" ", "_"), **options,
        )  # fmt: skip
        verification = artifact.verification
        manifest = artifact.manifest
        assert manifest["verified"] == ("emulated (PTX, sm_80)" if verification else None)
        left = tuple(each["reason"] for each in manifest["departures"])
        return Emulated(*_figures(verification), left)


def _figures(found: Verification | None) -> tuple[dict[str, float], dict[str, int]]:
    errors: dict[str, float] = {}
    for figure in found.figures if found else ():
        errors[figure.case] = max(errors.get(figure.case, 0.0), figure.difference.max_rel)
    return errors, {work.case: work.launches for work in (found.work if found else ())}


def _tell(step: str) -> None:
    print(step, flush=True)


def _models(name: str) -> tuple[ir.Model, Any, Any]:
    """A model, the bounds of its dims, and inputs."""
    if name == "diffusion":
        random = np.random.default_rng(4)
        shapes = {"sample": (4, 8, 8), "time": (32,), "text": (7, 24)}
        cases = [
            {key: random.standard_normal((batch, *shape)).astype(np.float32) for key, shape in shapes.items()}
            for batch in (1, 2)
        ]
        return diffusion(), {"batch": (1, 2), "tokens": (1, 16)}, cases
    if name.startswith("bert base"):
        layers, length = (2, 32) if name == "bert base, 2 layers" else (12, 16)
        size = BertSize(layers=layers, vocabulary=1000, positions=64)
        return bert(size), {"batch": (1, 2), "sequence": (1, length)}, _texts(length, 1000, padded=layers == 2)
    found = next(each for each in gpu_models() if each.name == name)
    return found.model, dict(found.dims), list(found.cases.values())


def _texts(length: int, vocabulary: int, *, padded: bool) -> list[Feeds]:
    """Rows of this length; with `padded`, a second row that is padded on the right, and on the left."""
    random = np.random.default_rng(6)
    texts = []
    for hidden in ("right", "left") if padded else ("",):
        ids = random.integers(0, vocabulary, (2 if padded else 1, length))
        mask = np.ones_like(ids)
        mask[1:, slice(length - 9, None) if hidden == "right" else slice(0, 9)] = 0
        texts.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2})
    return texts


@dataclass(frozen=True)
class Decoded:
    tokens: list[list[int]]
    expected: list[list[int]]
    launches: list[int]
    """Of each step."""
    loaded: list[int]


def decode(steps: int, *, in_place: bool) -> Decoded:
    """Greedy tokens of a narrow GPT-2 for two prompts, one padded on the left: a prefill and the steps behind it."""
    from decoding import greedy

    size = Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=256, positions=128)
    model = gpt2(size)
    ids = np.random.default_rng(8).integers(0, size.vocabulary, (2, 6))
    mask = np.ones_like(ids)
    mask[1, :2] = 0
    dims: dict[str, Any] = {"batch": (1, 4), "sequence": (1, 16)}
    capacity = 24 if in_place else None
    options: dict[str, Any] = {}
    if in_place:
        dims |= {"cache_capacity": capacity, "total_sequence": (1, capacity)}
        options = {"cache": "in-place"}
    else:
        dims |= {"past_sequence": (0, 16), "total_sequence": (1, 24)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ir.save(model, place / "gpt2.onnx")
        artifact = ortisan.build(
            place / "gpt2.onnx", place / "out", target="cuda:80", dims=dims, keep="all", verify="emulate", quick=True,
            on_progress=_tell, name="gpt2", **options,
        )  # fmt: skip
        assert artifact.ops, artifact.manifest["departures"]
        import onnxruntime

        stock = onnxruntime.InferenceSession(place / "gpt2.onnx", providers=["CPUExecutionProvider"])
        session = ortisan.emulate(artifact, on_progress=_tell)
        expected = [tokens.tolist() for tokens in greedy(stock, ids, mask, steps)]
        decoded = Decoded([], expected, [], [])
        for tokens in greedy(session, ids, mask, steps, capacity=capacity):
            decoded.tokens.append(tokens.tolist())
            decoded.launches.append(sum(kernel.launches for kernel in session.kernels))
            decoded.loaded.append(sum(kernel.loaded for kernel in session.kernels))
        return decoded
