"""What is said when something that GPU targets need is missing, and what the sources say of themselves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.ait.build import cuda_project
from ortisan.codegen.ait.library import render_cuda_library
from ortisan.codegen.ait.model import AitConstant, AitInstall, AitModel, AitTensor
from ortisan.codegen.tools.cmake import Project, build_project, describe_step, project_key
from ortisan.codegen.tools.cuda import Cuda, check_architectures, find_cuda, find_curand
from ortisan.codegen.tools.toolchain import Compiler
from ortisan.errors import ToolchainError
from tests.gpu.tiny_gpu import layers_graph

NVCC = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release {version}, V{version}.1" ;;
  *--list-gpu-arch*) printf 'compute_75\\ncompute_80\\n' ;;
  *--dryrun*) echo '#$ TOP={top}/bin/..' >&2 ;;
esac
"""


def fake_nvcc(folder: Path, version: str = "12.4") -> Path:
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True, exist_ok=True)
    nvcc.write_text(NVCC.format(version=version, top=folder))
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    return nvcc


def test_what_a_toolkit_says(tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path)
    found = find_cuda({"PATH": str(nvcc.parent)})
    assert found == Cuda(nvcc, "12.4", tmp_path, ("75", "80"))
    assert find_cuda({"PATH": "", "CUDA_HOME": str(tmp_path)}) == found
    assert find_cuda({"PATH": "", "CUDACXX": str(nvcc)}) == found


def test_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ToolchainError, match=r"No CUDA compiler was found.*--sources-only"):
        find_cuda({"PATH": str(tmp_path)})
    with pytest.raises(ToolchainError, match=r"\$CUDACXX is 'nowhere/nvcc', but there is no such program"):
        find_cuda({"PATH": "", "CUDACXX": "nowhere/nvcc"})


def test_an_old_toolkit_and_no_toolkit(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"is CUDA 11\.2; GPU targets need CUDA 11\.8 or newer"):
        find_cuda({"PATH": str(fake_nvcc(tmp_path, "11.2").parent)})
    (tmp_path / "bin" / "nvcc").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ToolchainError, match="does not answer --version as nvcc does"):
        find_cuda({"PATH": str(tmp_path / "bin")})


def test_an_architecture_that_nvcc_lacks() -> None:
    cuda = Cuda(Path("nvcc"), "12.4", None, ("75", "80"))
    check_architectures(cuda, ["80"])
    with pytest.raises(ToolchainError, match=r"CUDA 12\.4 can't build for compute capability 90; it builds for 75, 80"):
        check_architectures(cuda, ["80", "90"])


def test_where_curand_is(tmp_path: Path) -> None:
    cuda = Cuda(tmp_path / "nvcc", "13.0", tmp_path, ())
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {tmp_path}/site\n")
    python.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"curand_kernel.h was not found.*pip install nvidia-curand"):
        find_curand(cuda, str(python))
    for folder in (tmp_path / "site" / "nvidia" / "cu13" / "include", tmp_path / "include"):
        folder.mkdir(parents=True)
        (folder / "curand_kernel.h").touch()
        assert find_curand(cuda, str(python)) == folder


@pytest.mark.build
def test_no_cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", str(fake_nvcc(tmp_path)))
    install = AitInstall("python", tmp_path, tmp_path / "3rdparty" / "cutlass", "", "0.3")
    with pytest.raises(
        ToolchainError, match=r"CUTLASS is not in '.*cutlass'; 'git submodule update --init 3rdparty/cutlass'"
    ):
        cuda_project({}, name="tiny", architectures=["80"], install=install)


