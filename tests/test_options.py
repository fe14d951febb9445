"""The one list of options: every field goes through Python, the command line, PyTorch and the manifest."""

from __future__ import annotations

import inspect
import json
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ortisan
from ortisan.cli.app import app
from ortisan.cli.options import flag_of
from ortisan.pipeline.options import Keywords, Options, make_options, option_names
from tests.models.mlp import mlp

OTHER: dict[str, Any] = {
    "target": "cpu:x86-64-v2",
    "dims": {"batch": (1, 4)},
    "include": ["Gemm"],
    "exclude": ["Relu"],
    "between": (["x"], ["y"]),
    "whole_graph": True,
    "cache": "in-place",
    "freeze_inputs": True,
    "name": "other",
    "tune": "off",
    "precision": "fp16",
    "tf32": True,
    "fast_math": True,
    "winograd": False,
    "patterns": False,
    "keep": "all",
    "weights": "huge",
    "verify": False,
    "strict": True,
    "quick": True,
    "sources_only": True,
}
"""For each option a value that is not its default."""
GPU = {"precision", "tf32", "fast_math"}
ALL = [pytest.param(each, id=each.name) for each in fields(Options)]


def changed(name: str) -> dict[str, Any]:
    """Keywords with one option changed, for a target that takes it."""
    return {"target": "cuda:80", name: OTHER[name]} if name in GPU else {name: OTHER[name]}


def test_the_list_of_other_values_is_complete() -> None:
    assert set(OTHER) == {each.name for each in fields(Options)} == set(Keywords.__annotations__)


@pytest.mark.parametrize("each", ALL)
def test_python_takes_it(each: Field[Any]) -> None:
    made = make_options(changed(each.name))
    assert getattr(made, each.name) == OTHER[each.name] != each.default
    for function in (ortisan.build, ortisan.compile, ortisan.inspect):
        assert each.name in inspect.signature(function).parameters


@pytest.mark.parametrize("each", ALL)
def test_the_manifest_keeps_it(each: Field[Any]) -> None:
    made = make_options(changed(each.name))
    record = json.loads(json.dumps(made.to_json()))
    assert Options.from_json(record) == made != Options()
    assert record[each.name] == json.loads(json.dumps(OTHER[each.name]))


ON_THE_COMMAND_LINE = [
    pytest.param(command, each, id=f"{command}-{each.name}")
    for command, step in (("build", "build"), ("inspect", "compile"))
    for each in fields(Options)
    if each.name in option_names(of=step)
]


@pytest.mark.parametrize("command, each", ON_THE_COMMAND_LINE)
def test_the_command_line_takes_it(
    each: Field[Any], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[str, Any] = {}

    def stop(*_: Any, **given: Any) -> None:
        got.update(given)
        raise ortisan.OrtisanError("stopped")

    monkeypatch.setattr(ortisan, command, stop)
    words = [command, "model.onnx", *(["-o", str(tmp_path)] if command == "build" else []), *_words(each)]
    result = CliRunner().invoke(app, words)
    assert "stopped" in result.output, result.output
    assert got[each.name] == OTHER[each.name]
    assert make_options({**changed(each.name), **{name: got[name] for name in got if name == each.name}})


def _words(each: Field[Any]) -> list[str]:
    value, flag = OTHER[each.name], flag_of(each)
    match each.metadata["form"]:
        case "flag":
            return [flag]
        case "dims":
            return [flag, "batch=1:4"]
        case "between":
            return [flag, "x:y"]
        case "list":
            return [word for item in value for word in (flag, item)]
    return [flag, value]


def test_a_flag_that_is_also_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Options(target="cuda:80", verify="emulate")
    assert Options.from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(ortisan.OptionError, match="verify must be True, False or 'emulate', not 'no'"):
        Options(verify="no")  # type: ignore[arg-type]
    got: dict[str, Any] = {}

    def stop(*_: Any, **given: Any) -> None:
        got.update(given)
        raise ortisan.OrtisanError("stopped")

    monkeypatch.setattr(ortisan, "build", stop)
    command = ["build", "model.onnx", "-o", str(tmp_path), "--verify"]
    assert "stopped" in CliRunner().invoke(app, [*command, "emulate"]).output
    assert got["verify"] == "emulate"
    for words, complaint in (
        (["emulate", "--no-verify"], "--verify emulate can't be combined with --no-verify"),
        (["always"], "--verify takes emulate, not 'always'"),
    ):
        assert complaint in " ".join(CliRunner().invoke(app, [*command, *words]).output.split())


@pytest.mark.torch
@pytest.mark.parametrize("each", ALL)
def test_torch_takes_it_or_says_why_not(each: Field[Any]) -> None:
    from ortisan.torch.options import _REFUSED, front_options

    given = changed(each.name) | ({"keep": "all"} if each.name == "patterns" else {})
    if each.name in _REFUSED:
        with pytest.raises(ortisan.OptionError, match=f"'{each.name}' is not an option of the PyTorch front end"):
            front_options(given)
    else:
        assert getattr(front_options(given).build, each.name) == OTHER[each.name]


def test_the_manifest_of_an_artifact_has_all_of_them(tmp_path: Path) -> None:
    given = {"tune": "off", "keep": "all", "name": "net", "sources_only": True, "patterns": False}
    artifact = ortisan.build(mlp(), tmp_path / "out", **given)  # type: ignore[arg-type]
    assert Options.from_json(artifact.manifest["options"]) == make_options(given)


def test_build_options_are_not_for_compile() -> None:
    with pytest.raises(ortisan.OptionError, match="'keep' is an option of build, not of compile"):
        ortisan.compile(mlp(), keep="all")
    with pytest.raises(ortisan.OptionError, match="there is no option 'speed'; the options are target, dims"):
        ortisan.compile(mlp(), speed="high")  # type: ignore[call-arg]


def test_functions_are_not_written_down() -> None:
    options = Options(exclude=lambda node: False)
    assert options.to_json()["exclude"] == ["<function>"]
    with pytest.raises(ortisan.OptionError, match="exclude was a function"):
        Options.from_json(options.to_json())


def test_options_are_checked_again_when_they_change() -> None:
    with pytest.raises(ortisan.OptionError, match=r"precision='fp16' is not for cpu:.*, which takes keep, bf16"):
        replace(Options(), precision="fp16")
