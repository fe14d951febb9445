"""The setting custom_op.<op>.weights: where a session reads its weights, who shares a copy, and when it is freed."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from ortisan.codegen.cpu.build import Built
from tests.codegen.tiny_library import W, add_model, add_reference, build_tiny, open_session, tiny_project

MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(not MODES.is_file() or "[never]" in MODES.read_text(), reason="this machine has no huge pages"),
]

KEY = "custom_op.tiny_add.weights"
BYTES = 8 << 20
INPUTS = {"x": np.ones((2, 2, 4), np.float32), "b": np.ones(2, np.float32)}


def wide_weight(row: np.ndarray) -> np.ndarray:
    """The row again and again, in memory that is not numpy's: numpy asks for huge pages itself."""
    return np.frombuffer(row.tobytes() * (BYTES // row.nbytes), row.dtype)


MODEL, OTHER = (add_model(weight=wide_weight(row)) for row in (W, W + 1))


def wide_library(*, thin: bool, looked_up: bool = False, pages: str = "size + huge_page, PROT_READ") -> Built:
    """tiny with a weight of four pages; `pages` is what the library asks the system for."""
    project = tiny_project(domain="ortisan.tiny")
    changes = (
        ("tiny_graphs.cpp", '{"w", 1, 16, false}', f'{{"w", 1, {BYTES}, {str(looked_up).lower()}}}'),
        ("tiny_graphs.cpp", "add_run, false}", f"add_run, {str(thin).lower()}}}"),
        ("huge_pages.h", "size + huge_page, PROT_READ", pages),
    )
    for file, old, new in changes:
        assert old in project[file]
        project[file] = project[file].replace(old, new)
    return build_tiny(project)


@pytest.fixture(scope="module")
def thin(build_cache: Path) -> Path:
    return wide_library(thin=True).library


@pytest.fixture(scope="module")
def wide(build_cache: Path) -> Path:
    return wide_library(thin=False).library


def huge_bytes() -> int:
    """Of this process's memory, what asks for huge pages."""
    gc.collect()
    total = size = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:") and "hg" in line.split():
            total += size
    return total


def copied(library: Path, setting: str | None) -> int:
    """Bytes that a session copies; its results must be right."""
    before = huge_bytes()
    session = open_session(MODEL, library, entries={} if setting is None else {KEY: setting})
    during = huge_bytes()
    y, _ = session.run(None, INPUTS)
    np.testing.assert_array_equal(y, add_reference(**INPUTS)[0])
    del session
    assert huge_bytes() == before
    return during - before


@pytest.mark.parametrize("setting, expected", [(None, BYTES), ("auto", BYTES), ("huge", BYTES), ("mapped", 0)])
def test_a_graph_of_few_rows(thin: Path, setting: str | None, expected: int) -> None:
    assert copied(thin, setting) == expected


@pytest.mark.parametrize("setting, expected", [(None, 0), ("auto", 0), ("huge", BYTES), ("mapped", 0)])
def test_a_graph_of_many_rows(wide: Path, setting: str | None, expected: int) -> None:
    assert copied(wide, setting) == expected


def test_tables_are_never_copied(build_cache: Path) -> None:
    assert copied(wide_library(thin=True, looked_up=True).library, "huge") == 0


def test_without_memory_the_weights_stay_mapped(build_cache: Path) -> None:
    assert copied(wide_library(thin=True, pages="SIZE_MAX / 4, PROT_READ").library, "huge") == 0


@pytest.mark.parametrize("value", ["hug", "HUGE", "", "huge ", "x" * 300])
def test_an_unknown_value_is_refused(wide: Path, value: str) -> None:
    with pytest.raises(Exception, match="expected auto, mapped or huge") as caught:
        open_session(MODEL, wide, entries={KEY: value})
    assert f"tiny_add: the session config entry '{KEY}' is '{value[:90]}" in str(caught.value)


def test_entries_of_other_ops_and_keys_are_not_ours(wide: Path) -> None:
    entries = {"custom_op.another.weights": "nonsense", "custom_op.tiny_add.color": "blue", "weights": "red"}
    open_session(MODEL, wide, entries=entries).run(None, INPUTS)


def test_each_op_has_its_own_setting(wide: Path) -> None:
    entries = {"custom_op.tiny_where.weights": "mapped", KEY: "huge"}
    before = huge_bytes()
    session = open_session(MODEL, wide, entries=entries)
    assert huge_bytes() - before == BYTES
    del session


def test_equal_weights_are_copied_once_and_freed_with_the_last_session(wide: Path) -> None:
    before = huge_bytes()
    first = open_session(MODEL, wide, entries={KEY: "huge"})
    second = open_session(MODEL, wide, entries={KEY: "huge"})
    assert huge_bytes() - before == BYTES
    mapped = open_session(MODEL, wide, entries={KEY: "mapped"})
    other = open_session(OTHER, wide, entries={KEY: "huge"})
    assert huge_bytes() - before == 2 * BYTES
    del first
    assert huge_bytes() - before == 2 * BYTES
    ours, theirs = second.run(["y"], INPUTS)[0], other.run(["y"], INPUTS)[0]
    np.testing.assert_array_equal(ours, mapped.run(["y"], INPUTS)[0])
    np.testing.assert_array_equal(ours - theirs, np.ones_like(ours))
    del second
    assert huge_bytes() - before == BYTES
    del other, mapped
    assert huge_bytes() == before


def test_sessions_opened_at_once_share_a_copy(wide: Path) -> None:
    before = huge_bytes()
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(lambda _: open_session(MODEL, wide, entries={KEY: "huge"}), range(16)))
    assert huge_bytes() - before == BYTES
    for session in sessions:
        np.testing.assert_array_equal(session.run(["y"], INPUTS)[0], add_reference(**INPUTS)[0])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: sessions.pop(), range(16)))
    del session
    assert huge_bytes() == before


def test_options_serve_several_sessions(wide: Path) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(KEY, "huge")
    options.register_custom_ops_library(str(wide))
    before = huge_bytes()
    sessions = [ort.InferenceSession(MODEL.SerializeToString(), options) for _ in range(2)]
    assert huge_bytes() - before == BYTES
    del sessions
