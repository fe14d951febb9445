"""Inputs of the caller, and what is said when no sample fits."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from ortisan.checks.inputs import Cases, read_inputs
from ortisan.checks.samples import Case, Sampler, how_to_give_inputs
from ortisan.errors import OptionError
from tests.models.text import text_model


def test_files_mappings_and_sequences_of_them(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.ones(3), name=np.array(["text"]))
    (read,) = read_inputs(path)
    assert set(read) == {"x", "name"}
    assert len(read_inputs([path, {"x": [1.0]}])) == 2
    assert read_inputs(None) == []


def test_what_can_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nope.npz', the file of inputs, does not exist"):
        read_inputs(tmp_path / "nope.npz")
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(OptionError, match=r"one array without a name \(.npy\).*np.savez"):
        read_inputs(tmp_path / "one.npy")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, None]))
    with pytest.raises(OptionError, match="array of Python objects"):
        read_inputs(tmp_path / "objects.npz")
    with pytest.raises(OptionError, match="can't be read: Is a directory"):
        read_inputs(tmp_path)
    for content in (b"", b"text", b"\x80\x04N."):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(OptionError, match=r"can't be read as inputs: expected an .npz file"):
            read_inputs(tmp_path / "other.npz")


@pytest.mark.parametrize("at", [4, 60, 90, 140, 200, -30, -5])
def test_damaged_files_are_one_sentence(tmp_path: Path, at: int) -> None:
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, x=np.arange(100.0))
    content = bytearray(path.read_bytes())
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with contextlib.suppress(OptionError):  # some of it is of no matter
        read_inputs(path)
    path.write_bytes(content[:at])
    with pytest.raises(OptionError, match="can't be read as inputs"):
        read_inputs(path)


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(OptionError, match="input 'x' is an array of Python objects"):
        read_inputs({"x": np.array([{}, None])})
    with pytest.raises(OptionError, match="input 'x' can't be taken for an array"):
        read_inputs({"x": [[1, 2], [3]]})


def test_the_ways_out_are_named() -> None:
    model = text_model("(float[b,1,samples] x, int64 sr) => (float[?,?,?] y)", "y = Conv(x, k)",
                       constants={"k": np.zeros((1, 1, 9), np.float32)})  # fmt: skip
    cases = Cases(None, lambda: Sampler(model))
    for attempts in cases.compared():
        for case in attempts:
            cases.rejected(case, "no such luck")
    text = cases.advice("no such luck")
    assert "runs the model on none of the sample inputs (no such luck); tried: b=1, samples=16000; " in text
    assert "    x: float[b, 1, samples]\n    sr: int64[]\n" in text
    assert "--dim samples=16000" in text
    assert 'np.savez("inputs.npz", x=np.zeros((1, 1, 16000), np.float32), sr=np.zeros((), np.int64))' in text
    assert "--no-verify" in text
    assert cases.narrow() is None


def test_the_lines_for_a_file_run_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = text_model("(float[b,4] x, string[b] words, bool[2] flags) => (float[?,4] y)", "y = Relu(x)")
    model.graph.input[0].name = model.graph.node[0].input[0] = "serving:0"
    sampler = Sampler(model)
    lines = [line[4:] for line in sampler.advice().splitlines() if line.startswith(("    import", "    np."))]
    monkeypatch.chdir(tmp_path)
    exec("\n".join(lines), {})
    (read,) = read_inputs("inputs.npz")
    assert read["serving:0"].shape == (1, 4)
    assert read["flags"].dtype == np.bool_
    assert read["words"].dtype.kind == "U"


def test_long_lists_are_cut() -> None:
    text = how_to_give_inputs([], [f"n={size}" for size in range(40)], "")
    assert "n=11 and 28 more" in text


def test_given_inputs_are_told_nothing() -> None:
    cases = Cases({"x": np.ones(1)}, lambda: pytest.fail("no sampler is needed"))
    cases.rejected(Case("given inputs", {}), "why")
    assert cases.narrow() is None


def test_labels_say_shapes(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 16), np.float32), n=np.int64(3))
    cases = Cases(tmp_path / "x.npz", lambda: pytest.fail("no samples are needed"))
    assert [case.label for attempts in cases.compared() for case in attempts] == ["given inputs 1 (x 2x16, n scalar)"]
    assert [case.label for case in cases.timed()] == ["given inputs (x 2x16, n scalar)"]


def test_labels_of_many_inputs_are_cut_short() -> None:
    cases = Cases({f"x{n}": np.zeros(n) for n in range(9)}, lambda: pytest.fail("no samples are needed"))
    assert [case.label for case in cases.timed()] == ["given inputs (x0 0, x1 1, x2 2, x3 3, ...)"]
