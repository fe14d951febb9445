"""A manifest with a wrong kind of value anywhere is an `ArtifactError`, never another exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ortisan
from ortisan.runtime.manifest import wrong_field

pytestmark = pytest.mark.build

WRONG: list[Any] = [None, 7, -1, True, "text", "../x", [], [7], [None], {}, {"a": 7}, {"a": None}, {"a": [1]}, [{}]]
SERVED = ("name", "model", "library", "domain", "ops", "files", "target", "machine", "providers", "settings", "shared")


def spoiled(folder: Path, names: tuple[str, ...], wrong: list[Any] = WRONG) -> Iterator[tuple[str, Any]]:
    """Writes the manifest once for each field and wrong value."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        for value in wrong:
            (folder / "manifest.json").write_text(json.dumps({**manifest, name: value}))
            yield name, value


def refusals(use: Callable[[], object], cases: Iterator[tuple[str, Any]]) -> dict[str, list[str]]:
    """Field -> what was said about its wrong values."""
    said: dict[str, list[str]] = {}
    for name, value in cases:
        try:
            use()
        except ortisan.InternalError as error:
            pytest.fail(f"{name}={value!r}: {error}")
        except ortisan.OrtisanError as error:
            said.setdefault(name, []).append(str(error))
    return said


def test_load(folder: Path) -> None:
    said = refusals(lambda: ortisan.load(folder), spoiled(folder, SERVED))
    assert set(said) == set(SERVED)
    assert not [text for texts in said.values() for text in texts if "\n" in text]


def test_verify(folder: Path) -> None:
    cases = spoiled(folder, ("options", "rounded", "source", "tuning"), [None, 7, {"a": 7}])
    said = refusals(lambda: ortisan.verify(folder, per_node=True), cases)
    assert set(said) == {"options", "rounded", "source", "tuning"}


def test_a_manifest_of_brackets_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(ortisan.ArtifactError, match="can't be read"):
        ortisan.load(folder)


@pytest.mark.parametrize("name", ["../x.so", "/x.so", "", ".", "..", "a/b", "a\\b"])
def test_files_are_in_the_folder(name: str, built: ortisan.Artifact) -> None:
    assert wrong_field(built.manifest) is None
    assert wrong_field({**built.manifest, "library": name}) == "has a wrong 'library'"
    assert wrong_field({**built.manifest, "files": {name: {"bytes": 1}}}) == "has a wrong 'files'"
