"""The life of an output folder: replaced as a whole, or left as it was."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.cpu import plan
from ortisan.runtime import folder as folders
from tests.models.text import text_model


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.build
def test_build_writes_the_whole_folder(built: ortisan.Artifact) -> None:
    names = sorted(item.name for item in built.folder.iterdir())
    assert names == ["layers.onnx", "layers.onnx.data", "liblayers.so", "manifest.json", "src"]
    onnx.checker.check_model(str(built.model), full_check=False)
    assert built.ops == ("layers_0",)
    assert "1 custom op" in repr(built)


@pytest.mark.build
def test_build_replaces_an_artifact(model_file: Path, folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    (folder / "layers.onnx").unlink()
    (folder / "layers.onnx.data").unlink()
    ortisan.build(model_file, folder, keep="all", verify=False)
    assert ortisan.load(folder).get_outputs()[0].name == "y"
    assert [item.name for item in folder.parent.iterdir()] == [folder.name]


def refused(model: Path, place: Path) -> str:
    with pytest.raises(ortisan.ArtifactError) as error:
        ortisan.build(model, place)
    return str(error.value)


def test_a_folder_of_someone_else_stays(model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "was not made by Ortisan" in refused(model_file, tmp_path)
    assert content(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.build
def test_a_file_that_joined_an_artifact_stays(model_file: Path, folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    before = content(folder)
    assert "'notes.txt', which Ortisan did not write" in refused(model_file, folder)
    assert content(folder) == before


def test_a_file_in_the_way_stays(model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    assert "is a file" in refused(model_file, tmp_path / "out")
    assert "is a file" in refused(model_file, tmp_path / "out" / "inside")
    assert content(tmp_path) == {"out": b"mine"}


def test_a_read_only_parent(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # root may write anywhere
        monkeypatch.setattr(folders.os, "access", lambda path, mode: False)
    else:
        tmp_path.chmod(0o555)
    assert "read-only" in refused(model_file, tmp_path / "out")
    tmp_path.chmod(0o755)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code, words", [(errno.EROFS, "read-only file system"), (errno.ENOSPC, "the disk is full")])
@pytest.mark.build
def test_a_folder_that_cant_be_made(
    code: int, words: str, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> str:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders.tempfile, "mkdtemp", fail)
    assert words in refused(model_file, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.build
def test_a_full_disk_leaves_the_old_artifact(model_file: Path, folder: Path) -> None:
    """A real failing write: files may not grow beyond 4 kB."""
    before = content(folder)
    script = (
        "import resource, sys, ortisan\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: ortisan.build(sys.argv[1], sys.argv[2], keep='all')\n"
        "except ortisan.ArtifactError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", script, model_file, folder], capture_output=True, text=True, check=True)
    assert "can't be written: file too large" in run.stdout
    assert content(folder) == before
    assert [item.name for item in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.build
def test_a_killed_build_leaves_the_old_artifact(how: signal.Signals, model_file: Path, folder: Path) -> None:
    before = content(folder)
    script = (
        "import sys, time, ortisan.pipeline.verified as b, ortisan.cli.app as app\n"
        "def stop(*_):\n"
        "    print('verifying', flush=True)\n"
        "    for _ in range(1200): time.sleep(0.05)  # a signal just before a sleep waits for its end\n"
        "b.compare_session = stop\n"
        "sys.argv = ['ortisan', 'build', sys.argv[1], '-o', sys.argv[2], '--keep', 'all']\n"
        "sys.exit(app.run())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, model_file, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell are started with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "verifying\n"
    process.send_signal(how)
    _, complaint = process.communicate(timeout=60)
    left = [item.name for item in folder.parent.iterdir() if item != folder]
    assert content(folder) == before
    if how == signal.SIGKILL:
        assert all(name.startswith(f".{folder.name}.") and name.endswith(".partial") for name in left)
    else:
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
        assert not left
        assert "Traceback" not in complaint


def write_artifact(place: Path, text: str) -> None:
    with folders.staged_folder(place) as staged:
        (staged / "manifest.json").write_text(text)


def write_often(place: Path) -> None:
    for number in range(100):
        write_artifact(place, str(number))


def test_runs_that_write_the_same_folder_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for writer in [pool.submit(write_often, tmp_path / "out") for _ in range(4)]:
            writer.result()
    assert [item.name for item in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_between_the_renames_leaves_the_old_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    write_artifact(place, "old")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.suffix == ".partial":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(folders, "exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_artifact(place, "new")
    assert content(tmp_path) == {"out/manifest.json": b"old"}


def test_there_is_an_artifact_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system is asked to do, a process that is killed right after it leaves an artifact."""
    one, other, place = tmp_path / "one", tmp_path / "other", tmp_path / "out"
    one.mkdir()
    other.mkdir()
    if not folders.exchange(one, other):
        pytest.skip("this file system can't exchange folders")
    write_artifact(place, "old")
    there = []

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*paths: Path) -> Any:
            result = call(*paths)
            there.append((place / "manifest.json").is_file())
            return result

        return run

    monkeypatch.setattr(Path, "rename", watched(Path.rename))
    monkeypatch.setattr(folders, "exchange", watched(folders.exchange))
    write_artifact(place, "new")
    assert (place / "manifest.json").read_text() == "new"
    assert there == [True]


