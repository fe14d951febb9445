"""Sizes that fit: each kind of constraint in a small model that stock ONNX Runtime has to accept the samples of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortisan.checks.samples import Case, Sampler
from ortisan.checks.samples.budget import CASES_SECONDS
from ortisan.checks.samples.clues import Clue, node_in, read_clue
from ortisan.checks.samples.misfits import find_misfit
from ortisan.runtime.engine import RunFailed, run
from tests.models.sessions import open_session
from tests.models.text import text_model


@dataclass(frozen=True)
class Tried:
    """What became of a model's samples."""

    sampler: Sampler
    accepted: list[Case]
    runs: int

    def shapes(self, name: str = "x") -> list[tuple[int, ...]]:
        return [case.feeds[name].shape for case in self.accepted]


def try_samples(model: onnx.ModelProto, dims: Mapping[str, int] | None = None, *, told: bool = True) -> Tried:
    """Runs all samples as a verification does; with `told` the sampler hears why one was refused."""
    sampler, session = Sampler(model, dims), open_session(model, plain=True)
    accepted, runs = [], 0
    for attempts in sampler.cases():
        for case in attempts:
            runs += 1
            try:
                run(session, case.feeds)
            except RunFailed as failed:
                if told:
                    sampler.rejected(case, str(failed))
                continue
            accepted.append(case)
            break
    return Tried(sampler, accepted, runs)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


CONSTRAINED: dict[str, tuple[str, str, dict[str, np.ndarray]]] = {
    "audio frames of 400": (
        "(float[b,t] x) => (float[?,?,?] y)",
        "u = Unsqueeze(x, one) y = Conv<strides = [160]>(u, w)",
        {"one": ints(1), "w": weights(4, 1, 400)},
    ),
    "split in 2 and 3": ("(float[n] x) => (float[2] y, float[3] z)", "y, z = Split(x, parts)", {"parts": ints(2, 3)}),
    "cropped by 3": ("(float[n] x) => (float[?] y)", "y = Pad(x, pads)", {"pads": ints(-3, 0)}),
    "mirrored by 20": (
        "(float[b,t] x) => (float[?,?] y)",
        'y = Pad<mode = "reflect">(x, pads)',
        {"pads": ints(0, 20, 0, 20)},
    ),
    "the rows of a product": ("(float[n,f] x) => (float[?,?] y)", "y = MatMul(x, w)", {"w": weights(1575, 4)}),
    "frames by bands, of which a product behind a convolution and a pool fixes the number": (
        "(float[t,f] x) => (float[?,?] y)",
        "u = Unsqueeze(x, axes) c = Conv(u, k) p = MaxPool<kernel_shape = [1,3], strides = [1,3]>(c)"
        " s = Transpose<perm = [0,2,1,3]>(p) r = Reshape(s, rows) y = MatMul(r, w)",
        {"axes": ints(0, 1), "k": weights(4, 1, 5, 3), "rows": ints(1, -1, 4 * 26), "w": weights(4 * 26, 2)},
    ),
    "a product behind two convolutions": (
        "(float[t,f] x) => (float[?,?,?,?] y)",
        "u = Unsqueeze(x, axes) c = Conv<strides = [1,2]>(u, k) d = Conv<pads = [1,1,1,1]>(c, l) y = MatMul(d, w)",
        {"axes": ints(0, 1), "k": weights(4, 1, 7, 3), "l": weights(2, 4, 3, 3), "w": weights(40, 2)},
    ),
    "stacked windows": (
        "(float[t,f] x) => (float[?,?] y)",
        "a = Slice(x, none, early) b = Slice(x, late, last) c = Concat<axis = 1>(a, b) r = Reshape(c, rows)"
        " y = MatMul(r, w)",
        {"none": ints(0), "early": ints(-20), "late": ints(20), "last": ints(2**62), "rows": ints(0, -1)}
        | {"w": weights(66, 3)},
    ),
    "groups of 3": ("(float[n] x) => (float[?,3] y)", "y = Reshape(x, shape)", {"shape": ints(-1, 3)}),
    "a skip over two strides": (
        "(float[b,3,h,w] x) => (float[?,?,?,?] y)",
        "a = Conv<strides = [2,2], pads = [1,1,1,1]>(x, k) b1 = Conv<strides = [2,2], pads = [1,1,1,1]>(a, k)"
        " u = Resize(b1, roi, scales) y = Concat<axis = 1>(x, u)",
        {"k": weights(3, 3, 3, 3), "roi": np.empty(0, np.float32), "scales": np.array([1, 1, 4, 4], np.float32)},
    ),
    "a contraction": ("(float[n,k] x) => (float[?,?] y)", "y = MatMul(x, w)", {"w": weights(24, 5)}),
    "a Gemm": ("(float[n,k] x) => (float[?,?] y)", "y = Gemm<transB = 1>(x, w)", {"w": weights(5, 24)}),
    "a broadcast": ("(float[n,k] x) => (float[?,?] y)", "y = Add(x, w)", {"w": weights(48)}),
    "rows that are picked": ("(float[n,4] x) => (float[?,4] y)", "y = Gather(x, rows)", {"rows": ints(0, 21)}),
    "dims without names": ("(float[?,?] x, float[?,?] z) => (float[?,?] y)", "y = Add(x, z)", {}),
    "the state of a recurrent net": (
        "(float[t,b,3] x, float[1,?,5] h) => (float[?,?,?,?] y)",
        "y = GRU<hidden_size = 5>(x, w, r, , , h)",
        {"w": weights(1, 15, 3), "r": weights(1, 15, 5)},
    ),
    "channels": ("(float[b,c,h,w] x) => (float[?,?,?,?] y)", "y = Conv(x, k)", {"k": weights(2, 6, 3, 3)}),
    "a spectrum": (
        "(float[b,t] x) => (float[?,?,?,?] y)",
        "u = Unsqueeze(x, two) y = STFT(u, step, window)",
        {"two": ints(2), "step": np.array(64, np.int64), "window": weights(256)},
    ),
    "a pool": ("(float[b,2,t] x) => (float[?,?,?] y)", "y = MaxPool<kernel_shape = [30]>(x)", {}),
}


