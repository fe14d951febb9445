"""The library of two tiny models (tiny_models.py): its graphs, its ONNX models, and builds over the stand-in runtime."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ortisan.codegen.ait.build import cuda_project
from ortisan.codegen.ait.model import AitConstant, AitInstall, AitModel, AitTensor
from ortisan.codegen.render import plain_files, read_header
from ortisan.codegen.tools.cmake import build_project
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import Graph, TensorType, Value
from tests.gpu.stand_in import StandIn

HERE = Path(__file__).parent
DOMAIN = "ortisan.tiny_gpu"
RANDOM = np.random.default_rng(7)

STAND_IN = """
file(GLOB runtime ${CMAKE_CURRENT_SOURCE_DIR}/runtime/*.cpp)
add_library(stand_in SHARED ${runtime})
target_include_directories(stand_in PRIVATE runtime ${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(stand_in PROPERTIES CXX_VISIBILITY_PRESET default)
target_compile_options(stand_in PRIVATE -fexceptions -frtti)
target_link_options(stand_in PRIVATE LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/stand_in.map)
add_library(model_driver MODULE model_driver.cpp ${CMAKE_CURRENT_BINARY_DIR}/model_0.o)
add_library(NAME_stand_in MODULE custom_ops.cpp graphs.cpp library.cpp ${models})
target_compile_definitions(NAME_stand_in PRIVATE ORTISAN_ANY_PROVIDER)
foreach(target model_driver NAME_stand_in)
  target_link_libraries(${target} PRIVATE stand_in)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:-z,defs LINKER:--exclude-libs,ALL)
endforeach()
"""


def array(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONSTANTS: Mapping[str, tuple[Array, ...]] = {
    "layers": (array(64, 64), array(64), array(64), array(64)),
    "views": (array(4, 8), array(2)),  # AITemplate has no use for the second
}


def layers_graph() -> Graph:
    shape = (symbol("batch"), symbol("seq"), 64)
    x, r, z, y = (Value(name, TensorType(DType.FLOAT32, shape)) for name in ("x", "r", "z", "y"))
    return Graph("layers", (x, r), (z, y), (), (), (), {"batch": (1, 8), "seq": (1, 64)}, ("z", "y"))


def views_graph() -> Graph:
    rows, seq = symbol("rows"), symbol("seq")
    a, b = (Value(name, TensorType(DType.FLOAT32, (rows, seq, 8))) for name in ("a", "b"))
    first, second = (Value(name, TensorType(DType.FLOAT32, (rows, seq, 2, 4))) for name in ("first", "second"))
    third = Value("third", TensorType(DType.FLOAT32, (8, 4)))
    bounds = {"rows": (0, 4), "seq": (1, 16)}
    return Graph("views", (a, b), (first, second, third), (), (), (), bounds, ("first", "second", "third"))


GRAPHS = {"layers": layers_graph, "views": views_graph}
OPS = {"layers": "tiny_0", "views": "tiny_1"}


def make_model(name: str, install: AitInstall, folder: Path) -> AitModel:
    """The sources that AITemplate itself generates."""
    root = install.root or install.cutlass.parents[1]
    command = [install.python, str(HERE / "tiny_models.py"), str(folder), str(install.cutlass), name]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root / "python"), "HOME": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kept = (".cu", ".h", ".bin")
    files = {file.name: file.read_bytes() for file in (folder / name).iterdir() if file.suffix in kept}
    graph = GRAPHS[name]()
    inputs = tuple(AitTensor(f"i{index}_", index) for index in range(len(graph.inputs)))
    outputs = tuple(AitTensor(f"o{index}_", index) for index in range(len(graph.outputs)))
    constants = tuple(AitConstant(f"c{index}_", data) for index, data in enumerate(CONSTANTS[name]))
    return AitModel(graph, inputs, outputs, constants, files, {}, (), False)


def build_both(
    sources: Mapping[str, str | bytes], name: str, install: AitInstall
) -> tuple[Path, tuple[str, ...], float]:
    """The products of a project and of its twin over the stand-in runtime, the steps, and the seconds."""
    runtime = {**plain_files("emulator/runtime"), "emulator.h": read_header("emulator/emulator.h")}
    more = {f"runtime/{file}": text for file, text in runtime.items()}
    more["stand_in.map"] = "STAND_IN { global: *; };\n"  # the process may hold an emulator's runtime, too
    more["model_driver.cpp"] = (HERE / "model_driver.cpp").read_text()
    twin = STAND_IN.replace("NAME", name)
    both = {**sources, **more, "CMakeLists.txt": str(sources["CMakeLists.txt"]) + twin}
    project = cuda_project(both, name=name, architectures=["80"], install=install)
    products = (*project.products, "libstand_in.so", "libmodel_driver.so", f"lib{name}_stand_in.so")
    steps: list[str] = []
    start = time.perf_counter()
    folder, _ = build_project(replace(project, products=products), steps.append)
    return folder, tuple(steps), time.perf_counter() - start


@dataclass(frozen=True)
class TinyGpu:
    """The folder of the build's products, and how long it took."""

    folder: Path
    seconds: float
    steps: tuple[str, ...]
    sources: Mapping[str, str | bytes]


_OPENED: list[StandIn] = []


def open_stand_in(folder: Path) -> StandIn:
    """The runtime that stands in, under the name that the libraries ask for: a process has one, the first."""
    if not _OPENED:
        _OPENED.append(StandIn(ctypes.CDLL(str(folder / "libstand_in.so"), mode=ctypes.RTLD_GLOBAL)))
    return _OPENED[0]


def onnx_model(name: str, *, constants: tuple[Array, ...] | None = None) -> bytes:
    """One node of the custom op; dims of the inputs are left open, so that the op itself has to check them."""
    graph = GRAPHS[name]()
    values = CONSTANTS[name] if constants is None else constants
    weights = [numpy_helper.from_array(data, f"c{index}") for index, data in enumerate(values)]
    inputs = [helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None) for value in graph.inputs]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in graph.output_names]
    names = [value.name for value in graph.inputs] + [weight.name for weight in weights]
    node = helper.make_node(OPS[name], names, list(graph.output_names), domain=DOMAIN)
    made = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString()
