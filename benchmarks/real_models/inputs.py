"""Inputs of the real models: written in inputs.json, drawn with fixed seeds.

A model has a list of cases, a case has a text per input: `TYPE[DIMS] KIND ARGUMENTS`.

    float32[1,3,224,224] image -1 1     patches of colour with some noise, between the two
    float32[1,16000] audio              two tones and some noise, within -1 and 1
    float32[4,96] normal                standard normal; normal 0.1 has that deviation
    float32[4,2] uniform 0 5            evenly between the two
    int64[1,32] below 256               integers from 0, or `from 5 256`
    int64[1] const 16000                the same everywhere
    float32[3] values 0 1 0             these
    bool[1,32] ramp                     0, 1, 2, ... in reading order; a bool is its parity
    string[2,3] of red,green,blue       words of a list
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ortisan.registry.dtypes import Array

SPECS = Path(__file__).with_name("inputs.json")

_SPEC = re.compile(r"(\w+)\[([\d, ]*)\] (\w+) ?(.*)")
_PATCH = 8
_RATE = 16000


@dataclass(frozen=True)
class Spec:
    """One input: its element type, shape, the kind of its content and that kind's arguments."""

    dtype: str
    shape: tuple[int, ...]
    kind: str
    arguments: tuple[str, ...]


def parse_spec(text: str) -> Spec:
    found = _SPEC.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not TYPE[DIMS] KIND ARGUMENTS")
    dtype, dims, kind, arguments = found.groups()
    if kind not in _KINDS:
        raise ValueError(f"{text!r} has the unknown kind {kind!r}; there are {', '.join(_KINDS)}")
    return Spec(dtype, tuple(int(dim) for dim in dims.split(",") if dim.strip()), kind, tuple(arguments.split()))


def read_specs(path: Path = SPECS) -> dict[str, list[dict[str, Spec]]]:
    """The cases of each model."""
    texts: dict[str, list[dict[str, str]]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        model: [{name: parse_spec(text) for name, text in case.items()} for case in cases]
        for model, cases in texts.items()
    }


def draw(model: str, case: int, specs: Mapping[str, Spec]) -> dict[str, Array]:
    """The arrays of one case: the same ones for the same names, on every machine."""
    return {
        name: draw_one(spec, np.random.default_rng(zlib.crc32(f"{model}/{case}/{name}".encode())))
        for name, spec in specs.items()
    }


def draw_one(spec: Spec, rng: np.random.Generator) -> Array:
    if spec.dtype == "string":
        return np.asarray(rng.choice(np.array(spec.arguments[0].split(",")), spec.shape))
    values = _KINDS[spec.kind](spec.shape, rng, *(float(argument) for argument in spec.arguments))
    return np.asarray(values % 2 if spec.dtype == "bool" else values).astype(spec.dtype)


def _image(shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float) -> Array:
    wide = [dim >= 3 * _PATCH for dim in shape]
    patches = rng.uniform(0, 1, [-(-dim // _PATCH) if far else dim for dim, far in zip(shape, wide, strict=True)])
    for axis, (dim, far) in enumerate(zip(shape, wide, strict=True)):
        if far:
            patches = np.repeat(patches, _PATCH, axis=axis).take(range(dim), axis=axis)
    return low + (high - low) * (0.9 * patches + 0.1 * rng.uniform(0, 1, shape))


def _audio(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    time = np.arange(int(np.prod(shape))).reshape(shape) / _RATE
    tones = 0.3 * np.sin(2 * np.pi * 220 * time) + 0.1 * np.sin(2 * np.pi * 733 * time)
    return np.clip(tones + 0.05 * rng.standard_normal(shape), -1, 1)


def _ramp(shape: tuple[int, ...], _: np.random.Generator) -> Array:
    return np.arange(int(np.prod(shape))).reshape(shape)


_KINDS: dict[str, Callable[..., Any]] = {
    "image": _image,
    "audio": _audio,
    "normal": lambda shape, rng, deviation=1.0: deviation * rng.standard_normal(shape),
    "uniform": lambda shape, rng, low, high: rng.uniform(low, high, shape),
    "below": lambda shape, rng, end: rng.integers(0, int(end), shape),
    "from": lambda shape, rng, low, end: rng.integers(int(low), int(end), shape),
    "const": lambda shape, _, value: np.full(shape, value),
    "values": lambda shape, _, *values: np.array(values).reshape(shape),
    "ramp": _ramp,
    "of": lambda shape, *_: np.zeros(shape),
}