@pytest.mark.parametrize("told", [True, False], ids=["told why", "untold"])
@pytest.mark.parametrize("kind", CONSTRAINED)
def test_constraints_are_met(kind: str, told: bool) -> None:
    signature, body, constants = CONSTRAINED[kind]
    tried = try_samples(text_model(signature, body, constants=constants), told=told)
    assert tried.accepted, kind
    assert tried.runs <= 45 + 3 * 8
    if kind not in ("split in 2 and 3",):
        assert len({case.label for case in tried.accepted}) >= 2


def test_a_table_of_positions_bounds_the_length() -> None:
    body = "s = Shape<start = 1, end = 2>(x) n = Squeeze(s) r = Range(zero, n, one) e = Gather(table, r) y = Add(x, e)"
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64), "table": weights(5)}
    tried = try_samples(text_model("(float[b,seq] x) => (float[?,?] y)", body, constants=constants))
    assert 3 <= max(length for _, length in tried.shapes()) <= 5
    assert len(tried.accepted) >= 3


def test_dry_runs_spare_runs() -> None:
    signature, body, constants = CONSTRAINED["a skip over two strides"]
    tried = try_samples(text_model(signature, body, constants=constants))
    assert tried.runs == len(tried.accepted) == 4
    assert all(height % 4 == 0 and width % 4 == 0 for _, _, height, width in tried.shapes())


def test_no_sizes_are_tried_twice() -> None:
    model = text_model("(float[batch,rows] x) => (float[batch,rows] y)", "y = Relu(x)")
    shapes = [case.feeds["x"].shape for attempts in Sampler(model).cases() for case in attempts]
    assert len(shapes) == len(set(shapes))
    assert max(max(shape) for shape in shapes) > 1000


def test_the_size_that_an_export_baked_in_is_found_and_named() -> None:
    model = text_model(
        "(float[b,seq,4] x) => (float[?,?,?] y)",
        "r = Reshape(x, shape) y = Relu(r)",
        constants={"shape": ints(-1, 16, 4)},
    )
    exact = text_model("(float[b,seq,4] x) => (float[?,?,?] y)", "y = Add(x, w)", constants={"w": weights(16, 4)})
    assert try_samples(model).accepted
    tried = try_samples(exact, {"b": 1})
    assert {shape[1] for shape in tried.shapes()} == {1, 16}
    strict = text_model(
        "(float[b,seq,4] x) => (float[?,?,?] y)",
        "a, c = Split<axis = 1>(x, p) y = Relu(a)",
        constants={"p": ints(7, 9)},
    )
    tried = try_samples(strict)
    assert {shape[1] for shape in tried.shapes()} == {16}
    assert {shape[0] for shape in tried.shapes()} == {1, 2, 3}
    told = tried.sampler.narrow()
    assert told is not None
    assert "only at seq=16" in told


def test_what_was_refused_is_kept_with_the_reason() -> None:
    signature, body, constants = CONSTRAINED["a broadcast"]
    tried = try_samples(text_model(signature, body, constants=constants))
    first = tried.sampler.rejections[0]
    assert first.label == "n=2, k=7"
    assert "broadcast" in first.message


def test_a_second_pass_begins_with_what_ran() -> None:
    signature, body, constants = CONSTRAINED["a broadcast"]
    tried = try_samples(text_model(signature, body, constants=constants))
    again = [next(attempts).label for attempts in tried.sampler.cases()]
    assert again == [case.label for case in tried.accepted]


def test_images_have_the_sizes_of_images() -> None:
    model = text_model(
        "(float[b,3,h,w] x) => (float[?,?,?,?] y)", "y = Conv(x, k)", constants={"k": weights(2, 3, 3, 3)}
    )
    sampler = Sampler(model)
    shapes = [next(attempts).feeds["x"].shape for attempts in sampler.cases()]
    assert shapes == [(1, 3, 64, 64), (2, 3, 96, 64), (3, 3, 64, 128), (1, 3, 107, 75)]
    assert next(sampler.timed()).feeds["x"].shape == (1, 3, 640, 640)


