"""build --in-container: the engine's command line, its progress and its failures, with a stand-in for docker on PATH."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ortisan.codegen.tools.container import ContainerCall, find_engine, run_in_container
from ortisan.errors import ToolchainError

DOCKER = """#!/bin/sh
if [ "$1" = kill ]; then echo "$2" > "$RECORD.killed"; exit 0; fi
for word in "$@"; do printf '%s\\n' "$word"; done > "$RECORD"
{then}
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ORTISAN_CONTAINER_ENGINE", raising=False)
    return tmp_path / "record"


def docker(record: Path, then: str = "exit 0", name: str = "docker") -> None:
    program = record.parent / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(DOCKER.replace("{then}", then))
    program.chmod(0o755)


def words(record: Path) -> list[str]:
    return record.read_text().splitlines()


def ortisan(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ortisan", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def artifact(folder: Path) -> str:
    """Shell commands that leave what a build leaves, as far as it is looked at."""
    manifest = {"format": 2, "name": "m", "model": "m.onnx", "library": None, "domain": "d", "ops": [], "files": {}}
    manifest |= {"target": "cuda:80", "tuning": {"mode": "off", "products": [], "note": ""}, "left_out": []}
    return f"mkdir -p {folder}; printf '%s' {shlex.quote(json.dumps(manifest))} > {folder}/manifest.json"


def test_the_command_line(record: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    out = tmp_path / "out" / "bert"
    docker(record, artifact(out))
    options = ["--arch", "80,90", "--dim", "batch=1:8", "--dim", "seq=128", "--precision", "fp16", "--sources-only"]
    done = ortisan("build", models / "bert.onnx", "-o", out, *options, "--in-container", "ortisan-cuda:1")
    assert done.returncode == 0, done.stderr
    said = words(record)
    name = said[said.index("--name") + 1]
    cache = tmp_path / "cache"
    assert said == [
        "run", "--rm", "--init", "--name", name, "--user", f"{os.getuid()}:{os.getgid()}",
        "--volume", f"{cache}:{cache}",
        "--volume", f"{models}:{models}:ro",
        "--volume", f"{tmp_path / 'out'}:{tmp_path / 'out'}",
        "--env", "HOME=/tmp", "--env", f"ORTISAN_CACHE_DIR={cache}", "--env", "ORTISAN_PROGRESS=lines",
        "ortisan-cuda:1", "ortisan", "build", str(models / "bert.onnx"),
        "--output", str(out), "--arch", "80,90", "--dim", "batch=1:8", "--dim", "seq=128", "--precision", "fp16",
        "--sources-only", "--json",
    ]  # fmt: skip
    assert name.startswith("ortisan-")


def test_relative_paths_become_absolute(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    docker(record, artifact(tmp_path / "out"))
    done = ortisan("build", "bert.onnx", "-o", "out", "--in-container", "image")
    assert done.returncode == 0, done.stderr
    said = words(record)
    assert said[said.index("build") + 1] == str(tmp_path / "bert.onnx")
    assert said[said.index("--output") + 1] == str(tmp_path / "out")
    assert f"{tmp_path}:{tmp_path}" in said
    assert f"{tmp_path}:{tmp_path}:ro" not in said


def test_emulation_is_for_this_machine(record: Path, tmp_path: Path) -> None:
    docker(record)
    done = ortisan("build", "m.onnx", "-o", tmp_path / "out", "--verify", "emulate", "--in-container", "image")
    assert done.returncode == 1
    assert "--verify emulate can't be combined with --in-container" in done.stderr
    assert not record.exists()


def mounts(record: Path) -> list[str]:
    said = words(record)
    return [said[index + 1] for index, word in enumerate(said) if word == "--volume"]


def test_every_file_is_under_a_mount_and_only_results_are_written(record: Path, tmp_path: Path) -> None:
    """Links, "..", spaces, a file of inputs, and a folder for the output that is not there yet."""
    store, models, out = tmp_path / "a store", tmp_path / "models", tmp_path / "new" / "deep" / "bert"
    for folder in (store, models, tmp_path / "data"):
        folder.mkdir()
    (store / "blob").write_bytes(b"")
    (models / "bert.onnx").symlink_to(store / "blob")
    docker(record, artifact(out))
    given = models / ".." / "models" / "bert.onnx"
    inputs = tmp_path / "data" / ".." / "data" / "inputs.npz"
    done = ortisan("build", given, "-o", out, "--inputs", inputs, "--in-container", "image")
    assert done.returncode == 0, done.stderr
    said = words(record)
    assert said[said.index("build") + 1] == str(models / "bert.onnx")
    assert said[said.index("--inputs") + 1] == str(tmp_path / "data" / "inputs.npz")
    assert mounts(record) == [
        f"{store}:{store}:ro",
        f"{tmp_path / 'cache'}:{tmp_path / 'cache'}",
        f"{tmp_path / 'data'}:{tmp_path / 'data'}:ro",
        f"{models}:{models}:ro",
        f"{out.parent}:{out.parent}",
    ]
    assert out.parent.is_dir()


def test_a_folder_that_is_read_and_written_is_mounted_once(record: Path, tmp_path: Path) -> None:
    docker(record, artifact(tmp_path / "cache" / "out"))
    done = ortisan("build", tmp_path / "cache" / "m.onnx", "-o", tmp_path / "cache" / "out", "--in-container", "image")
    assert done.returncode == 0, done.stderr
    assert mounts(record) == [f"{tmp_path / 'cache'}:{tmp_path / 'cache'}"]


def test_a_relative_cache_folder(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTISAN_CACHE_DIR", "./kept/../cache")
    docker(record, artifact(tmp_path / "out" / "bert"))
    done = ortisan("build", "models/bert.onnx", "-o", "out/bert", "--in-container", "image")
    assert done.returncode == 0, done.stderr
    assert f"ORTISAN_CACHE_DIR={tmp_path / 'cache'}" in words(record)
    assert f"{tmp_path / 'cache'}:{tmp_path / 'cache'}" in mounts(record)


def test_a_colon_in_a_path_is_refused_before_the_engine_is_asked(record: Path, tmp_path: Path) -> None:
    docker(record)
    done = ortisan("build", tmp_path / "a:b" / "m.onnx", "-o", tmp_path / "out" / "m", "--in-container", "image")
    assert done.returncode != 0
    assert "can't be mounted in a container, because its name has a ':'" in " ".join(done.stderr.split())
    assert not record.exists()


def test_an_output_that_is_no_artifact_is_refused_before_the_engine_is_asked(record: Path, tmp_path: Path) -> None:
    docker(record)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("mine")
    assert ortisan("build", tmp_path / "m.onnx", "-o", tmp_path / "out", "--in-container", "image").returncode != 0
    assert not record.exists()


def call(folder: Path, *, gpus: bool = False) -> ContainerCall:
    return ContainerCall("image", ("doctor",), (), (folder,), gpus)


def test_a_gpu_is_handed_in(tmp_path: Path) -> None:
    assert call(tmp_path, gpus=True).argv("docker", "n")[8:10] == ["--gpus", "all"]


def test_progress_comes_through(record: Path, tmp_path: Path) -> None:
    docker(record, "echo 'ortisan: compiling 7/23 gemm_3.cu'; echo noise")
    steps: list[str] = []
    run_in_container(call(tmp_path), steps.append)
    assert steps == ["compiling 7/23 gemm_3.cu"]


@pytest.mark.parametrize(
    "then, sentence",
    [
        ("echo 'error: No CUDA compiler was found'; exit 1", "The build in 'image' failed: No CUDA compiler was found"),
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "failed: Cannot connect to the Docker daemon"),
        ("exit 137", "failed: exit code 137"),
    ],
)
def test_failures_are_one_sentence(record: Path, tmp_path: Path, then: str, sentence: str) -> None:
    docker(record, then)
    with pytest.raises(ToolchainError, match=sentence):
        run_in_container(call(tmp_path))


def test_an_interrupt_stops_the_container(record: Path, tmp_path: Path) -> None:
    docker(record, "echo 'ortisan: begun'; sleep 60")

    def interrupt(step: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_container(call(tmp_path), interrupt)
    assert record.with_name("record.killed").read_text().strip() == words(record)[4]


def test_which_engine(record: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker(record, name="podman")
    only = {"PATH": str(tmp_path / "bin")}
    assert find_engine(only) == str(tmp_path / "bin" / "podman")
    docker(record)
    assert find_engine(only) == str(tmp_path / "bin" / "docker")
    assert find_engine({**only, "ORTISAN_CONTAINER_ENGINE": "podman"}) == str(tmp_path / "bin" / "podman")
    with pytest.raises(ToolchainError, match="'nerdctl', but there is no such program"):
        find_engine({**only, "ORTISAN_CONTAINER_ENGINE": "nerdctl"})
    with pytest.raises(ToolchainError, match="PATH has neither docker nor podman"):
        find_engine({"PATH": str(tmp_path / "empty")})
