"""The glue and the thread pool under sanitizers, and proof that the sanitizers would speak up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codegen.tiny_library import build_tiny, tiny_project
from tests.sanitized import run_sanitized, run_threads

pytestmark = [pytest.mark.build, pytest.mark.sanitize]

SESSION = f"""
import gc, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from tests.codegen.tiny_library import add_model, add_reference, open_session

library = Path(sys.argv[1])
inputs = {{"x": np.ones((5, 5, 4), np.float32), "b": np.ones(5, np.float32)}}
session = open_session(add_model(), library)
with ThreadPoolExecutor(8) as pool:
    for y, z in pool.map(lambda _: session.run(None, inputs), range(200)):
        assert np.array_equal(y, add_reference(**inputs)[0])
for x, b in (((5, 600, 4), 5), ((2, 2, 4), 3), ((0, 1, 4), 0)):
    try:
        session.run(None, {{"x": np.zeros(x, np.float32), "b": np.zeros(b, np.float32)}})
    except Exception as error:
        print(error)
for model in (add_model(constant=False), add_model(weight=np.zeros(5, np.float32))):
    try:
        open_session(model, library)
    except Exception as error:
        print(error)
del session
gc.collect()
huge = {{"custom_op.tiny_add.weights": "huge"}}
models = (add_model(), add_model(), add_model(weight=np.array([4, 3, 2, 1], np.float32)))
sessions = [open_session(model, library, entries=huge) for model in models]
for entries in ({{"custom_op.tiny_add.weights": "x" * 500}}, {{"custom_op.tiny_where.weights": ""}}):
    try:
        open_session(add_model(), library, entries=entries)
    except Exception as error:
        print(error)
while sessions:
    assert np.array_equal(sessions[0].run(None, inputs)[0], add_reference(**inputs)[0]) == (len(sessions) > 1)
    del sessions[0]
    gc.collect()
session = open_session(add_model(), library, entries=huge)
session = open_session(add_model(), library)
session.run(None, inputs)
print("finished")
"""


def test_the_glue_under_address_and_undefined_sanitizers() -> None:
    built = build_tiny(sanitize="address,undefined")
    assert "finished" in run_sanitized(SESSION, "address,undefined", built.library)


def broken(old: str, new: str) -> dict[str, str]:
    project = tiny_project()
    assert old in project["tiny_graphs.cpp"]
    return {**project, "tiny_graphs.cpp": project["tiny_graphs.cpp"].replace(old, new)}


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("return s[0] * (s[1] * 2 - 1) * 4", "return s[0] * (s[1] * 2 - 3) * 4", "use-after-poison"),
        (
            "const int64_t batch = s[0],",
            "volatile int32_t big = 2147483647; big = big + 1; const int64_t batch = s[0],",
            "overflow",
        ),
    ],
)
def test_memory_errors_and_undefined_behaviour_are_noticed(old: str, new: str, complaint: str) -> None:
    built = build_tiny(broken(old, new), sanitize="address,undefined")
    with pytest.raises(AssertionError, match=complaint):
        run_sanitized(SESSION, "address,undefined", built.library)


def test_leaks_are_noticed() -> None:
    leaking = broken(
        "const int64_t batch = s[0],", "volatile auto lost = new char[64]; (void)lost; const int64_t batch = s[0],"
    )
    built = build_tiny(leaking, sanitize="address,undefined")
    with pytest.raises(AssertionError, match="leak of"):
        run_sanitized(SESSION, "address,undefined", built.library)


def test_the_thread_pool_under_thread_sanitizer(tmp_path: Path) -> None:
    said = run_threads(tiny_project(), tmp_path, sizes={"batch": 6, "seq": 6})
    assert said.splitlines() == [f"tiny_{name}: 0 of 1600 runs differ" for name in ("add", "where", "rules", "same")]


def test_races_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="data race"):
        run_threads(broken("float* z = static", "static int shared; ++shared; float* z = static"), tmp_path)


def test_the_library_and_its_binding_build_with_thread_sanitizer() -> None:
    assert build_tiny(sanitize="thread").library.is_file()
