"""What is the same in every library is compiled once a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import ortisan
from ortisan.codegen.cpu.build import build_library, shared_sources
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.library import render_library
from ortisan.codegen.tools.detection import keep_detection, take_detection
from tests.models.hostile import hostile_models

ISA = find_isa("native")


def sources(*models: str, name: str = "one") -> dict[str, str]:
    plans = [
        plan
        for model in models
        for plan in ortisan.compile(hostile_models()[model], whole_graph=True, tune="off").plans
    ]
    return render_library(plans, name=name, domain=name, ops=[f"{name}_{i}" for i in range(len(plans))], isa=ISA)


def test_equal_kernels_of_many_graphs_are_one() -> None:
    once, twice = sources("trilu", "block"), sources("trilu", "block", "trilu", "block")
    assert {file: text for file, text in once.items() if file.startswith("kernels_")} == {
        file: text for file, text in twice.items() if file.startswith("kernels_")
    }


def test_what_says_nothing_of_a_model_has_the_same_digest_in_every_library() -> None:
    one, other = sources("attention"), sources("block", "gemm", name="other")
    assert set(shared_sources(one, "one")) == {"custom_ops.cpp", "instance_attention_float.cpp"}
    assert shared_sources(one, "one") == shared_sources(other, "other")


def test_a_changed_header_changes_the_digest() -> None:
    files = sources("attention")
    changed = {**files, "attention_thin.h": files["attention_thin.h"] + "\n"}
    before, after = shared_sources(files, "one"), shared_sources(changed, "one")
    assert all(before[file] != after[file] for file in before)


@pytest.mark.build
def test_the_second_library_compiles_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path))
    logs = []
    for name, model in (("one", "trilu"), ("other", "cumsum")):
        built = build_library(sources(model, name=name), name=name, isa=ISA)
        logs.append((built.library.parent / "build.log").read_text(encoding="utf-8"))
    assert ["custom_ops.cpp.o" in log for log in logs] == [True, False]
    assert ["Detecting CXX compiler ABI info" in log for log in logs] == [True, False]


def test_a_detection_that_can_not_be_kept_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    found = tmp_path / "build" / "CMakeFiles" / "4.0.0" / "CMakeSystem.cmake"
    found.parent.mkdir(parents=True)
    found.write_text("set(A 1)\n", encoding="utf-8")
    keep_detection("key", tmp_path / "build", tmp_path)
    assert take_detection("key", tmp_path / "new") == []


def test_a_detection_that_names_the_build_folder_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    found = tmp_path / "work" / "build" / "CMakeFiles" / "4.0.0" / "CMakeSystem.cmake"
    found.parent.mkdir(parents=True)
    for text, kept in ((f'set(A "{tmp_path / "work"}/x")\n', False), ("set(A 1)\n", True)):
        found.write_text(text, encoding="utf-8")
        keep_detection("key", tmp_path / "work" / "build", tmp_path / "work")
        assert bool(take_detection("key", tmp_path / "new")) == kept
    assert (tmp_path / "new" / "CMakeFiles" / "4.0.0" / "CMakeSystem.cmake").read_text() == "set(A 1)\n"