def test_what_nvcc_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, file in (("cutlass/include/cutlass", "cutlass.h"), ("include", "curand_kernel.h")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).touch()
    monkeypatch.setenv("CUDACXX", str(fake_nvcc(tmp_path)))
    install = AitInstall("python", tmp_path, tmp_path / "cutlass", "", "0.3")
    compilers = {"gcc": ("/usr/bin/ccache", "/usr/bin/g++", "-m64"), "zig": ("/usr/bin/zig", "c++")}
    for kind, argv in compilers.items():
        found = Compiler(argv, kind, "a compiler", "x86_64")
        monkeypatch.setattr("ortisan.codegen.ait.build.find_compiler", lambda found=found: found)
        if kind == "gcc":
            project = cuda_project({}, name="tiny", architectures=["80"], install=install)
            assert project.unkeyed["CMAKE_CUDA_HOST_COMPILER"] == "/usr/bin/g++"
            assert project.settings["CMAKE_CUDA_ARCHITECTURES"] == "80"
    with pytest.raises(ToolchainError, match=r"nvcc works with g\+\+ or clang\+\+ only"):
        cuda_project({}, name="tiny", architectures=["80"], install=install)


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CUDAFLAGS"])
def test_what_nvcc_obeys_is_part_of_what_a_build_depends_on(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    project = Project("tiny", {"CMakeLists.txt": ""}, {}, {}, ("libtiny.so",))
    monkeypatch.delenv(variable, raising=False)
    before = project_key(project)
    monkeypatch.setenv(variable, "-G")
    assert project_key(project) != before


def test_a_killed_build_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninja passes on that a compiler was killed; so does a build that is killed itself."""
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    tool = tmp_path / "cmake"
    tool.write_text('#!/bin/sh\necho "g++: fatal error: Killed signal terminated program cc1plus"\nexit 1\n')
    tool.chmod(0o755)
    monkeypatch.setattr("ortisan.codegen.tools.cmake.find_cmake", lambda: tool)
    project = Project("tiny", {"CMakeLists.txt": ""}, {}, {}, ("libtiny.so",))
    with pytest.raises(ToolchainError, match=r"The build of 'tiny' was killed, .*CMAKE_BUILD_PARALLEL_LEVEL=1"):
        build_project(project)
    tool.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(ToolchainError, match="was killed"):
        build_project(project)
    assert not (tmp_path / "cache" / "builds").exists()


@pytest.mark.parametrize(
    "line, step",
    [
        (
            "[7/23] Building CUDA object CMakeFiles/model_0.dir/model_0/gemm_rcr_bias_3.cu.o",
            "compiling 7/23 gemm_rcr_bias_3.cu",
        ),
        ("[1/9] Building CXX object CMakeFiles/tiny.dir/custom_ops.cpp.o", "compiling 1/9 custom_ops.cpp"),
        ("[9/9] Linking CXX shared module libtiny.so", "compiling 9/9"),
        ("-- Configuring done (0.1s)", None),
    ],
)
def test_progress_is_read_off_ninja(line: str, step: str | None) -> None:
    assert describe_step(line) == step


def hand_made(name: str = "x") -> AitModel:
    graph = layers_graph()
    constants = (AitConstant("c0_", np.zeros((4, 2), np.float16)),)
    files = {"gemm_1.cu": b"", "model_container.cu": b"", "standalone.cu": b"", "model.h": b"//", "expand_2.cu": b""}
    renames = {"expand_2.cu": {"kernel": "kernel_2"}}
    return AitModel(
        graph, (AitTensor("i1_", 1),), (AitTensor("o0_", 0), AitTensor("o1_", 1)), constants, files, renames, (), False
    )


def test_the_rendered_sources() -> None:
    sources = render_cuda_library(
        [hand_made(), hand_made()], name="two", domain='d"\\', ops=["two_0", "two_1"], architectures=["80", "90"]
    )
    assert sources == render_cuda_library(
        [hand_made(), hand_made()], name="two", domain='d"\\', ops=["two_0", "two_1"], architectures=["80", "90"]
    )
    cmake, graphs = str(sources["CMakeLists.txt"]), str(sources["graphs.cpp"])
    assert "set(CMAKE_CUDA_ARCHITECTURES 80;90)" in cmake
    assert "add_ait_model(model_1\n  model_1/expand_2.cu\n  model_1/gemm_1.cu\n)" in cmake
    assert 'set_source_files_properties(model_0/expand_2.cu PROPERTIES COMPILE_DEFINITIONS "kernel=kernel_2")' in cmake
    assert "--use_fast_math" not in cmake
    assert {"model_0/model_container.cu", "model_1/constants.bin"} <= sources.keys()
    assert "model_0/standalone.cu" not in sources
    assert 'const char* const ait_inputs[] = {nullptr, "i1_", };' in graphs
    assert '{"c0_", 10, 16, false},' in graphs
    assert str(sources["library.cpp"]).count('"d\\042\\134"') == 1


def test_fast_math_is_asked_for() -> None:
    options = {"name": "one", "domain": "d", "ops": ["one_0"], "architectures": ["80"]}
    cmake = str(render_cuda_library([hand_made()], fast_math=True, **options)["CMakeLists.txt"])
    assert " --use_fast_math)" in cmake
    assert "AIT_USE_FAST_MATH=1" in cmake


def test_no_machine_path_is_in_the_sources() -> None:
    sources = render_cuda_library([hand_made()], name="one", domain="d", ops=["one_0"], architectures=["80"])
    own = str(Path(__file__).parents[2])
    for name, content in sources.items():
        text = content if isinstance(content, str) else content.decode()
        assert own not in text, name
        assert os.path.expanduser("~") + "/" not in text, name
