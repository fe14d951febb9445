"""Renders what Ortisan makes of a fixed set of models, to compare two versions of Ortisan.

    python tools/replay.py models MODELS       writes the models, with the options of each: once
    python tools/replay.py render MODELS OUT   sources, converted models, manifests and op graphs, by the Ortisan here
    python tools/replay.py compare OLD NEW     what differs: bytes of sources, models, keys of manifests

Only the public API is used, so an old checkout renders with this file too (`PYTHONPATH=OLD`).
Nothing is built, but for the PyTorch front. The cuda target needs AITemplate, and the exports need torch; what is
missing is left out and said.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CPU = "cpu:x86-64-v3"
IMAGES = ("conv2d", "pool2d")
"""Ops without a kernel for CPUs."""
ATTENTION = (
    ("bert", "dynamo", "sdpa"),
    ("bert", "dynamo", "eager"),
    ("bert", "legacy", "sdpa"),
    ("deberta", "dynamo", "eager"),
    ("gpt2", "dynamo", "sdpa"),
    ("gpt2 past", "legacy", "eager"),
    ("llama past", "dynamo", "sdpa"),
    ("llama past", "legacy", "sdpa"),
    ("mistral past", "dynamo", "eager"),
    ("gemma2", "dynamo", "eager"),
    ("t5 encoder", "dynamo", "eager"),
    ("t5 decoder", "dynamo", "eager"),
    ("bart", "dynamo", "sdpa"),
    ("vit", "dynamo", "sdpa"),
)
"""Families of tests/models/zoo.py, exporters and torch's implementations of attention."""