def test_a_second_of_sound_is_timed() -> None:
    signature, body, constants = CONSTRAINED["audio frames of 400"]
    sampler = Sampler(text_model(signature, body, constants=constants))
    assert next(sampler.timed()).feeds["x"].shape == (1, 16000)


def test_what_fits_one_size_only_is_timed_at_it() -> None:
    body = "u = Unsqueeze(x, axes) c = Conv(u, k) r = Reshape(c, all) y = MatMul(r, w)"
    constants = {"axes": ints(0, 1), "k": weights(1, 1, 9, 3), "all": ints(1, -1), "w": weights(4 * 80, 2)}
    tried = try_samples(text_model("(float[t,f] x) => (float[?,?] y)", body, constants=constants))
    assert tried.accepted
    case = next(iter(tried.sampler.timed()))
    assert case.feeds["x"].shape in tried.shapes()


def test_the_time_of_all_cases_counts_what_ran() -> None:
    """The sizes that are wanted first end at once; those that fit take a second or two."""
    body = "u = Unsqueeze(x, axes) c = Conv(u, k) d = Conv(c, l) y = Conv(d, m)"
    constants = {"axes": ints(0, 1), "k": weights(64, 1, 9, 3), "l": weights(64, 64, 9, 3), "m": weights(64, 64, 9, 3)}
    sampler = Sampler(text_model("(float[t,f] x) => (float[?,?,?,?] y)", body, constants=constants))
    chosen = [case.feeds["x"].shape for attempts in sampler.cases() for case in islice(attempts, 1)]
    assert len(chosen) > 1
    flops = sum(2.0 * t * f * 27 * 64 * 128 for t, f in chosen)
    assert flops / 30e9 < 3 * CASES_SECONDS  # rows that convolutions take away are counted here


def test_a_side_that_only_one_size_fits_keeps_it_when_timed() -> None:
    body = "c = Conv<pads = [1,1,1,1]>(x, k) y = Add(c, rows)"
    constants = {"k": weights(2, 3, 3, 3), "rows": weights(48, 1)}
    tried = try_samples(text_model("(float[b,3,h,w] x) => (float[?,?,?,?] y)", body, constants=constants))
    assert {shape[2] for shape in tried.shapes()} == {48}
    assert next(tried.sampler.timed()).feeds["x"].shape == (1, 3, 48, 640)


@pytest.mark.parametrize(
    "message, clue",
    [
        ("... Attempting to broadcast an axis by a dimension other than 1. 7 by 256", Clue("differ", (7, 256))),
        ("Axis 2 has mismatched dimensions of 2 and 1", Clue("differ", (2, 1))),
        ("Pad reflect: pre-pad (200) exceeds maximum allowed (3) for axis 1.", Clue("small", (4, 201))),
        ("Status Message: Invalid input shape: {99}", Clue("small")),
        ("Input initial_h must have shape {2,2,64}. Actual:{2,1,64}", Clue("differ", (1, 2))),
        (
            "Got invalid dimensions for input: x for the following indices index: 2 Got: 7 Expected: 48 Please fix",
            Clue("declared", (2, 7, 48), "x"),
        ),
        (
            "The input tensor cannot be reshaped to the requested shape. Input shape:{7}, requested shape:{-1,3}",
            Clue("multiple", (7, 3)),
        ),
        ("indices element out of data bounds, idx=5 must be within the inclusive range [-5,4]", Clue("range")),
        ("something else", Clue("unknown")),
    ],
)
def test_clues_of_messages(message: str, clue: Clue) -> None:
    assert read_clue(message) == clue


def test_the_innermost_node_is_named() -> None:
    assert node_in("while running If node. Name:'If_0' ... running Pad node. Name:'pad' Status") == "pad"


@settings(deadline=None, max_examples=25)
@given(kernel=st.integers(1, 90), stride=st.integers(1, 4), length=st.integers(1, 60))
def test_any_kernel_and_broadcast_is_fitted(kernel: int, stride: int, length: int) -> None:
    body = f"c = Conv<strides = [{stride}]>(x, k) y = MatMul(z, w)"
    model = text_model(
        "(float[b,2,t] x, float[b,m] z) => (float[?,?,?] c, float[?,?] y)",
        body,
        constants={"k": weights(1, 2, kernel), "w": weights(length, 2)},
    )
    assert try_samples(model).accepted


def test_a_filter_that_is_none_is_for_onnx_runtime_to_refuse() -> None:
    body = "y = Conv<kernel_shape = [3, 3]>(x, w)"
    model = text_model("(float[n,3,8,8] x, float[5] w) => (float[n,2,6,6] y)", body)
    (node,) = ir.from_proto(model).graph
    assert find_misfit(node) is None
