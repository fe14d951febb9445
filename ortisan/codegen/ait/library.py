"""The source folder of a library for GPUs: AITemplate's sources, a folder per model, our glue, CMakeLists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.expressions import DimPrinter
from ortisan.codegen.render import plain_files, read_header, render
from ortisan.codegen.tables import GraphTables, LibrarySource, WeightRow, describe_graph
from ortisan.registry.dtypes import DType

_FOLDERS = ("graph", "ort", "ait/glue")
_KERNEL_FOLDERS = ("cuda", "cuda/attention", "cpu/math")
_KERNEL_HEADERS = ("cpu/base/macros.h", "cpu/base/types.h", "cpu/reduce/reductions.h")
_INCLUDED = frozenset({"model_container.cu", "model_container_base.cu", "model_interface.cu"})
"""Sources of AITemplate that ait_model.cu includes."""
_UNUSED = frozenset({"standalone.cu", "windll.cu", "utility.cu", "debug_utility.cu"})
_CONSTANTS = "constants.bin"


@dataclass(frozen=True)
class GraphSource:
    """A graph's tables, the model that runs it, and AITemplate's names of its tensors, "" where it needs none."""

    tables: GraphTables
    model: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    symbols: tuple[int, ...]
    """The model's symbols, as places among the graph's."""
    checked: tuple[str, ...]


@dataclass(frozen=True)
class GraphsSource:
    graphs: tuple[GraphSource, ...]


@dataclass(frozen=True)
class ModelSource:
    name: str
    sources: tuple[str, ...]
    renames: tuple[tuple[str, tuple[str, ...]], ...]
    """Source -> definitions that rename kernels of it."""


@dataclass(frozen=True)
class CudaBuildSource:
    library: str
    architectures: tuple[str, ...]
    models: tuple[ModelSource, ...]
    fast_math: bool


def kernel_headers() -> dict[str, str]:
    """What kernels of ours include; scalar functions are those of kernels for CPUs."""
    return {
        **plain_files(*_KERNEL_FOLDERS),
        **{PurePosixPath(path).name: read_header(path) for path in _KERNEL_HEADERS},
    }


def render_cuda_library(
    models: Sequence[AitModel],
    *,
    name: str,
    domain: str,
    ops: Sequence[str],
    architectures: Sequence[str],
    fast_math: bool = False,
) -> dict[str, str | bytes]:
    """File name -> content. The same models give the same bytes."""
    folders = [f"model_{index}" for index in range(len(models))]
    files: dict[str, str | bytes] = {**plain_files(*_FOLDERS)}
    if any(file.startswith("own_") for model in models for file in model.files):
        files |= {
            **plain_files(*_KERNEL_FOLDERS),
            **{PurePosixPath(path).name: read_header(path) for path in _KERNEL_HEADERS},
        }
    for folder, model in zip(folders, models, strict=True):
        files |= {f"{folder}/{file}": content for file, content in model.files.items() if file not in _UNUSED}
        files.setdefault(f"{folder}/{_CONSTANTS}", b"")
    graphs = tuple(_graph(model, op, folder) for model, op, folder in zip(models, ops, folders, strict=True))
    files["graphs.cpp"] = render("ait/glue/graphs.cpp.j2", GraphsSource(graphs))
    files["library.cpp"] = render("graph/library.cpp.j2", LibrarySource(len(models), domain))
    sources = tuple(_model(model, folder) for model, folder in zip(models, folders, strict=True))
    build = CudaBuildSource(name, tuple(architectures), sources, fast_math)
    files["CMakeLists.txt"] = render("cmake/cuda.CMakeLists.txt.j2", build)
    return files


def _graph(model: AitModel, op: str, folder: str) -> GraphSource:
    graph = model.graph
    rows = [
        WeightRow(constant.name, DType.from_numpy(constant.data.dtype).onnx, constant.data.nbytes, False)
        for constant in model.constants
    ]
    inputs = {tensor.index: tensor.name for tensor in model.inputs}
    outputs = {tensor.index: tensor.name for tensor in model.outputs}
    return GraphSource(
        describe_graph(graph, op, DimPrinter(graph.symbols), rows, model.shared),
        folder,
        tuple(inputs.get(index, "") for index in range(len(graph.inputs))),
        tuple(constant.name for constant in model.constants),
        tuple(outputs[index] for index in range(len(graph.outputs))),
        tuple(graph.symbols.index(name) for name in model.symbols),
        model.checked,
    )


def _model(model: AitModel, folder: str) -> ModelSource:
    kernels = sorted(file for file in model.files if file.endswith(".cu") and file not in _INCLUDED | _UNUSED)
    renames = tuple((source, _definitions(model.renames[source])) for source in sorted(model.renames))
    return ModelSource(folder, tuple(kernels), renames)


def _definitions(names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{old}={names[old]}" for old in sorted(names))
