"""Op graphs as custom ops of one library for GPUs, whose kernels the emulator executes from their PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from ortisan.checks.isolated import Isolated
from ortisan.checks.session import SessionSpec
from ortisan.checks.work import KernelWork
from ortisan.codegen.ait.adapter import Adapter, AitSettings
from ortisan.codegen.ait.backend import CudaBackend
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.emulated import build_twin, twin_project
from ortisan.codegen.ait.library import render_cuda_library
from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.backend import Sources, Twin
from ortisan.pipeline.emulate import Emulator
from ortisan.registry.graph import Graph

_DOMAIN = "ortisan.every_op"
_LIBRARY = "every_op"


@dataclass(frozen=True)
class PtxOnly(CudaBackend):
    """Builds no machine code, which takes nvcc most of its time and is not executed."""

    def twin(self, sources: Sources, *, name: str, on_progress: Any = None) -> Twin:
        project = twin_project(sources, name=name, architectures=self.architectures, install=find_aitemplate())
        virtual = ";".join(f"{architecture}-virtual" for architecture in self.architectures)
        settings = {**project.settings, "CMAKE_CUDA_ARCHITECTURES": virtual}
        return build_twin(replace(project, settings=settings), on_progress)


class EmulatedOps:
    """Graphs by name, each for its settings, built by one run of nvcc."""

    def __init__(self, graphs: Mapping[str, tuple[Graph, AitSettings]], folder: Path) -> None:
        self.models = {name: _model(graph, settings) for name, (graph, settings) in graphs.items()}
        ops = [f"{_LIBRARY}_{name}" for name in self.models]
        sources = render_cuda_library(
            list(self.models.values()), name=_LIBRARY, domain=_DOMAIN, ops=ops, architectures=["80"]
        )
        self._emulator = Emulator(PtxOnly(("80",)), Isolated(), lambda step: None)
        library = self._emulator.use(sources, _LIBRARY).library
        self._sessions: dict[str, SessionSpec] = {}
        for op, (name, model) in zip(ops, self.models.items(), strict=True):
            (folder / f"{name}.onnx").write_bytes(_onnx_model(op, model))
            self._sessions[name] = SessionSpec(folder / f"{name}.onnx", library=library, ops=(op,))

    def run(self, name: str, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        feeds = {value.name: array for value, array in zip(self.models[name].graph.inputs, inputs, strict=True)}
        return self._emulator.run(self._sessions[name], feeds).outputs

    @property
    def kernels(self) -> tuple[KernelWork, ...]:
        """What the last run launched."""
        return self._emulator.work()


def _model(graph: Graph, settings: AitSettings) -> AitModel:
    adapter = Adapter(find_aitemplate(), settings, lambda step: None)
    (refused,) = adapter.refusals([graph])
    assert not refused
    return adapter.model(graph)


def _onnx_model(op: str, model: AitModel) -> bytes:
    """One node of the custom op."""
    graph = model.graph
    weights = [numpy_helper.from_array(constant.data, constant.name) for constant in model.constants]
    inputs = [helper.make_tensor_value_info(value.name, value.dtype.onnx, None) for value in graph.inputs]
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    outputs = [helper.make_tensor_value_info(name, value.dtype.onnx, None) for name, value in pairs]
    names = [value.name for value in graph.inputs] + [weight.name for weight in weights]
    node = helper.make_node(op, names, list(graph.output_names), domain=_DOMAIN)
    made = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString()
