"""Op graphs run in numpy, but for what kernels of ours compute: those are executed from their PTX. AITemplate is not needed."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ortisan.codegen.ait.build import host_program
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.library import kernel_headers
from ortisan.codegen.ait.own import NAME, OwnKernel
from ortisan.codegen.ait.prepare import ROWS, arrange
from ortisan.codegen.render import plain_files, read_header
from ortisan.codegen.tools.cmake import Project, build_project, library_file
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.emulator import open_device
from ortisan.emulator.fatbin import ptx_of
from ortisan.pipeline.emulate import open_runtime
from ortisan.registry.evaluate import bind_symbols
from ortisan.registry.graph import DimValues, Graph, Node, Value

Array = np.ndarray[Any, Any]
_LIBRARY, _RUNTIME = "own_kernels", "ortisan_cuda"
_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(own_kernels LANGUAGES CXX CUDA)
find_package(CUDAToolkit REQUIRED)
file(GLOB runtime ${CMAKE_CURRENT_SOURCE_DIR}/runtime/*.cpp)
add_library(ortisan_cuda SHARED ${runtime})
target_include_directories(ortisan_cuda PRIVATE runtime ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(ortisan_cuda PRIVATE cxx_std_17)
target_link_options(ortisan_cuda PRIVATE LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/runtime/runtime.map)
add_library(own_kernels MODULE kernels.cu)
target_compile_features(own_kernels PRIVATE cuda_std_17)
target_compile_options(own_kernels PRIVATE --expt-relaxed-constexpr)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  target_compile_options(own_kernels PRIVATE -static-global-template-stub=false --compress-mode=speed)
endif()
target_link_libraries(own_kernels PRIVATE ortisan_cuda)
set_target_properties(own_kernels PROPERTIES CUDA_RUNTIME_LIBRARY None)
"""


class OwnKernels:
    """Graphs by name, whose kernels are built by one run of nvcc."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self.graphs = {name: _ours(graph) for name, graph in graphs.items()}
        self._functions: dict[str, str] = {}
        for graph in self.graphs.values():
            for node in graph.nodes:
                if (own := _kernel(graph, node)) is not None:
                    self._functions.setdefault(own.source, f"own_{len(self._functions)}")
        self._library, self._device = self._build()

    def _build(self) -> tuple[ctypes.CDLL, Any]:
        texts = [text.replace(NAME, name) for text, name in self._functions.items()]
        texts += [
            f'extern "C" void call_{name}(void* const* t, const int64_t* n) {{ {name}(t, n, nullptr); }}'
            for name in self._functions.values()
        ]
        runtime = {**plain_files("emulator/runtime"), "emulator.h": read_header("emulator/emulator.h")}
        sources = {"kernels.cu": "\n".join(texts), "CMakeLists.txt": _CMAKE, **kernel_headers()}
        sources |= {f"runtime/{file}": text for file, text in runtime.items()}
        cuda, compiler = find_cuda(), find_compiler()
        places = {
            "CMAKE_CXX_COMPILER": ";".join(compiler.argv),
            "CMAKE_CUDA_COMPILER": str(cuda.nvcc),
            "CMAKE_CUDA_HOST_COMPILER": host_program(compiler),
        }
        tools = {"compiler": compiler.version, "cuda": cuda.version}
        settings = {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CUDA_ARCHITECTURES": "80-virtual"}
        products = (library_file(_LIBRARY), library_file(_RUNTIME))
        folder, _ = build_project(Project(_LIBRARY, sources, settings, tools, products, unkeyed=places), None)
        device = open_device()
        device.forget()
        for part in ptx_of(folder / products[0]):
            device.load(part.text)
        open_runtime(folder / products[1])
        return ctypes.CDLL(str(folder / products[0])), device

    def run(self, name: str, inputs: Sequence[Array]) -> tuple[list[Array], int]:
        """The outputs, and the number that the last index out of range was reported by."""
        graph = self.graphs[name]
        dims = DimValues(bind_symbols(graph, list(inputs)))
        arrays: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        arrays |= {value: value.data for value in graph.constants if value.data is not None}
        fault = np.zeros(1, np.int32)
        for node in graph.nodes:
            read = [arrays[value] for value in node.inputs]
            own = _kernel(graph, node)
            made = node.op.reference(read, dims) if own is None else self._launch(node, own, read, dims, fault)
            arrays.update(zip(node.outputs, made, strict=True))
        return [arrays[value] for value in graph.outputs], int(fault[0])

    def _launch(
        self, node: Node, own: OwnKernel, read: Sequence[Array], dims: DimValues, fault: Array
    ) -> Sequence[Array]:
        made = [np.full(dims.shape(value.shape), 85, value.dtype.numpy) for value in node.outputs]
        tensors = [*map(np.ascontiguousarray, read), *made, *((fault,) if own.checked else ())]
        numbers = [*map(dims, own.numbers), *((7,) if own.checked else ())]
        with ExitStack() as stack:
            for array in tensors:
                if array.size:
                    stack.enter_context(self._device.memory(array))
            addresses = (ctypes.c_void_p * len(tensors))(*(array.ctypes.data for array in tensors))
            getattr(self._library, f"call_{self._functions[own.source]}")(
                addresses, (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
            )
        return made


def _ours(graph: Graph) -> Graph:
    dialect = to_dialect(graph)
    assert not dialect.refused, dialect.refused
    return arrange(dialect.graph)


def _kernel(graph: Graph, node: Node) -> OwnKernel | None:
    row = ROWS[type(node.op)]
    if row.kernel is None or not row.is_ours(node, graph.bounds):
        return None
    return row.kernel(node, graph.bounds)
