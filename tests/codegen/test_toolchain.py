"""Finding compilers, CMake, Ninja and the CPU's target: what is found, and what is said when nothing is."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ortisan.codegen.cpu.isa import CPUS, ISAS, cpu_features, find_isa, missing_features, native_isa, why_not_run
from ortisan.codegen.tools import toolchain
from ortisan.codegen.tools.toolchain import find_cmake, find_compiler, find_ninja, run_tool, tool_version
from ortisan.errors import OptionError, ToolchainError

T = TypeVar("T")

GCC = "g++ 12.2\nCopyright (C) 2022 Free Software Foundation, Inc."
CLANG = "clang version 18.1.3\nTarget: x86_64"


def program(folder: Path, name: str, version: str = "", machine: str = "x86_64-linux-gnu", code: int = 0) -> Path:
    """A script that answers like a compiler."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        f"#!/bin/sh\ncase \"$*\" in *--version*) echo '{version}';; *) echo {machine};; esac\nexit {code}\n"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "names, expected",
    [(["g++", "clang++"], "gcc"), (["clang++"], "clang")],
)
def test_the_first_compiler_on_path_is_used(tmp_path: Path, names: list[str], expected: str) -> None:
    for name in names:
        program(tmp_path / "bin", name, GCC if name == "g++" else CLANG)
    assert find_compiler({"PATH": str(tmp_path / "bin")}).kind == expected


def test_cxx_wins_and_keeps_its_arguments(tmp_path: Path) -> None:
    program(tmp_path, "g++", GCC)
    mine = program(tmp_path, "my compiler", CLANG, machine="aarch64-linux-gnu")
    found = find_compiler({"PATH": str(tmp_path), "CXX": f"'{mine}' --sysroot=/x"})
    assert (found.argv, found.kind, found.machine) == ((str(mine), "--sysroot=/x"), "clang", "aarch64")
    assert found.version == "clang version 18.1.3"


@pytest.mark.parametrize(
    "cxx, reason",
    [
        ("no-such-compiler", "no such program"),
        ("broken", "does not answer"),
        ("other", "does not answer"),
        ("'", "no command line"),
    ],
)
def test_a_broken_cxx_is_an_error_even_if_others_work(tmp_path: Path, cxx: str, reason: str) -> None:
    program(tmp_path, "g++", GCC)
    program(tmp_path, "broken", GCC, code=1)
    program(tmp_path, "other", "my shell 1.0")
    with pytest.raises(ToolchainError, match=rf"\$CXX is .*{reason}"):
        find_compiler({"PATH": str(tmp_path), "CXX": cxx})


def test_zig_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = program(tmp_path, "zig", CLANG)
    monkeypatch.setattr(toolchain, "_zig_of_wheel", lambda: zig)
    found = find_compiler({"PATH": str(tmp_path / "empty")})
    assert (found.kind, found.argv) == ("zig", (str(zig), "c++", "-mcpu=baseline"))


def test_no_compiler_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_zig_of_wheel", lambda: None)
    with pytest.raises(
        ToolchainError, match=r"No C\+\+ compiler.*apt install g\+\+.*dnf install gcc-c\+\+.*pip install ziglang"
    ):
        find_compiler({"PATH": str(tmp_path)})


OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"


def test_another_machine_gets_its_cross_compiler(tmp_path: Path) -> None:
    program(tmp_path, "g++", GCC)
    cross = program(tmp_path, f"{OTHER}-linux-gnu-g++", GCC, machine=f"{OTHER}-linux-gnu")
    found = find_compiler({"PATH": str(tmp_path)}, machine=OTHER)
    assert (found.argv, found.machine) == ((str(cross),), OTHER)
    assert find_compiler({"PATH": str(tmp_path)}, machine=platform.machine()).argv == (str(tmp_path / "g++"),)


def test_cxx_wins_over_a_cross_compiler(tmp_path: Path) -> None:
    mine = program(tmp_path, "mine", CLANG, machine=f"{OTHER}-linux-gnu")
    program(tmp_path, f"{OTHER}-linux-gnu-g++", GCC, machine=f"{OTHER}-linux-gnu")
    assert find_compiler({"PATH": str(tmp_path), "CXX": str(mine)}, machine=OTHER).argv == (str(mine),)


def test_no_cross_compiler_says_what_to_install(tmp_path: Path) -> None:
    program(tmp_path, "g++", GCC)
    package = f"g++-{OTHER.replace('_', '-')}-linux-gnu"
    with pytest.raises(ToolchainError, match=f"No C\\+\\+ compiler for {OTHER}.*apt install {re.escape(package)}"):
        find_compiler({"PATH": str(tmp_path)}, machine=OTHER)


