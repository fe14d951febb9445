"""Sessions of stock ONNX Runtime on CPUs, with or without custom ops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnxruntime as ort


def open_session(
    model: onnx.ModelProto | Path,
    *libraries: Path | None,
    threads: int | None = None,
    plain: bool = False,
    optimized: Path | None = None,
    entries: Mapping[str, str] | None = None,
) -> ort.InferenceSession:
    """Opens a session with the libraries registered.

    `plain` turns optimizations off; `optimized` turns the basic ones on and is where ONNX Runtime saves the model;
    `entries` are session config entries.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    for library in libraries:
        options.register_custom_ops_library(str(library))
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
