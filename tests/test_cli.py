"""The command line: messages, exit codes, JSON, and what is written where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import ortisan
from ortisan.cli.app import app
from ortisan.cli.options import read_between, read_dims
from tests.models.mlp import mlp
from tests.models.text import text_model

WIDTH = 80


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the tool in a terminal of 80 columns."""
    result = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "mlp.onnx"
    onnx.save(mlp(), path)
    return path


@pytest.mark.build
def test_a_model_that_onnx_runtime_cant_run(tmp_path: Path) -> None:
    body = "a = Cast <to = 16> (x) b = Mul(a, a) c = Acosh(b) y = Cast <to = 1> (c)"
    onnx.save(text_model("(float[n] x) => (float[n] y)", body), tmp_path / "m.onnx")
    code, _, error = run("build", tmp_path / "m.onnx", "-o", tmp_path / "out")
    assert code == 1
    assert f"can't load the source model '{tmp_path / 'm.onnx'}'" in " ".join(error.split())
    assert not (tmp_path / "out").exists()
    code, output, _ = run("build", tmp_path / "m.onnx", "-o", tmp_path / "out", "--no-verify", "--keep", "all")
    assert code == 0
    assert "not verified" in output.lower()


@pytest.fixture(scope="module")
def artifact(model: Path) -> Path:
    code, shown, _ = run("build", model, "-o", model.parent / "mlp", "--keep", "all", "--dim", "batch=1:64")
    assert code == 0, shown
    return model.parent / "mlp"


@pytest.mark.build
def test_build_says_what_it_did(model: Path, tmp_path: Path) -> None:
    code, shown, progress = run("build", model, "-o", tmp_path / "out", "--keep", "all")
    assert code == 0
    assert "3 nodes in 1 custom op (mlp_0), 100.0% of the operations" in " ".join(shown.split())
    assert "agrees with onnxruntime" in shown
    assert all(line.endswith(" s)") for line in progress.splitlines()), progress  # nothing but long phases
    assert all(len(line) <= WIDTH for line in shown.splitlines() if str(tmp_path) not in line)