def test_cmake_and_ninja_come_from_their_wheels() -> None:
    assert "cmake version" in tool_version(find_cmake())
    assert tool_version(find_ninja())


def test_a_missing_tool_says_which_package_brings_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib, "import_module", lambda name: object())
    with pytest.raises(ToolchainError, match="pip install ninja"):
        find_ninja()


def test_run_tool_keeps_the_log_and_tells_lines(tmp_path: Path) -> None:
    lines: list[str] = []
    code = run_tool(["sh", "-c", "echo one; echo two >&2; exit 3"], log=tmp_path / "log", on_line=lines.append)
    assert code == 3
    assert lines == ["one", "two"]
    assert (tmp_path / "log").read_text().endswith("one\ntwo\n")


def test_run_tool_stops_everything_it_started_when_interrupted(tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tool(
            ["sh", "-c", f"(sleep 1; touch {tmp_path}/late) & echo go; wait"], log=tmp_path / "log", on_line=interrupt
        )
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_what_run_tool_started_ends_with_a_killed_process(tmp_path: Path) -> None:
    tool = f"trap '' HUP; echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/group; (sleep 600) & wait"
    script = (
        "import sys; from pathlib import Path; from ortisan.codegen.tools.toolchain import run_tool\n"
        "run_tool(['sh', '-c', sys.argv[1]], log=Path(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", script, tool, tmp_path / "log"])
    group = _wait_for(lambda: int((tmp_path / "group").read_text()) if (tmp_path / "group").exists() else None)
    time.sleep(0.5)  # until the watch is there
    process.kill()
    process.wait()

    def gone() -> bool | None:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return None

    assert _wait_for(gone)


def _wait_for(ask: Callable[[], T | None]) -> T:
    for _ in range(600):
        if (answer := ask()) is not None:
            return answer
        time.sleep(0.1)
    raise TimeoutError


def test_the_watch_leaves_a_tool_alone_that_ends(tmp_path: Path) -> None:
    assert run_tool(["sh", "-c", "exit 0"], log=tmp_path / "log") == 0
    assert run_tool(["sh", "-c", "kill -9 $$"], log=tmp_path / "log") == -signal.SIGKILL


def test_a_tool_that_can_not_start_is_a_toolchain_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="can't be started"):
        run_tool([str(tmp_path / "none")], log=tmp_path / "log")


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni", "x86-64-v4+bf16+vnni"])
def test_native_is_the_best_level_that_the_cpu_has(level: str) -> None:
    assert native_isa("x86_64", frozenset(ISAS[level].features)) == ISAS[level]


@pytest.mark.parametrize("feature", ISAS["x86-64-v3"].features[7:])
def test_one_missing_feature_drops_a_level(feature: str) -> None:
    assert native_isa("x86_64", frozenset(ISAS["x86-64-v4"].features) - {feature}).name == "x86-64-v2"


def test_native_of_other_machines() -> None:
    assert native_isa("aarch64", frozenset({"fp", "asimd"})).name == "aarch64"
    with pytest.raises(ToolchainError, match="runs none of the targets"):
        native_isa("riscv64", frozenset())


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(
        OptionError,
        match=r"no CPU target 'avx2'.*x86-64-v2, x86-64-v3, x86-64-v4, x86-64-v4\+vnni, x86-64-v4\+bf16\+vnni, aarch64 and",
    ):
        find_isa("avx2")


def test_a_kind_of_cpu_names_its_level() -> None:
    assert find_isa("zen4") is find_isa("sapphirerapids") is ISAS["x86-64-v4+bf16+vnni"]
    assert set(CPUS.values()) <= set(ISAS)


def test_features_are_read_from_either_kind_of_cpuinfo() -> None:
    assert cpu_features("model name\t: X\nflags\t\t: fpu avx2\n") == {"fpu", "avx2"}
    assert cpu_features("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert cpu_features("") == frozenset()


def test_native_lacks_nothing() -> None:
    assert missing_features(find_isa("native")) == ()
    other = ISAS["aarch64" if find_isa("native").machine == "x86_64" else "x86-64-v3"]
    assert missing_features(other) == (other.machine,)
    assert why_not_run(find_isa("native")) is None
    assert why_not_run(other) == f"this machine is not {other.machine}"


def test_what_a_cpu_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        "ortisan.codegen.cpu.isa.cpu_features", lambda: frozenset(ISAS["x86-64-v2"].features) - {"popcnt"}
    )
    assert why_not_run(ISAS["x86-64-v2"]) == "this machine lacks popcnt"
