"""Building for real: what comes out, what the cache remembers, and how failures read."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ortisan.codegen.cpu.build import Built, build_library
from ortisan.codegen.cpu.isa import ISAS, find_isa
from ortisan.codegen.tools import build_cache as cache
from ortisan.codegen.tools.toolchain import find_cmake, find_compiler, find_ninja
from ortisan.errors import OptionError, ToolchainError
from tests.codegen.tiny_library import build_tiny, tiny_project

pytestmark = pytest.mark.build


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_library_exports_one_function_and_links_libc_only(tiny: Built) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", tiny.library], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["RegisterCustomOps"]
    dynamic = subprocess.run(["readelf", "-dlW", tiny.library], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"]
    assert re.search(r"GNU_STACK.* RW ", dynamic)


def test_the_library_loads_on_old_systems(tiny: Built) -> None:
    symbols = subprocess.run(["nm", "-D", tiny.library], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", symbols)]
    assert max(versions) <= (2, 17)


def test_the_second_build_comes_from_the_cache(tiny: Built) -> None:
    again = build_tiny(bindings=True)
    assert not tiny.cached
    assert again.cached
    assert (again.library, again.binding, again.compiler) == (tiny.library, tiny.binding, tiny.compiler)


def test_builds_are_byte_identical(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_tiny().library.read_bytes()
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "other"))
    assert build_tiny().library.read_bytes() == first


def test_progress_is_told(own_cache: Path) -> None:
    steps: list[str] = []
    build_tiny(on_progress=steps.append)
    assert steps[0] == "configuring"
    assert steps[-1] == "compiling 3/3"


def test_the_folder_builds_by_itself(tmp_path: Path) -> None:
    for name, text in tiny_project().items():
        (tmp_path / name).write_text(text)
    environment = {"PATH": f"{find_ninja().parent}:{os.environ['PATH']}"}
    for arguments in (["-B", "build", "-G", "Ninja"], ["--build", "build"]):
        subprocess.run([find_cmake(), *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "build" / "libtiny.so").is_file()


def test_a_compile_error_names_the_line_and_keeps_the_log(own_cache: Path) -> None:
    with pytest.raises(ToolchainError, match=r"The C\+\+ build of 'tiny' failed") as caught:
        build_tiny(tiny_project(suffix="int broken = undefined_name;\n"))
    message = str(caught.value)
    assert re.search(r"\n  tiny_graphs\.cpp:\d+:\d+: error: .*undefined_name", message)
    log = Path(re.search(r"log is in (\S+)\.\n", message)[1])
    assert "undefined_name" in log.read_text()
    assert not (own_cache / "builds").exists()


def test_a_link_error_is_told(own_cache: Path) -> None:
    with pytest.raises(ToolchainError, match=r"undefined reference to .*nowhere"):
        build_tiny(tiny_project(suffix="int nowhere(); extern const int used = nowhere();\n"))


def test_a_cmake_error_is_told(own_cache: Path) -> None:
    with pytest.raises(ToolchainError, match=r"(?i)cannot find source file"):
        build_tiny(
            {**tiny_project(), "CMakeLists.txt": tiny_project()["CMakeLists.txt"].replace("tiny_graphs", "absent")}
        )


def test_a_cache_that_can_not_be_written_costs_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="build cache .*file can't be written.*ORTISAN_CACHE_DIR"):
        built = build_tiny()
    assert built.library.is_file()
    with pytest.raises(ToolchainError) as caught:
        build_tiny(tiny_project(suffix="#error no\n"))
    assert Path(re.search(r"log is in (\S+)\.\n", str(caught.value))[1]).is_file()


def test_no_room_to_build_is_a_toolchain_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ToolchainError, match=r"No space left on device.*TMPDIR"):
        build_tiny()
    assert not (own_cache / "builds").exists()


def test_an_interrupted_build_leaves_no_entry(own_cache: Path) -> None:
    def interrupt(step: str) -> None:
        if step.startswith("compiling"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_tiny(on_progress=interrupt)
    assert not (own_cache / "builds").exists()


def _build(queue: multiprocessing.Queue[bytes]) -> None:
    queue.put(build_tiny().library.read_bytes())


def test_processes_that_build_the_same_agree(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[bytes] = context.Queue()
    builders = [context.Process(target=_build, args=(queue,)) for _ in range(3)]
    for builder in builders:
        builder.start()
    results = {queue.get(timeout=300) for _ in builders}
    for builder in builders:
        builder.join()
    assert len(results) == 1
    made = [path.name for entry in (own_cache / "builds").iterdir() for path in entry.iterdir()]
    assert made.count("libtiny.so") == made.count("custom_ops.cpp.o") == 1


def test_flags_and_sources_are_part_of_the_key(tiny: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "store", lambda key, files: pytest.fail("must not build"))
    keys: list[str] = []
    monkeypatch.setattr(cache, "look_up", lambda key, files: keys.append(key) or tiny.library.parent)
    build_tiny()
    build_tiny(bindings=True)
    build_tiny(sanitize="thread")
    build_tiny(tiny_project(suffix="// more\n"))
    build_tiny(tiny_project("x86-64-v2"))
    monkeypatch.setenv("CXXFLAGS", "-O0")
    build_tiny()
    assert len(set(keys)) == len(keys) == 6


def test_a_target_of_another_machine_needs_another_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", shlex.join(find_compiler().argv))
    other = ISAS["aarch64" if find_isa("native").machine == "x86_64" else "x86-64-v3"]
    with pytest.raises(ToolchainError, match=f"can't build for the target {other.name}; set CXX"):
        build_library({}, name="tiny", isa=other)


def test_the_binding_is_not_built_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ISAS["aarch64" if find_isa("native").machine == "x86_64" else "x86-64-v3"]
    cross = tmp_path / "cross"
    cross.write_text(f"#!/bin/sh\necho {other.machine}-linux-gnu Free Software Foundation\n")
    cross.chmod(0o755)
    monkeypatch.setenv("CXX", str(cross))
    with pytest.raises(OptionError, match=f"needs the Python of a {other.machine} machine; build it there"):
        build_library({}, name="tiny", isa=other, bindings=True)


def test_sources_for_another_machine_are_not_built_with_our_compiler(tmp_path: Path) -> None:
    other = "aarch64" if find_isa("native").machine == "x86_64" else "x86-64-v3"
    for file, text in tiny_project(other).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    command = [find_cmake(), "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja"]
    environment = {**os.environ, "CXX": find_compiler().argv[0], "PATH": f"{find_ninja().parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"this library is for {ISAS[other].machine}" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["", "9x", "a-b", "a b", "ä", 'x"; system'])
def test_library_names_are_identifiers(name: str) -> None:
    with pytest.raises(OptionError, match="can't be called"):
        build_library({}, name=name, isa=find_isa("native"))


def test_an_unknown_sanitizer_is_refused() -> None:
    with pytest.raises(OptionError, match="no sanitizer build 'memory'"):
        build_tiny(sanitize="memory")


def test_a_build_leaves_nothing_in_the_temporary_folder(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    built = build_tiny()
    assert list((tmp_path / "tmp").iterdir()) == []
    shutil.rmtree(built.library.parent)