def test_what_a_killed_run_took_away_is_brought_back(tmp_path: Path) -> None:
    old = tmp_path / ".out.abc.old" / "out"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text("old")
    with pytest.raises(ValueError, match="stopped"), folders.staged_folder(tmp_path / "out"):
        raise ValueError("stopped")
    assert content(tmp_path) == {"out/manifest.json": b"old"}


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    write_artifact(tmp_path / "there" / "v1", "old")
    link = tmp_path / "here" / "current"
    link.symlink_to("../there/v1")
    write_artifact(link, "new")
    assert os.readlink(link) == "../there/v1"
    assert content(tmp_path / "there") == {"v1/manifest.json": b"new"}
    assert [item.name for item in (tmp_path / "here").iterdir()] == ["current"]
    link.unlink()
    link.symlink_to("../there/v2")
    write_artifact(link, "first")
    assert (tmp_path / "there" / "v2" / "manifest.json").read_text() == "first"


def test_old_remains_are_swept(tmp_path: Path) -> None:
    day = 24 * 3600
    for name, age in ((".out.a.partial", 2 * day), (".out.b.partial", 60), (".out.c.old", 2 * day)):
        (tmp_path / name).mkdir()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    write_artifact(tmp_path / "out", "new")
    assert sorted(item.name for item in tmp_path.iterdir()) == [".out.b.partial", ".out.c.old", "out"]
    write_artifact(tmp_path / "out", "newer")
    assert sorted(item.name for item in tmp_path.iterdir()) == [".out.b.partial", "out"]


def test_the_model_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(text_model("(float[4] x) => (float[4] y)", "y = Relu(x)"), path)
    (tmp_path / "manifest.json").write_text('{"files": {"model.onnx": {}}, "library": null}')
    with pytest.raises(ortisan.OptionError, match="lies inside"):
        ortisan.build(path, tmp_path)
    assert path.is_file()


def test_nothing_to_compile_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    model = text_model("(float[4] x) => (int64[1,n] y)", "y = NonZero(x)")
    artifact = ortisan.build(model, tmp_path / "out")
    assert (artifact.ops, artifact.library, artifact.bench) == ((), None, None)
    assert [group["op_type"] for group in artifact.manifest["left_out"]] == ["NonZero"]
    assert ortisan.load(artifact.folder).run(None, {"x": np.float32([0, 1, 0, 2])})[0].tolist() == [[1, 3]]


def test_a_model_that_is_kept_has_the_callers_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(text_model("(float[4] x) => (int64[1,n] y)", "y = NonZero(x)"), path)
    assert ortisan.build(path, tmp_path / "out").model.read_bytes() == path.read_bytes()


def test_a_model_that_ort_cannot_load_writes_nothing(tmp_path: Path) -> None:
    model = text_model("(float[4] x) => (float[4] y)", "y = custom.Unheard(x)")
    with pytest.raises(ortisan.ArtifactError, match=r"can't load the source model: .*Unheard.*--no-verify"):
        ortisan.build(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.build
def test_a_wrong_result_is_left_or_an_error(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = plan.pack
    monkeypatch.setattr(plan, "pack", lambda data, layout: np.ascontiguousarray(packed(data, layout)[::-1]))
    with pytest.raises(ortisan.VerifyError, match=r"disagree in 1 output; the worst is 'y' at batch="):
        ortisan.build(model_file, tmp_path / "out", keep="all", strict=True)
    assert not list(tmp_path.iterdir())
    artifact = ortisan.build(model_file, tmp_path / "out", keep="all")
    assert artifact.ops == ()
    (left,) = artifact.manifest["departures"]
    assert left["op"] == "layers_0"
    assert "departs from ONNX Runtime in 'y'" in left["reason"]


@pytest.mark.build
def test_sources_only(model_file: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model_file, tmp_path / "out", sources_only=True)
    assert (artifact.folder / "src" / "CMakeLists.txt").is_file()
    assert artifact.manifest["not_run"] == "only the sources were written"
    with pytest.raises(ortisan.ArtifactError, match="has only sources"):
        ortisan.load(artifact.folder)


def test_keep_takes_two_words(model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ortisan.OptionError, match="keep must be 'faster' or 'all', not 'some'"):
        ortisan.build(model_file, tmp_path / "out", keep="some")  # type: ignore[arg-type]
