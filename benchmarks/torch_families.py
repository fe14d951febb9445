"""`python -m benchmarks.torch_families`: families of transformers under torch.compile: eager, inductor and Ortisan.

For each, the seconds of the first call (cold: no cache of any kind; warm: what an earlier process left on disk), and
the milliseconds of a call after that, of a forward without gradients and of a training step. Calls take turns in one
process; a first call that a cache may serve has a process of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.machine import cpu_name
from benchmarks.timing import Effort, best_and_median, take_turns

_TEXT = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 2000,
}  # fmt: skip
_PAIR = {
    "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "vocab_size": 2000,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_DETR = {**_PAIR, "use_timm_backbone": False, "use_pretrained_backbone": False, "num_queries": 20, "backbone": None}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", _TEXT),
    "GPT-2": ("GPT2", {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 2000}),
    "Llama": ("Llama", {**_TEXT, "num_key_value_heads": 2}),
    "T5": ("T5", {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_heads": 4, "vocab_size": 2000}),
    "Whisper": ("Whisper", {**_PAIR, "max_source_positions": 100, "num_mel_bins": 40}),
    "ViT": ("ViT", {**_TEXT, "image_size": 112, "patch_size": 16}),
    "SegFormer": ("Segformer", {"hidden_sizes": [32, 64, 160, 256], "depths": [1, 1, 1, 1]}),
    "DETR": ("Detr", _DETR),
}
_BATCH, _LENGTH = 2, 64


def model_of(family: str) -> Any:
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    name, settings = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")
    if name == "Detr":
        parts = {
            "embedding_size": 32,
            "hidden_sizes": [32, 64, 128, 256],
            "depths": [1, 1, 1, 1],
            "out_features": ["stage4"],
        }
        settings = {**settings, "backbone_config": transformers.ResNetConfig(**parts)}
    return getattr(transformers, f"{name}Model")(config(**settings)).eval()


def inputs_of(family: str) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    torch.manual_seed(1)
    ids = torch.randint(3, 2000, (_BATCH, _LENGTH))
    if family in ("ViT", "SegFormer", "DETR"):
        return {"pixel_values": torch.randn(_BATCH, 3, 112, 112)}
    if family == "Whisper":
        return {"input_features": torch.randn(_BATCH, 40, 200), "decoder_input_ids": ids, "use_cache": False}
    if family == "T5":
        return {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        **({} if family == "BERT" else {"use_cache": False}),
    }


def compiled(model: Any, way: str) -> Any:
    torch = importlib.import_module("torch")
    return model if way == "eager" else torch.compile(model, backend=way)


def step_of(call: Any, inputs: dict[str, Any], *, train: bool) -> Callable[[], Any]:
    torch = importlib.import_module("torch")

    def forward() -> Any:
        with torch.no_grad():
            return next(iter(call(**inputs).values()))

    def step() -> Any:
        loss = next(iter(call(**inputs).values())).square().mean()
        loss.backward()
        return loss

    return step if train else forward


def first_call(family: str, way: str, *, train: bool) -> float:
    step = step_of(compiled(model_of(family), way), inputs_of(family), train=train)
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def first_calls(family: str, way: str, *, train: bool) -> dict[str, float]:
    """Two processes with one empty cache between them."""
    code = f"from benchmarks.torch_families import first_call; print(first_call({family!r}, {way!r}, train={train}))"
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        places = {"ORTISAN_CACHE_DIR": f"{cache}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        for name in ("cold", "warm"):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                env={**os.environ, **places},
                check=True,
                capture_output=True,
                text=True,
            )
            found[name] = round(float(done.stdout.split()[-1]), 1)
    return found


def steady(family: str, ways: list[str], effort: Effort, *, train: bool) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    torch._dynamo.reset()
    model, inputs = model_of(family), inputs_of(family)
    calls = {way: step_of(compiled(model, way), inputs, train=train) for way in ways}
    want = calls["eager"]()
    errors = {way: float(f"{(call() - want).abs().max() / want.abs().max():.0e}") for way, call in calls.items()}
    for call in calls.values():
        for _ in range(6):
            call()
    times = {way: best_and_median(found) for way, found in take_turns(calls, effort).items()}
    return {way: {"ms": [round(ms, 2) for ms in times[way]], "error": errors[way]} for way in ways}


def main(
    family: Annotated[list[str] | None, typer.Option(help="Of the families; all if not given.")] = None,
    seconds: Annotated[float, typer.Option(help="How long to time the calls of a family.")] = 8.0,
    train: Annotated[bool, typer.Option(help="A training step instead of a forward.")] = False,
    first: Annotated[bool, typer.Option(help="First calls, too.")] = True,
    output: Annotated[Path, typer.Option("--json", help="Figures are added to this file.")] = Path(
        "build/families.json"
    ),
) -> None:
    """Times families of transformers."""
    report = json.loads(output.read_text()) if output.exists() else {"machine": cpu_name(), "rows": {}}
    output.parent.mkdir(parents=True, exist_ok=True)
    ways = ["eager", "inductor", "ortisan"]
    for name in family or FAMILIES:
        row = steady(name, ways, Effort(seconds, rounds=3), train=train)
        for way in ways[1:] if first else ():
            row[way]["first"] = first_calls(name, way, train=train)
        report["rows"][f"{name}, {'training step' if train else 'forward'}"] = row
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(row))


if __name__ == "__main__":
    typer.run(main)
