"""Every example runs as a user runs it, and is short."""

from __future__ import annotations

import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import onnxruntime
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
COMMANDS = {
    "bert.py": (["--small", "--seconds", "0.2"], ["largest difference", "speedup"]),
    "subgraph.py": ([], ["1 custom op", "largest difference"]),
    "gpt2.py": (["--small", "--steps", "8", "--prompt", "One prompt", "--prompt", "and another"], ["same tokens"]),
    "llama.py": (["--small", "--steps", "8"], ["same tokens", "cache in place"]),
}
FETCHED_COMMANDS = {"ocr.py": (["--seconds", "0.2"], ["no compiler on the server", "2026-11-19 08:15", "same words"])}
IMAGE_COMMANDS = {
    "resnet.py": (["--small", "--seconds", "0.2"], ["image 1: classes", "same classes", "speedup"]),
    "stable_diffusion.py": (["--steps", "3", "--seconds", "0.2"], ["3 steps, largest difference", "speedup"]),
    "detect.py": (["--small", "--seconds", "0.2"], ["class", "same 9 boxes", "speedup"]),
}
TORCH_COMMANDS = {
    "torch_compile.py": (["bert", "--small", "--seconds", "0.2"], ["largest difference", "speedup"]),
    "train.py": (["--steps", "30"], ["step   29", "largest difference"]),
    "intercept.py": ([], ["encoder.layer.1.attention", "from", "same as eager"]),
}

RECIPES = {
    "caches": ["DynamicCache: 10 tokens, 2 sessions, same tokens", "StaticCache: same tokens", "generate(): same"],
    "control_flow": ["Choose: same as eager", "Halve: same as eager", "Sums: same as eager", "Each: same as eager"],
    "custom_ops": ["changes its argument 'x' in place", "in Model)", "same as eager"],
    "decompositions": ["as exported: ", "core: ", "mine: "],
    "distil_gpt2": ["same tokens"],
    "draft_export": ["torch.export: Could not guard", "1 assumption", "same as eager where"],
    "dynamic_shapes": ["hits=2, misses=1", "'seq' is 129, and was declared to be from 2 to 128", "lost: 2 sessions"],
    "errors": ["data-dependent", "in place", "is a Holder", "draws random numbers", "'rows' is 4", "no option 'fast'"],
    "functions": ["BertLayer: ", "3 of them calls of BertLayer; same as eager"],
    "optimization": ["before: ", "after: ", "in custom ops: "],
    "phi": ["hits=1, misses=1", "same tokens"],
    "profiling": ["us a run  Softmax", "kinds of nodes"],
    "simple_model": ["same as eager"],
    "strict_or_not": ["strict=True): built", "not strict: an op of graph", "strict: graph"],
}


def test_every_example_is_short() -> None:
    named = {*COMMANDS, *IMAGE_COMMANDS, *FETCHED_COMMANDS, *TORCH_COMMANDS}
    assert named <= {path.name for path in EXAMPLES.glob("*.py")}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 80, path.name


@pytest.mark.build
@pytest.mark.parametrize("name", [*COMMANDS, *IMAGE_COMMANDS])
def test_an_example_runs(name: str) -> None:
    check_example(name, *(COMMANDS | IMAGE_COMMANDS)[name])


@pytest.mark.build
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("name", FETCHED_COMMANDS)
def test_an_example_with_a_published_model_runs(name: str, tmp_path: Path) -> None:
    arguments, expected = FETCHED_COMMANDS[name]
    check_example(name, [*arguments, "--folder", str(tmp_path)], expected)


@pytest.mark.build
@pytest.mark.torch
@pytest.mark.parametrize("name", TORCH_COMMANDS)
def test_an_example_of_the_torch_front_runs(name: str) -> None:
    check_example(name, *TORCH_COMMANDS[name])


def test_every_recipe_is_short_listed_and_run() -> None:
    paths = {path.stem: path for path in (EXAMPLES / "recipes").glob("*.py")}
    listed = (EXAMPLES.parent / "docs" / "torch-recipes.md").read_text()
    assert set(RECIPES) == set(paths)
    for name, path in paths.items():
        assert len(path.read_text().splitlines()) < 60, name
        assert f"../examples/recipes/{name}.py" in listed


@pytest.mark.build
@pytest.mark.torch
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, because importing torch takes longer than most of them."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setattr(sys, "argv", [name])
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(EXAMPLES / "recipes" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for words in RECIPES[name]:
        assert words in printed


@pytest.mark.torch
def test_a_model_without_a_tokenizer_has_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.GPT2Config().save_pretrained(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import hub

    assert hub.tokenizer(str(tmp_path)).encode("the") == list(b"the")


def check_example(
    name: str, arguments: list[str], expected: list[str], *, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    run = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    for words in expected:
        assert words in run.stdout
    return run


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS if name != "bert.py"]


@pytest.mark.aitemplate
@pytest.mark.parametrize("name", ["bert.py", *SLOW])
def test_an_example_writes_sources_for_a_gpu(name: str, tmp_path: Path) -> None:
    small = [] if name == "subgraph.py" else ["--small"]
    command = [sys.executable, EXAMPLES / name, *small, "--target", "cuda:80", "--sources-only", "--out", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "sources in" in run.stdout
    assert len(list(tmp_path.glob("*/src/model_0/*.cu"))) > 3


EMULATED = {
    "bert.py": ["largest difference", "e-0"],
    "gpt2.py": ["ortisan ", "same tokens"],
}


@pytest.mark.aitemplate
@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", EMULATED)
def test_an_example_runs_without_a_gpu(name: str) -> None:
    """Its kernels are emulated; what they compute is what the CPU computes."""
    steps = ["--steps", "4"] if name == "gpt2.py" else []
    run = check_example(name, ["--small", "--target", "cuda:80", "--emulate", *steps], EMULATED[name], timeout=1800)
    assert "emulating kernel" in run.stderr


def test_a_target_without_kernels_is_not_emulated() -> None:
    for name, said in (
        ("bert.py", "--emulate runs the kernels of a GPU, and cpu has none"),
        ("subgraph.py", "builds none"),
    ):
        command = [sys.executable, EXAMPLES / name, "--emulate"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode != 0
        assert said in run.stderr


@pytest.mark.parametrize("name", ["bert.py", "gpt2.py"])
def test_what_could_not_be_run_is_not_built(name: str) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    command = [sys.executable, EXAMPLES / name, "--small", "--target", "cuda:80"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert run.stderr.strip().startswith("cuda:80 needs CUDAExecutionProvider, which onnxruntime")
    assert not run.stdout


def test_a_wrong_target_is_one_sentence() -> None:
    run = subprocess.run(
        [sys.executable, EXAMPLES / "subgraph.py", "--target", "abacus"], capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert run.returncode != 0
    assert "there is no target 'abacus'" in run.stderr
