"""nvcc compiles AITemplate's sources and the glue into one library that stock ONNX Runtime accepts."""

from __future__ import annotations

import re
import subprocess

import onnxruntime as ort
import pytest

from tests.gpu.tiny_gpu import TinyGpu

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]


def test_onnx_runtime_registers_the_library(tiny_gpu: TinyGpu) -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(tiny_gpu.folder / "libtiny.so"))


def test_the_library_exports_one_function_and_needs_little(tiny_gpu: TinyGpu) -> None:
    library = str(tiny_gpu.folder / "libtiny.so")
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["RegisterCustomOps"]
    dynamic = subprocess.run(["readelf", "-dlW", library], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert {name.partition(".so")[0] for name in needed} <= {
        "libc",
        "libm",
        "libdl",
        "librt",
        "libpthread",
        "ld-linux-x86-64",
    }
    assert re.search(r"GNU_STACK.* RW ", dynamic)


def test_no_path_of_the_build_is_in_the_library(tiny_gpu: TinyGpu) -> None:
    assert b"/ortisan-build-" not in (tiny_gpu.folder / "libtiny.so").read_bytes()


def test_progress_names_each_source(tiny_gpu: TinyGpu) -> None:
    assert tiny_gpu.steps[0] == "configuring"
    named = {step.split()[-1] for step in tiny_gpu.steps if step.endswith((".cu", ".cpp"))}
    assert {"ait_model.cu", "layernorm_6.cu", "custom_ops.cpp"} <= named
    assert re.fullmatch(r"compiling (\d+)/\1", tiny_gpu.steps[-1])
