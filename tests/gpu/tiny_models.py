"""Run by AITemplate's Python: writes the sources of two small models, and what is in them, into a folder.

`layers` has a product, elementwise kernels and a layer norm. `views` only copies: the stand-in runtime does copies, so
its outputs tell which input and which constant they came from.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(AIT_BUILD_DOCS="1", CI_FLAG="CIRCLECI", DISABLE_PROFILER_CODEGEN="1")

from aitemplate.backend import builder
from aitemplate.backend.target import CUDA
from aitemplate.compiler import compile_model, compiler, ops
from aitemplate.compiler.ops.common.epilogue import FuncEnum
from aitemplate.frontend import IntVar, Tensor

WIDTH = 64


class _NoBuild(builder.Builder):
    def make(self, *args: Any, **kwargs: Any) -> None:
        pass

    def make_profilers(self, *args: Any, **kwargs: Any) -> None:
        pass


class _NoModel:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


def tensor(name: str, shape: list[Any], **flags: Any) -> Any:
    return Tensor(shape, name=name, dtype="float32", **flags)


def output(value: Any, name: str) -> Any:
    value._attrs["is_output"] = True
    value._attrs["name"] = name
    return value


def layers() -> list[Any]:
    """z = layernorm(gelu(x w + b) + sigmoid(r + x)), y = sigmoid(r + x)."""
    shape = [IntVar([1, 8], name="batch"), IntVar([1, 64], name="seq"), WIDTH]
    x, r = tensor("i0_", shape, is_input=True), tensor("i1_", shape, is_input=True)
    w, b = tensor("c0_", [WIDTH, WIDTH]), tensor("c1_", [WIDTH])
    gamma, beta = tensor("c2_", [WIDTH]), tensor("c3_", [WIDTH])
    add = lambda one, other: ops.elementwise(FuncEnum.ADD)(one, other)  # noqa: E731
    product = ops.elementwise(FuncEnum.GELU)(add(ops.gemm_rcr()(x, w), b))
    y = ops.elementwise(FuncEnum.SIGMOID)(add(r, x))
    z = ops.layernorm()(add(product, y), gamma, beta, [WIDTH], 1e-5)
    return [output(z, "o0_"), output(y, "o1_")]


def views() -> list[Any]:
    """first = b, second = a, third = the constant; all reshaped. `rows` may be 0."""
    rows, seq = IntVar([0, 4], name="rows"), IntVar([1, 16], name="seq")
    a = tensor("i0_", [rows, seq, 8], is_input=True)
    b = tensor("i1_", [rows, seq, 8], is_input=True)
    c = tensor("c0_", [4, 8])
    split = lambda value: ops.reshape()(value, [rows, seq, 2, 4])  # noqa: E731
    return [output(split(b), "o0_"), output(split(a), "o1_"), output(ops.reshape()(c, [8, 4]), "o2_")]


def main() -> None:
    folder, cutlass = Path(sys.argv[1]), sys.argv[2]
    builder.get_compile_engine = _NoBuild
    compiler.Model = _NoModel
    model = {"layers": layers, "views": views}[sys.argv[3]]
    target = CUDA(template_path=cutlass, arch="80", no_tf32=True, use_fast_math=False)
    compile_model(model(), target, str(folder), sys.argv[3])
    (folder / "done.json").write_text(json.dumps(sorted(file.name for file in (folder / sys.argv[3]).iterdir())))


if __name__ == "__main__":
    main()
