"""The hand-made library `tiny` (tests/cpp/tiny_graphs.cpp): its sources, and models that use it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ortisan.codegen.cpu.build import Built, build_library
from ortisan.codegen.cpu.folders import LIBRARY_FOLDERS
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.library import BuildSource
from ortisan.codegen.render import plain_files, render
from tests.models import sessions

CPP = Path(__file__).parent.parent / "cpp"
W = np.array([1, 2, 3, 4], np.float32)


def tiny_project(isa: str = "native", *, domain: str = "ortisan.tiny", suffix: str = "") -> dict[str, str]:
    """The src folder of tiny; `suffix` is more C++ text, to make it another library."""
    files = plain_files(*LIBRARY_FOLDERS)
    graphs = (CPP / "tiny_graphs.cpp").read_text(encoding="utf-8").replace("ortisan.tiny", domain) + suffix
    target = find_isa(isa)
    build = BuildSource("tiny", target.name, target.machine, ("tiny_graphs.cpp",), target.flags, target.features)
    return {**files, "tiny_graphs.cpp": graphs, "CMakeLists.txt": render("cmake/CMakeLists.txt.j2", build)}


def build_tiny(project: dict[str, str] | None = None, **options: object) -> Built:
    """`build_library` of tiny, or of a changed project, for this machine."""
    return build_library(project or tiny_project(), name="tiny", isa=find_isa("native"), **options)


def add_model(
    *, domain: str = "ortisan.tiny", weight: np.ndarray = W, constant: bool = True, known: bool = False
) -> onnx.ModelProto:
    """(x[N, S, 4], b[N]) -> y, z through tiny_add, whose output shapes are left to inference."""
    n, s = (3, 3) if known else ("N", "S")
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, s, 4]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [n]),
    ]
    if not constant:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, list(weight.shape)))
    nodes = [
        helper.make_node("tiny_add", ["x", "b", "w"], ["y0", "z0"], domain=domain),
        helper.make_node("Neg", ["y0"], ["y"]),
        helper.make_node("Identity", ["z0"], ["z"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def add_reference(x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What add_model gives."""
    y = np.concatenate([x, x[:, : x.shape[1] - 1]], axis=1) + W
    return -y, y.sum(axis=(1, 2)) + b


open_session = partial(sessions.open_session, threads=2)