@pytest.mark.build
def test_build_as_json(model: Path, tmp_path: Path) -> None:
    code, shown, _ = run("build", model, "-o", tmp_path / "out", "--keep", "all", "--name", "net", "--json")
    assert code == 0
    manifest = json.loads(shown)
    assert manifest["name"] == "net"
    assert manifest["ops"][0]["op"] == "net_0"
    assert manifest["settings"] == {"weights": "auto"}
    assert manifest["ops"][0]["scratch"]["typical"]["dims"] == {"batch": 1}
    assert Path(manifest["folder"]) == tmp_path / "out"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--dim", "rows=3"], "dims: the model has no symbolic dim 'rows'; its symbolic dims are: 'batch'"),
        (["--dim", "batch"], "--dim 'batch' is not of the form NAME=N, NAME=LOW:HIGH or NAME=free"),
        (["--dim", "batch=9:2"], "the range of 'batch' must be (low, high) with 0 <= low <= high"),
        (["--between", "x"], "--between 'x' is not of the form IN,IN:OUT,OUT"),
        (["--between", "x:nowhere"], "between: the model has no value named 'nowhere'"),
        (["--include", "Nothing"], "include: no node is named 'Nothing'"),
        (["--include", "gemm"], "has this op type or this layer annotation; did you mean 'Gemm'?"),
        (["--name", "é"], "name must have a letter from a to z or a digit"),
        (["--whole-graph", "--exclude", "Relu"], "whole_graph=True compiles everything"),
        (["--tune", "on"], "tune must be 'auto', 'off' or 'full', not 'on'"),
        (["--cache", "shared"], "cache must be 'as-is' or 'in-place', not 'shared'"),
        (["--cache", "in-place"], "the model has no cache to keep in place"),
        (["--target", "gpu"], "there is no target 'gpu'"),
        (["--target", "cpu:z80"], "There is no CPU target 'z80'"),
        (["--target", "reference"], "target='reference' runs in numpy"),
        (["--keep", "some"], "keep must be 'faster' or 'all'"),
        (["--weights", "some"], "weights must be 'auto', 'mapped' or 'huge', not 'some'"),
    ],
)
def test_bad_options_are_one_message(arguments: list[str], message: str, model: Path, tmp_path: Path) -> None:
    code, shown, complaint = run("build", model, "-o", tmp_path / "out", *arguments)
    assert (code, shown) == (1, "")
    assert complaint.startswith("error: ")
    assert message in complaint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content, message", [(None, "does not exist"), (b"", "is empty"), (b"\x08\x08garbage", "not an ONNX file")]
)
def test_bad_models_are_one_message(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    for command in (["inspect", path], ["build", path, "-o", tmp_path / "out"]):
        code, _, complaint = run(*command)
        assert code == 1
        assert message in complaint
    assert not (tmp_path / "out").exists()


def test_bad_usage_is_exit_code_2(model: Path) -> None:
    assert run("build", model)[0] == 2
    assert run("compile")[0] == 2
    assert run("bench", "x", "--threads", "many")[0] == 2


def test_inspect_lists_ops_and_reasons(tmp_path: Path) -> None:
    body = "a = Relu(x) b = custom.Unheard(a) c = Sqrt(b) d = Exp(c) y = Add(d, k)"
    path = tmp_path / "odd.onnx"
    onnx.save(text_model("(float[n] x) => (float[n] y)", body, constants={"k": np.float32([1.0])}), path)
    code, shown, _ = run("inspect", path)
    assert code == 0
    unheard = next(line for line in shown.splitlines() if line.startswith("Unheard"))
    assert unheard.split()[:3] == ["Unheard", "1", "1"]
    assert "odd_0" in shown
    code, shown, _ = run("inspect", path, "--json")
    rows = {row["op_type"]: row for row in json.loads(shown)["op_types"]}
    assert rows["Unheard"]["left"] == 1
    assert rows["Relu"]["compiled"] == 1
    code, _, complaint = run("inspect", path, "--whole-graph")
    assert code == 1
    assert "the whole graph can't be compiled, because of 4 nodes:\n  Unheard" in complaint


def test_inspect_of_the_reference_as_json(model: Path) -> None:
    code, shown, complaint = run("inspect", model, "--target", "reference", "--json")
    assert (code, complaint) == (0, "")
    described = json.loads(shown)
    assert described["target"] == "reference"
    assert [op["op"] for op in described["ops"]] == ["mlp_0"]
    assert described["left_out"] == []


def test_inspect_with_a_cache_in_place(tmp_path: Path) -> None:
    signature = "(int64[B,T] attention_mask, float[B,P,4] past, float[B,S,4] x) => (float[B,T,4] present)"
    onnx.save(text_model(signature, "k = Mul(x, x) present = Concat<axis=1>(past, k)", opset=18), tmp_path / "m.onnx")
    code, shown, _ = run("inspect", tmp_path / "m.onnx", "--cache", "in-place", "--json")
    assert code == 0
    described = json.loads(shown)
    assert described["options"]["cache"] == "in-place"
    assert described["shared"] == {"past": "present"}


def test_inspect_shows_scratch_memory(model: Path) -> None:
    shown = run("inspect", model, "--dim", "batch=1:64")[1]
    scratch = [line.split()[1:] for line in shown.splitlines() if line.startswith("  scratch")]
    assert [line[1:] for line in scratch] == [["bytes", "at", "batch=1"], ["kB", "at", "batch=64"]]
    assert 0 < float(scratch[0][0]) < 1000 * float(scratch[1][0])


@pytest.mark.build
def test_build_records_the_setting_of_weights(model: Path, tmp_path: Path) -> None:
    arguments = ("--keep", "all", "--weights", "mapped", "--json")
    code, shown, _ = run("build", model, "-o", tmp_path / "out", *arguments)
    assert (code, json.loads(shown)["settings"]["weights"]) == (0, "mapped")


@pytest.mark.build
def test_verify_and_bench(artifact: Path) -> None:
    code, shown, _ = run("verify", artifact, "--json")
    assert (code, json.loads(shown)["passed"], json.loads(shown)["departure"]) == (0, True, None)
    code, shown, _ = run("bench", artifact, "--threads", 1, "--runs", 3, "--json")
    assert (code, json.loads(shown)["runs"]) == (0, 3)
    assert "ratio" in run("bench", artifact, "--runs", 2, "--weights", "huge")[1]
    assert "weights must be 'auto'" in run("bench", artifact, "--weights", "large")[2]
    code, _, complaint = run("bench", artifact, "--against", "openvino")
    assert code == 1
    assert "can't time against 'openvino'" in complaint


@pytest.mark.build
def test_verify_and_bench_at_several_sizes(artifact: Path) -> None:
    code, shown, _ = run("bench", artifact, "--runs", 2, "--dim", "batch=1,64", "--json")
    assert (code, [each["case"] for each in json.loads(shown)]) == (0, ["batch=1", "batch=64"])
    code, shown, _ = run("verify", artifact, "--dim", "batch=5", "--dim", "batch=64", "--json")
    assert code == 0
    assert {figure["case"] for figure in json.loads(shown)["figures"]} == {"batch=5", "batch=64"}
    code, _, complaint = run("verify", artifact, "--dim", "batch=65")
    assert code == 1
    assert "outside its declared range 1..64" in complaint


@pytest.mark.build
def test_verify_refuses_another_model(artifact: Path, tmp_path: Path) -> None:
    onnx.save(text_model("(float[n] x) => (float[n] y)", "y = Relu(x)"), tmp_path / "relu.onnx")
    code, _, complaint = run("verify", artifact, "--model", tmp_path / "relu.onnx")
    assert code == 1
    assert f"relu.onnx' is not the one that '{artifact}' was built from: its graph is another" in complaint


@pytest.mark.build
def test_an_artifact_finds_its_model_from_anywhere(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    assert run("build", model.name, "-o", tmp_path / "out", "--keep", "all")[0] == 0
    monkeypatch.chdir("/")
    assert run("verify", tmp_path / "out")[0] == 0


@pytest.mark.build
def test_verify_fails_where_the_models_differ(artifact: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(mlp(seed=5), other)
    code, shown, complaint = run("verify", artifact, "--model", other)
    assert code == 1
    assert "DIFFERS from" in shown
    assert complaint.startswith("error: the compiled model and ONNX Runtime disagree in 1 output")
    shown = json.loads(run("verify", artifact, "--model", other, "--json")[1])
    assert (shown["passed"], shown["error"]["kind"]) == (False, "VerifyError")


def test_verify_of_no_artifact(tmp_path: Path) -> None:
    code, _, complaint = run("verify", tmp_path)
    assert code == 1
    assert "has no manifest.json" in complaint


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("doctor")[1]
    for what in (
        "C++ compiler",
        "cmake",
        "ninja",
        "onnxruntime",
        "CPU",
        "pybind11",
        "CUDA",
        "AITemplate",
        "GPU",
        "build cache",
    ):
        assert what in shown
    assert all(len(line) <= WIDTH for line in shown.splitlines())
    monkeypatch.setenv("CXX", "/no/such/compiler")
    code, shown, _ = run("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(shown)}
    assert code == 1
    assert findings["C++ compiler"]["state"] == "missing"
    assert "no such program" in findings["C++ compiler"]["detail"]


@pytest.mark.parametrize(
    "file, text, words",
    [
        ("__init__.py", "", "not AITemplate but another package"),
        ("compiler/compiler.py", "def compile_model(tensor): ...", "0.9"),
    ],
)
def test_doctor_tells_aitemplates_apart(
    file: str, text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "python" / "aitemplate"
    (package / "compiler").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not to be imported')")
    (package / "_libinfo.py").write_text("__version__ = '0.9'")
    (package / file).write_text(text)
    header = tmp_path / "3rdparty" / "cutlass" / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    header.touch()
    monkeypatch.setenv("ORTISAN_AITEMPLATE", str(tmp_path))
    findings = {finding["what"]: finding for finding in json.loads(run("doctor", "--json")[1])}
    assert words in findings["AITemplate"]["detail"]


HELPED = [[], *([name] for name in ("build", "inspect", "verify", "bench", "doctor", "demo", "cache"))]
HELPED += [["cache", "ls"], ["cache", "clear"]]


@pytest.mark.parametrize("command", HELPED)
def test_help_fits_the_terminal(command: list[str]) -> None:
    code, shown, _ = run(*command, "--help")
    assert code == 0
    assert all(len(line) <= WIDTH for line in shown.splitlines())
    assert "<bool>" not in shown


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two builds, a choice and an artifact of the PyTorch front, as `cache` finds it."""
    from ortisan.codegen.cpu.tune import remember as tuning_cache
    from ortisan.codegen.tools import build_cache as cache

    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "built").write_bytes(b"x" * 200_000)
    for key in ("a", "b"):
        cache.store(key, {f"lib{key}.so": tmp_path / "built"})
    tuning_cache.remember({"cpu": "some CPU", "size": "1x2x3"}, {"blocking": [768, 128, 100_000, True]})
    kept = tmp_path / "cache" / "torch" / "c"
    kept.mkdir(parents=True)
    (kept / "manifest.json").write_text("{}")
    (kept / "graph.onnx.data").write_bytes(b"x" * 300_000)
    return tmp_path / "cache"


def test_cache_ls(caches: Path) -> None:
    code, shown, _ = run("cache", "ls")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:4] for line in shown.splitlines() if line.strip()}
    assert rows["builds"] == ["2", "0.4", "MB"]
    assert rows["tuning"][0] == "1"
    assert rows["torch"] == ["1", "0.3", "MB"]
    assert "ago" in shown
    listed = json.loads(run("cache", "ls", "--json")[1])
    assert listed["folder"] == str(caches)
    assert [build["library"] for build in listed["builds"]["list"]] == ["liba.so", "libb.so"]
    assert listed["tuning"]["list"][0]["facts"] == {"cpu": "some CPU", "size": "1x2x3"}
    assert listed["builds"]["bytes"] > 400_000


@pytest.mark.parametrize(
    "flags, removed, words",
    [
        ([], {"builds": 2, "tuning": 1, "torch": 1}, "Removed 2 finished builds, 1 tuned size and 1 artifact."),
        (["--builds", "--tuning"], {"builds": 2, "tuning": 1}, "Removed 2 finished builds and 1 tuned size."),
        (["--builds"], {"builds": 2}, "Removed 2 finished builds."),
        (["--tuning"], {"tuning": 1}, "Removed 1 tuned size."),
        (["--torch"], {"torch": 1}, "Removed 1 artifact."),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_cache_clear(flags: list[str], removed: dict[str, int], words: str, as_json: bool, caches: Path) -> None:
    before = json.loads(run("cache", "ls", "--json")[1])
    code, shown, _ = run("cache", "clear", *flags, *(["--json"] if as_json else []))
    assert code == 0
    if as_json:
        assert json.loads(shown) == {"removed": removed}
    else:
        assert shown.strip() == words
    after = json.loads(run("cache", "ls", "--json")[1])
    for name in ("builds", "tuning", "torch"):
        assert after[name]["entries"] == (0 if name in removed else before[name]["entries"])


def test_an_empty_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "none"))
    assert "-" in run("cache", "ls")[1]
    assert run("cache", "clear")[1].strip() == "Removed 0 finished builds, 0 tuned sizes and 0 artifacts."
    assert not (tmp_path / "none").exists()


@pytest.mark.build
def test_build_says_how_products_were_tuned(model: Path, tmp_path: Path) -> None:
    arguments = ["build", model, "--keep", "all", "--dim", "batch=4"]
    code, shown, _ = run(*arguments, "-o", tmp_path / "off", "--tune", "off")
    assert code == 0
    assert "matrix products" not in shown
    assert json.loads((tmp_path / "off" / "manifest.json").read_text())["tuning"]["mode"] == "off"
    run(*arguments, "-o", tmp_path / "first", "--tune", "full")
    code, shown, _ = run(*arguments, "-o", tmp_path / "full", "--tune", "full")
    assert code == 0
    assert "Matrix-product blocking of 2 sizes: 2 from cache." in " ".join(shown.split())


@pytest.mark.build
def test_an_artifact_is_examined_with_its_own_blockings(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blockings are part of the domain, and the manifest knows them when the cache has forgotten."""
    from ortisan.codegen.cpu.tune import choose as tuning

    def choose_small_tasks(job: object, problem: object, timer: object) -> tuning.Choice:
        blocking = tuning.Blocking(8, 3, 1, False)
        return tuning.Choice(problem, blocking, "measured", {"1": 1.0}, {"1": 2.0})  # type: ignore[arg-type]

    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "load_timer", lambda isa, say: object())
    monkeypatch.setattr(tuning._Job, "race", choose_small_tasks)
    code, _, complaint = run("build", model, "-o", tmp_path / "out", "--keep", "all", "--tune", "full")
    assert code == 0, complaint
    (tmp_path / "cache" / "tuning.sqlite").unlink()
    code, shown, complaint = run("verify", tmp_path / "out", "--per-node")
    assert code == 0, complaint
    assert "First departure: none" in shown


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_cant_be_written_is_one_message(form: list[str], model: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "ortisan", "inspect", str(model), *form]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "error: the output can't be written or read: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_module_is_the_tool() -> None:
    shown = subprocess.run([sys.executable, "-m", "ortisan", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ortisan {ortisan.__version__}\n"
    command = [sys.executable, "-m", "ortisan", "verify", "/nowhere"]
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "error: '/nowhere' does not exist, expected a folder written by 'ortisan build'\n"


def test_reading_dims_and_ends() -> None:
    assert read_dims(["batch=1", "seq=1:512"]) == {"batch": 1, "seq": (1, 512)}
    assert read_dims(["past+seq=4"]) == {"past+seq": 4}
    assert read_between("a, onnx::Add_1:b") == (["a", "onnx::Add_1"], ["b"])
