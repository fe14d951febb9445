"""The targets that `native` does not choose here: their kernels, a whole graph, a cross build. Emulated where need be."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.isa import ISAS, Isa, find_isa, why_not_run
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import Compiler
from ortisan.models import BertSize, bert
from ortisan.pipeline.generate import render_sources
from tests.cpp.remote import Pointer

pytestmark = pytest.mark.build
HERE = Path(__file__).parent
NAMES = [name for name in ISAS if name != find_isa("native").name]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) if "+" in name else name for name in NAMES]
"""A level with some of the extensions has few kernels of its own."""
SIZE = BertSize(layers=2, hidden=48, heads=3, intermediate=80, vocabulary=20, positions=32)

KERNEL_TESTS = (
    "test_product_kernels.py",
    "test_attention_kernels.py",
    "test_kernels.py",
    "test_tensor_kernels.py",
    "test_image_kernels.py",
)
FAST_FIRST = [*KERNEL_TESTS[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in KERNEL_TESTS[2:])]


@pytest.mark.parametrize("tests", FAST_FIRST)
@pytest.mark.parametrize("isa", OTHERS, indirect=True)
def test_kernels(isa: Isa, tests: str, emulated: list[str]) -> None:
    """The tests of the kernels once more, with drivers built for the target."""
    run_tests(tests, {"ORTISAN_TEST_ISA": isa.name})


def run_tests(tests: str, environment: dict[str, str], *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(HERE / tests)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("tests", KERNEL_TESTS)
@pytest.mark.parametrize("isa", ["x86-64-v4"], indirect=True)
def test_avx512_in_bochs(isa: Isa, tests: str, build_driver: Callable[..., Path], tmp_path: Path) -> None:
    """The tests of the kernels on Bochs' CPU. It answers all calls of a module at once: they are recorded and replayed."""
    if why_not_run(isa) is None:
        pytest.skip("this CPU has AVX-512 itself")
    missing = [program for program in ("bochs", "xorriso") if shutil.which(program) is None]
    missing += [] if Path("/usr/lib/ISOLINUX").is_dir() else ["isolinux"]
    missing += [] if "BOCHS_KERNEL" in os.environ or any(Path("/boot").glob("vmlinuz-*")) else ["$BOCHS_KERNEL"]
    if missing:
        pytest.skip(f"no {', '.join(missing)}")
    stem = re.findall(r'load_driver\("(\w+)"\)', (HERE / tests).read_text(encoding="utf-8"))[0]
    remote, library = build_driver("remote", "-ldl"), build_driver(stem, "-shared", "-fPIC")
    calls, answers = tmp_path / "calls", tmp_path / "answers"
    sound = ("-k", "not uint32-float32")  # Bochs 2.7 drops the lowest bit of an integer above 2^31 before it rounds
    run_tests(tests, {"ORTISAN_TEST_CALLS": f"tee {calls} | {{}}"}, *sound)
    bochs = [sys.executable, str(HERE.parents[1] / "tools" / "run_in_bochs.py"), str(remote), str(library)]
    with calls.open("rb") as stdin, answers.open("wb") as stdout:
        subprocess.run(bochs, check=True, stdin=stdin, stdout=stdout)
    run_tests(tests, {"ORTISAN_TEST_CALLS": f"cat {answers} & exec cat > /dev/null"}, *sound)


def packed(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The arrays in one block of bytes, and where each begins."""
    at = np.cumsum([0] + [-(-a.nbytes // 64) * 64 for a in arrays], dtype=np.int64)
    block = np.zeros(at[-1] + 1, np.uint8)
    for array, begin in zip(arrays, at, strict=False):
        block[begin : begin + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return block, at


@pytest.mark.parametrize("isa", OTHERS, indirect=True)
def test_a_whole_graph(isa: Isa, compiler: Compiler, open_library: Callable[[Path], Any], tmp_path: Path) -> None:
    """A small BERT, generated for the target, against ONNX Runtime here."""
    model = ir.to_proto(bert(SIZE))
    compiled = ortisan.compile(model, target=f"cpu:{isa.name}", whole_graph=True)
    sources = {name: text for name, text in render_sources(compiled).items() if name.endswith((".h", ".cpp"))}
    for name, text in sources.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    kernels = [name for name in sources if name.endswith(".cpp") and name not in ("custom_ops.cpp", "binding.cpp")]
    flags = ["-O3", "-std=c++17", *KERNEL_FLAGS, *isa.flags]
    command = [*compiler.argv, *flags, "-shared", "-fPIC", "-pthread", "-I.", *kernels, str(HERE / "graph_driver.cpp")]
    subprocess.run([*command, "-o", "libgraph.so"], check=True, cwd=tmp_path)
    library = open_library(tmp_path / "libgraph.so")
    library.run_graph.restype = ctypes.c_char_p

    ids = np.random.default_rng(0).integers(0, SIZE.vocabulary, (3, 19))
    mask = (np.arange(19) < [[19], [7], [1]]).astype(np.int64)
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    plan = compiled.plans[0]
    inputs = [feeds[value.name] for value in plan.graph.inputs]
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    outputs, outputs_at = packed([np.full_like(array, np.nan) for array in expected])
    dims = np.array([size for array in inputs for size in array.shape], np.int64)
    blocks = (dims, *packed(inputs), *packed(plan.packed_weights()), outputs, outputs_at)
    for threads in (1, 3):
        library.set_threads(threads)
        assert library.run_graph(*map(Pointer, blocks)) is None
        for array, begin in zip(expected, outputs_at, strict=False):
            got = outputs[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
            np.testing.assert_allclose(got, array, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("isa", [name for name in NAMES if ISAS[name].machine != platform.machine()], indirect=True)
def test_an_artifact_for_another_machine(isa: Isa, load_driver: Callable[[str], Any], tmp_path: Path) -> None:
    """It is built and not run, refused here, and its library starts there: only our too old runtime is refused."""
    artifact = ortisan.build(bert(SIZE), tmp_path / "out", target=f"cpu:{isa.name}")
    assert artifact.manifest["not_run"] == f"this machine is not {isa.machine}"
    with pytest.raises(ortisan.ArtifactError, match=f"was built for {isa.machine}, and this machine is"):
        ortisan.load(artifact.folder)
    driver = load_driver("glue_driver")
    driver.register_in_old_runtime.restype = ctypes.c_char_p
    answer = driver.register_in_old_runtime(str(artifact.library).encode())
    assert answer == b"this library needs ONNX Runtime 1.18 or newer, this is 1.17.3"
