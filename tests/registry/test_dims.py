from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortisan.codegen.expressions import DimPrinter
from ortisan.errors import UnsupportedError
from ortisan.registry.dims import (
    Facts,
    broadcast_dim,
    ceil_div,
    evaluate,
    floor_div,
    is_static,
    maximum,
    minimum,
    product,
    settle,
    symbol,
)
from ortisan.registry.refusal import Refused

B, S = symbol("B"), symbol("S")
sizes = st.integers(0, 200)


@given(sizes, sizes, st.integers(1, 40))
def test_division_is_the_integers_division(b: int, s: int, k: int) -> None:
    values = {"B": b, "S": s}
    assert evaluate(floor_div(S + 3, k), values) == (s + 3) // k
    assert evaluate(ceil_div(B * S, k), values) == -(-b * s // k)
    assert evaluate(floor_div(k * B * S, k), values) == b * s
    assert evaluate(product((ceil_div(S, k), k, B)), values) == -(-s // k) * k * b


@given(sizes, st.integers(1, 9), st.integers(1, 9), st.integers(-20, 20), st.integers(-20, 20))
def test_divisions_of_divisions_have_one_form(s: int, m: int, n: int, j: int, k: int) -> None:
    nested = floor_div(floor_div(S + j, m) + k, n)
    assert nested == floor_div(S + (j + k * m), m * n)
    assert evaluate(nested, {"S": s}) == ((s + j) // m + k) // n


def test_windows_of_any_image_have_a_count_that_is_not_negative() -> None:
    """With padding for it: (s - 1) / 2 + 1 is (s + 1) / 2."""
    assert settle(floor_div(S - 1, 2) + 1) == floor_div(S + 1, 2)
    assert floor_div(S + 1, 2).is_nonnegative


def test_exact_quotients_cancel() -> None:
    assert floor_div(768 * B * S, 12 * 64) == B * S
    assert floor_div(product((B, S, 64)), S) == 64 * B
    assert floor_div(S + 15, 16) != (S + 15) / 16


@given(sizes, sizes)
def test_min_max_broadcast(b: int, s: int) -> None:
    values = {"B": b, "S": s}
    assert evaluate(minimum(B, S), values) == min(b, s)
    assert evaluate(maximum(B - 1, S), values) == max(b - 1, s)
    assert evaluate(settle(broadcast_dim(B, S)), values) == (s if b == 1 else b)


def test_broadcast_of_symbols_is_guarded() -> None:
    facts = Facts("node")
    assert facts.broadcast((B, 1, 8), (S, 8)) == (B, S, 8)
    assert not facts.guards
    facts.broadcast((B,), (S,))
    assert [guard.kind for guard in facts.guards] == ["broadcastable"]


def test_a_clipped_slice_is_taken_for_the_whole() -> None:
    facts = Facts("node")
    assert facts.broadcast((1, minimum(512, S)), (B, S)) == (B, S)
    assert [guard.kind for guard in facts.guards] == ["equal"]


def test_contradictions_are_refused() -> None:
    with pytest.raises(Refused, match="3 against 4"):
        Facts("node").broadcast((3,), (4,))
    with pytest.raises(Refused, match="not a multiple of 4"):
        Facts("node").divisible(6, 4, "reshape")


@given(sizes, sizes)
def test_printed_expressions_mean_the_same(b: int, s: int) -> None:
    printer = DimPrinter(["B", "S"])
    python = {
        "s": [b, s],
        "I": int,
        "floor_div": lambda x, y: x // y,
        "max_dim": max,
        "min_dim": min,
        "broadcast_dim": lambda x, y: y if x == 1 else x,
    }
    for dim in (
        B * S + 3,
        floor_div(S + 15, 16) * 16,
        minimum(512, maximum(B, S) - 2),
        settle(broadcast_dim(B, S)) * 2,
        S**2 - B,
    ):
        assert eval(printer(dim), {}, python) == evaluate(dim, {"B": b, "S": s})


def test_numbers_stay_numbers() -> None:
    assert is_static(settle(S - S + 4))
    with pytest.raises(UnsupportedError, match="can't be computed at run time"):
        DimPrinter(["S"])(S ** symbol("B"))
