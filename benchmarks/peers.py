"""The runtimes that are timed: each opens a model for a number of threads and gives a function that runs it.

Every peer runs in its best documented form for latency in float32; what it is given is in docs/benchmarks.md.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from benchmarks.grouped import group_attention
from benchmarks.workloads import DECODER, Feeds, Fusible, Workload, is_past
from ortisan.converter.read.load import load_model
from ortisan.converter.save import save_with_external_data
from ortisan.runtime.artifact import Artifact, open_compiled
from ortisan.runtime.engine import open_session, quiet_options
from ortisan.runtime.settings import Weights

Run: TypeAlias = "Callable[[], Any]"

OURS = "ortisan"
HUGE = "ortisan-huge"
ORT = "ort"


class Unavailable(Exception):
    """Why a peer does not take part."""


@dataclass(frozen=True)
class Subject:
    """A workload made ready: its model file, its inputs and what was built from it."""

    workload: Workload
    model: Path
    feeds: Feeds
    artifact: Artifact


@dataclass(frozen=True)
class Opened:
    """`run` is what is timed; `arrays` turns what it returns into numpy arrays, in the order of the model's outputs."""

    run: Run
    arrays: Callable[[Any], list[Any]] = list


Open: TypeAlias = "Callable[[Subject, int], Opened]"


def _ort_session(session: Any, feeds: Feeds) -> Opened:
    return Opened(functools.partial(session.run, None, feeds))


def open_ours(subject: Subject, threads: int, weights: Weights = "mapped") -> Opened:
    """The compiled model in stock ONNX Runtime, its weights where they are mapped."""
    session = open_compiled(subject.artifact, quiet_options(threads=threads), weights=weights)
    if subject.workload.capacity:
        return _in_place(session, subject, subject.artifact.shared)
    return _ort_session(session, subject.feeds)


def open_huge(subject: Subject, threads: int) -> Opened:
    """The same with its weights on 2 MB pages."""
    return open_ours(subject, threads, "huge")


def _in_place(session: Any, subject: Subject, shared: Mapping[str, str]) -> Opened:
    """One buffer is both past and present, so that each run writes the same new positions into it once more."""
    binding = session.io_binding()
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in subject.workload.our_feeds().items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for past, present in shared.items():
        binding.bind_ortvalue_output(present, values[past])
    binding.bind_output("logits", "cpu")
    total = subject.feeds["attention_mask"].shape[1]

    def arrays(_: Any) -> list[Any]:
        filled = {present: values[past].numpy()[:, :, :total] for past, present in shared.items()}
        filled["logits"] = binding.get_outputs()[-1].numpy()
        return [filled[output.name] for output in session.get_outputs()]

    return Opened(functools.partial(session.run_with_iobinding, binding), arrays)


def open_ort(subject: Subject, threads: int) -> Opened:
    return _ort_session(open_session(subject.model, quiet_options(threads=threads)), subject.feeds)


def open_fused(subject: Subject, threads: int) -> Opened:
    """ONNX Runtime on what the optimizer of onnxruntime.transformers makes of the model; decoders with its own ops."""
    fusible = subject.workload.fusible
    if fusible is None:
        raise Unavailable("onnxruntime.transformers has no optimizer for such a model")
    fused = subject.model.with_name("fused.onnx")
    grouped = fusible.model_type == DECODER
    if not fused.exists():
        (_group if grouped else _fuse)(subject.model, fused, fusible)
    session = open_session(fused, quiet_options(threads=threads))
    if grouped and subject.workload.capacity:
        pasts = filter(is_past, subject.feeds)
        return _in_place(session, subject, {past: past.replace("past_key_values", "present") for past in pasts})
    return _ort_session(session, subject.feeds)


def _group(model: Path, fused: Path, fusible: Fusible) -> None:
    grouped = load_model(model)
    group_attention(grouped, fusible.heads)
    save_with_external_data(grouped, fused.parent, fused.stem)


def _fuse(model: Path, fused: Path, fusible: Fusible) -> None:
    import logging

    from onnxruntime.transformers.optimizer import optimize_model

    logging.disable(logging.WARNING)
    try:
        sizes = {"num_heads": fusible.heads, "hidden_size": fusible.hidden}
        done = optimize_model(str(model), model_type=fusible.model_type, **sizes)
        if not done.get_fused_operator_statistics().get("Attention"):
            raise Unavailable("onnxruntime.transformers' optimizer found no attention in it")
        done.save_model_to_file(str(fused), use_external_data_format=True)
    finally:
        logging.disable(logging.NOTSET)


def open_openvino(subject: Subject, threads: int, precision: str | None = "f32") -> Opened:
    """The CPU plugin on static shapes, inputs and outputs shared with numpy; without a precision, its own choice."""
    try:
        openvino = importlib.import_module("openvino")
    except ImportError as error:
        raise Unavailable("openvino is not installed") from error
    core = openvino.Core()
    model = core.read_model(subject.model)
    model.reshape({name: list(array.shape) for name, array in subject.feeds.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        **({} if precision is None else {"INFERENCE_PRECISION_HINT": precision}),
    }
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    for name, array in subject.feeds.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def arrays(_: Any) -> list[Any]:
        return [np.array(request.get_tensor(port).data) for port in compiled.outputs]

    return Opened(functools.partial(request.infer, share_inputs=True, share_outputs=True), arrays)


def open_torch(subject: Subject, threads: int) -> Opened:
    """torch.compile with inductor and frozen weights, compiled anew for each number of threads."""
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("torch is not installed")
    import torch
    from torch._inductor import config

    from benchmarks.torch_models import module_of

    torch.set_num_threads(threads)
    torch._dynamo.reset()
    weights = read_weights(subject.model)
    if "conv.0.weight" in weights:
        raise Unavailable("convolutional networks are not written as modules")
    module = module_of(weights).eval()
    inputs = {name: torch.from_numpy(array) for name, array in subject.feeds.items()}
    compiled = torch.compile(module, backend="inductor", dynamic=False)

    def run() -> Any:
        with torch.inference_mode():
            return compiled(**inputs)

    with config.patch(freezing=True):
        run()
    return Opened(run, lambda outputs: [output.numpy() for output in outputs])


def read_weights(model: Path) -> dict[str, Any]:
    """The initializers of a model file by name."""
    proto = onnx.load(model)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    open: Open
    package: str


PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, "Ortisan", open_ours, "ortisan"),
        Peer(HUGE, "Ortisan, huge", open_huge, "ortisan"),
        Peer(ORT, "ORT", open_ort, "onnxruntime"),
        Peer("ort-fused", "ORT fused", open_fused, "onnxruntime"),
        Peer("openvino", "OpenVINO", open_openvino, "openvino"),
        Peer("torch", "torch", open_torch, "torch"),
    )
}
RIVALS = (ORT, "ort-fused", "openvino", "torch")
"""Those that the ratios are about."""


def versions(names: Sequence[str]) -> dict[str, str]:
    """Version of each package that takes part, of those that are installed."""
    found: dict[str, str] = {}
    for package in dict.fromkeys(PEERS[name].package for name in names):
        if importlib.util.find_spec(package) is not None:
            found[package] = metadata.version(package)
    return found
