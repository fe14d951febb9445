"""--dim of verify and bench: what is read, and how cases are called."""

from __future__ import annotations

from typing import Any

import pytest

from ortisan.cli.sizes import named, read_sizes
from ortisan.errors import OptionError
from tests.test_cli import run


@pytest.mark.parametrize(
    "texts, sizes",
    [
        (None, [{}]),
        (["batch=8"], [{"batch": 8}]),
        (["batch=1,8"], [{"batch": 1}, {"batch": 8}]),
        (["batch=1", "batch=8"], [{"batch": 1}, {"batch": 8}]),
        (["b=1,2", "s=3"], [{"b": 1, "s": 3}, {"b": 2, "s": 3}]),
        (["a=b=4"], [{"a=b": 4}]),
    ],
)
def test_sizes(texts: list[str] | None, sizes: list[dict[str, int]]) -> None:
    assert read_sizes(texts) == sizes


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=1:8", "batch=1,", "=1", "batch=-1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(OptionError, match="is not of the form NAME=N or NAME=N,N"):
        read_sizes([text])


def test_too_many_at_once() -> None:
    with pytest.raises(OptionError, match="asks for 100 combinations"):
        read_sizes([f"{name}=1,2,3,4,5,6,7,8,9,10" for name in "ab"])


@pytest.mark.parametrize(
    "case, dims, words",
    [
        ("as declared", {}, "the declared shapes"),
        ("as declared", {"batch": 8, "seq": (1, 4)}, "batch=8"),
        ("as declared, padded", {"batch": 8}, "batch=8, padded"),
        ("seq=4", {"batch": 8}, "batch=8, seq=4"),
        ("batch=8, seq=4", {"batch": 8}, "batch=8, seq=4"),
        ("given inputs (x 2)", {"batch": 8}, "given inputs (x 2)"),
    ],
)
def test_labels_say_sizes(case: str, dims: dict[str, Any], words: str) -> None:
    assert named(case, dims) == words


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_sizes_and_inputs_are_not_combined(command: str) -> None:
    code, _, complaint = run(command, "nowhere", "--dim", "batch=1", "--inputs", "x.npz")
    assert code == 1
    assert "--dim and --inputs can't be combined" in complaint