class Cases:
    """The folder of models: NAME.onnx and NAME.json, the options of `build`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, model: Any, **options: Any) -> None:
        import onnx
        import onnx_ir as ir

        proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
        onnx.save(proto, self.folder / f"{name}.onnx")
        (self.folder / f"{name}.json").write_text(json.dumps({"target": CPU, "tune": "off", **options}, indent=1))

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.json")):
            options = json.loads(path.read_text())
            dims = {key: tuple(bound) if isinstance(bound, list) else bound for key, bound in options["dims"].items()}
            yield path.stem, {**options, "dims": dims}


def write_models(folder: Path) -> None:
    cases = Cases(folder)
    _add_transformers(cases)
    _add_images(cases)
    _add_ops(cases)
    if importlib.util.find_spec("torch") is None:
        _say("the exports are left out: torch is not installed")
    else:
        _add_exports(cases)


def _add_transformers(cases: Cases) -> None:
    from ortisan.models import BertSize, Gpt2Size, LlamaSize, bert, gpt2, llama

    small = bert(BertSize(layers=2, hidden=64, heads=4, intermediate=96, vocabulary=97, positions=64))
    decoder = gpt2(Gpt2Size(layers=2, hidden=24, heads=3, vocabulary=61, positions=64))
    grouped = llama(LlamaSize(layers=2, hidden=48, heads=6, kv_heads=2, intermediate=40, vocabulary=61))
    bounds = {"batch": (1, 4), "sequence": (1, 32)}
    past = {**bounds, "past_sequence": (0, 32), "total_sequence": (1, 64)}
    cases.add("bert", small, dims={})
    cases.add("bert-wide", small, dims={}, target="cpu:x86-64-v4")
    cases.add("bert-neon", small, dims={}, target="cpu:aarch64")
    cases.add("bert-bounded", small, dims=bounds)
    cases.add("bert-fixed", small, dims={"batch": 1, "sequence": 16})
    cases.add("bert-without-gelu", small, dims={}, exclude=["Erf", "Softmax"])
    cases.add("bert-products", small, dims={}, include=["MatMul", "Gemm"])
    for name, model in (("gpt2", decoder), ("llama", grouped)):
        cases.add(name, model, dims={})
        cases.add(f"{name}-step", model, dims={"batch": 1, "sequence": 1})
        cases.add(f"{name}-in-place", model, dims={}, cache="in-place")
        cases.add(f"cuda-{name}", model, dims=past, target="cuda:80")
    cases.add("cuda-bert", small, dims=bounds, target="cuda:80")
    cases.add("cuda-bert-half", small, dims=bounds, target="cuda:80,90", precision="fp16")


def _add_images(cases: Cases) -> None:
    """A residual block with a stem, for the only backend that has convolutions."""
    import numpy as np
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    filters = {"stem": (8, 3, 3, 3), "left": (8, 8, 3, 3), "right": (8, 8, 1, 1)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in filters.items()}
    weights |= {f"{name}.bias": rng.normal(size=8).astype(np.float32) for name in filters}
    nodes = [
        helper.make_node("Conv", ["x", "stem", "stem.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "left", "left.bias"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "right", "right.bias"], ["e"]),
        helper.make_node("Add", ["d", "e"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info("x", 1, [2, 3, 16, 16]), helper.make_tensor_value_info("y", 1, [2, 8, 1, 1])]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "images", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    cases.add("cuda-images", model, dims={}, target="cuda:80")


def _add_ops(cases: Cases) -> None:
    """The cases of every module of tests/ops that are ONNX ops, as one model for each module and opset."""
    from tests.ops import harness

    for path in sorted((ROOT / "tests" / "ops").glob("test_*.py")):
        listed = getattr(importlib.import_module(f"tests.ops.{path.stem}"), "CASES", ())
        fitting = [case for case in listed if isinstance(case, harness.Case) and harness.compiles(case)]
        for opset in sorted({case.opset for case in fitting}):
            group = [case for case in fitting if case.opset == opset]
            model = harness.merge(group, [f"c{index}_" for index in range(len(group))], opset)
            stem = path.stem.removeprefix("test_")
            if stem not in IMAGES:
                cases.add(f"ops-{stem}-{opset}", model, dims={}, whole_graph=True)


def _add_exports(cases: Cases) -> None:
    zoo, exports = (importlib.import_module(f"tests.models.{name}") for name in ("zoo", "zoo_exports"))
    for family, exporter, attention in ATTENTION:
        if family not in zoo.FAMILIES:
            raise SystemExit(f"tests/models/zoo.py has no family '{family}'")
        opset = 17 if exporter == "legacy" else 20
        model = exports.export(family, attention=attention, exporter=exporter, opset=opset)
        cases.add(f"export-{family.replace(' ', '-')}-{exporter}-{attention}", model, dims={})


def render_all(models: Path, out: Path) -> None:
    import ortisan

    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(models)  # manifests have the model's path as it was given
    for name, options in Cases(Path(".")):
        try:
            ortisan.build(f"{name}.onnx", out / name, sources_only=True, **options)
            plan = {key: value for key, value in options.items() if key != "weights"}
            graphs = ortisan.compile(f"{name}.onnx", **plan).graphs
        except ortisan.OrtisanError as error:
            (out / name).with_suffix(".error").write_text(f"{error}\n")
            _say(f"{name}: {error}")
            continue
        (out / f"{name}.graphs").write_text("\n\n".join(map(str, graphs)) + "\n")
        _say(name)
    if importlib.util.find_spec("torch") is None:
        _say("the PyTorch front is left out: torch is not installed")
    else:
        _render_torch(out)


def _render_torch(out: Path) -> None:
    """What both roads of the PyTorch front build for a small encoder, as their dumps have it."""
    import torch
    from torch import nn

    import ortisan.torch

    def layer() -> nn.Module:
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

    x = torch.linspace(-1, 1, 2 * 5 * 32).reshape(2, 5, 32)

    def through_wrapper(place: Path) -> None:
        ortisan.torch.compile(layer().eval(), dynamic=True, dump=place, target=CPU)(x)

    def through_compile(place: Path) -> None:
        options = {"dump": place, "target": CPU}
        with torch.no_grad():
            torch.compile(layer().eval(), backend="ortisan", options=options)(x)

    def training(place: Path) -> None:
        options = {"dump": place, "target": CPU}
        torch.compile(layer(), backend="ortisan", options=options)(x).sum().backward()

    roads: dict[str, Callable[[Path], None]] = {
        "torch-wrapper": through_wrapper,
        "torch-compile": through_compile,
        "torch-training": training,
    }
    for name, run in roads.items():
        with tempfile.TemporaryDirectory() as cache, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.environ["ORTISAN_CACHE_DIR"] = cache
            run(out / name)
        for file in [*(out / name).rglob("*.so"), *(out / name).rglob("inputs.pt")]:
            file.unlink()
        for file in (out / name).rglob("manifest.json"):
            manifest = json.loads(file.read_text())
            manifest["files"] = {key: row for key, row in manifest["files"].items() if not key.endswith(".so")}
            file.write_text(json.dumps(manifest, indent=2) + "\n")
        _say(name)


def compare(old: Path, new: Path, ignored: set[str]) -> list[str]:
    """One line for each file that differs. Models are compared without the stack traces of their exporter, manifests
    without hashes of models and the keys that are ignored."""
    files = sorted({path.relative_to(root) for root in (old, new) for path in root.rglob("*") if path.is_file()})
    found = []
    for file in files:
        if not (old / file).is_file() or not (new / file).is_file():
            found.append(f"only in {new if (new / file).is_file() else old}: {file}")
        elif file.name == "manifest.json":
            manifests = [_keys(json.loads((root / file).read_text())) for root in (old, new)]
            keys = {key for key in {**manifests[0], **manifests[1]} if key.partition(".")[0] not in ignored}
            keys = {key for key in keys if key not in ignored and manifests[0].get(key) != manifests[1].get(key)}
            found += [f"{file}: {key}" for key in sorted(keys)]
        elif (old / file).read_bytes() != (new / file).read_bytes() and not _same_model(old / file, new / file):
            found.append(f"{file} differs")
    return found


def _keys(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest's values by key, those of its sections by "section.key"."""
    manifest["files"] = {name: {} for name in manifest["files"]}
    sections = {key: value for key, value in manifest.items() if key == "options"}
    rest = {key: value for key, value in manifest.items() if key not in sections}
    return rest | {f"{key}.{name}": value for key, section in sections.items() for name, value in section.items()}


def _same_model(old: Path, new: Path) -> bool:
    import onnx

    if old.suffix != ".onnx":
        return False
    models = [onnx.load(path, load_external_data=False) for path in (old, new)]
    for model in models:
        for node in model.graph.node:
            del node.metadata_props[:]
    return bool(models[0] == models[1])


def _say(text: str) -> None:
    sys.stderr.write(f"replay: {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    models = commands.add_parser("models")
    models.add_argument("models", type=Path)
    render = commands.add_parser("render")
    render.add_argument("models", type=Path)
    render.add_argument("out", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    both.add_argument("--ignore", default="", help="keys of manifests, comma-separated")
    chosen = parser.parse_args()
    if chosen.command == "compare":
        differences = compare(chosen.old, chosen.new, set(chosen.ignore.split(",")))
        sys.stdout.writelines(f"{line}\n" for line in differences)
        raise SystemExit(bool(differences))
    if chosen.command == "models":
        sys.path[:0] = [str(ROOT)]
        write_models(chosen.models)
    else:
        shutil.rmtree(chosen.out, ignore_errors=True)
        render_all(chosen.models, chosen.out)


if __name__ == "__main__":
    main()
