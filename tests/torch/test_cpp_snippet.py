"""Torch ops that become C++ text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, ToolchainError, UnsupportedError  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import WIDTH, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]

SQUASH = "x / (T(1) + slope * abs(x)) + y"


@pytest.fixture(autouse=True)
def ops() -> Iterator[None]:
    """mylib-like ops, each with a fake implementation."""
    with torch.library._scoped_library("ortisan_tests", "FRAGMENT") as library:

        def define(schema: str, run: Any) -> None:
            name = schema.partition("(")[0]
            library.define(schema)
            library.impl(name, run, "CompositeExplicitAutograd")

        define(
            "squash(Tensor x, Tensor y, *, float slope=0.5) -> Tensor",
            lambda x, y, slope=0.5: x / (1 + slope * x.abs()) + y,
        )
        define("above(Tensor x, Tensor y) -> Tensor", lambda x, y: x > y)
        define(
            "step(Tensor x, int steps, bool odd) -> Tensor", lambda x, steps, odd: torch.floor(x * steps) / steps + odd
        )
        define("total(Tensor x) -> Tensor", lambda x: x.sum())
        define("named(Tensor x, str mode) -> Tensor", lambda x, mode: x)
        define("typed(Tensor float) -> Tensor", lambda float: float)
        yield
        for name in ("squash", "above", "step"):
            front.unmap_op(f"ortisan_tests::{name}")


class Squashed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 6)
        self.register_buffer("offset", torch.randn(6))

    def forward(self, x: Any) -> Any:
        return torch.ops.ortisan_tests.squash(self.linear(x), self.offset, slope=0.1).relu()


def squashed() -> Any:
    return Squashed().eval().requires_grad_(False)


def test_cpp_is_compiled_into_the_product_on_both_roads() -> None:
    model = squashed()
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    fast = front.compile(model, dynamic={"x": {0: "batch"}})
    other = torch.compile(model, backend=front.backend, options={"strict": True}, dynamic=True)
    for rows in (3, 5, 17):
        x = torch.randn(rows, WIDTH)
        close(fast(x), model(x))
        close(other(x), model(x))
    manifest = fast.entries()[0].artifact.manifest
    assert not manifest["left_out"]
    assert [op["kernels"] for op in manifest["ops"]] == [1], "the snippet is part of the product's kernel"
    assert any(name.startswith("elementwise.ortisan_tests_squash_") for name in manifest["op_counts"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_cpp_of_other_floats(dtype: Any) -> None:
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    x = torch.randn(37, dtype=dtype)
    got = front.compile(Defaults())(x)
    assert got.dtype == dtype
    close(got, Defaults()(x), 1e-14 if dtype == torch.float64 else 4e-3)


class Defaults(nn.Module):
    """The numbers of an op's signature, and operands that broadcast."""

    def forward(self, x: Any) -> Any:
        return torch.ops.ortisan_tests.squash(x.unsqueeze(1), x) * 0.5


class Steps(nn.Module):
    def forward(self, x: Any) -> Any:
        steps = torch.ops.ortisan_tests.step(x, 4, True)
        return torch.where(torch.ops.ortisan_tests.above(steps, x), steps, x * 2)


def test_statements_whole_numbers_and_booleans() -> None:
    front.map_op("ortisan_tests::step", cpp="const T scaled = x * steps;\nreturn floor(scaled) / steps + odd;")
    front.map_op("ortisan_tests::above", cpp="x > y")
    x = torch.randn(5, 7)
    fast = front.compile(Steps())
    close(fast(x), Steps()(x))
    assert not fast.entries()[0].artifact.manifest["left_out"]


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(-2, 2, 6))

    def forward(self, x: Any) -> Any:
        return x + torch.ops.ortisan_tests.squash(self.table, self.table)


def test_constants_are_folded_by_the_op_itself_or_by_a_reference() -> None:
    model, x = Constant(), torch.randn(3, 6)
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    fast = front.compile(model)
    close(fast(x), model(x))
    assert "squash" not in str(fast.entries()[0].artifact.manifest["op_counts"])
    front.map_op("ortisan_tests::squash", cpp=f"{SQUASH} + T(0)", reference=lambda x, y, slope: 0 * x + 7)
    close(front.compile(model)(x), x + 7)


def test_other_text_is_another_build() -> None:
    model, x = Defaults(), torch.randn(9)
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    close(front.compile(model)(x), model(x))
    front.map_op("ortisan_tests::squash", cpp=f"-({SQUASH})")
    close(front.compile(model)(x), -model(x))


def test_nothing_is_timed_against_onnx_runtime() -> None:
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    model, x = squashed(), torch.randn(3, WIDTH)
    fast = front.compile(model, keep="faster")
    close(fast(x), model(x))
    assert fast.entries()[0].artifact.manifest["bench"] is None


def test_cpp_that_is_not_compiled_is_refused() -> None:
    front.map_op("ortisan_tests::squash", cpp=SQUASH)
    model, x = squashed(), torch.randn(3, WIDTH)
    with pytest.raises(UnsupportedError, match=r"is C\+\+ that ONNX Runtime can't run, and it can't be compiled"):
        front.compile(model, include=["Gemm"])(x)
    with pytest.raises(UnsupportedError, match=r"ortisan_tests_squash_\w+ of int64 is not defined"):
        front.compile(Defaults(), transforms=_as_integers)(torch.randn(5))
    with pytest.warns(WentEager, match="can't be compiled"):
        close(torch.compile(model, backend=front.backend, options={"include": ["Relu"]})(x), model(x))


def _as_integers(model: Any) -> None:
    import onnx_ir as ir

    for value in (*model.graph.inputs, *model.graph.outputs):
        value.dtype = ir.DataType.INT64


def test_cpp_with_errors_shows_the_compilers_sentence() -> None:
    front.map_op("ortisan_tests::squash", cpp="x + nobody_knows_this")
    with pytest.raises(ToolchainError, match="nobody_knows_this"):
        front.compile(Defaults())(torch.randn(5))


def test_what_cpp_can_not_be_given_for() -> None:
    with pytest.raises(OptionError, match=r"'ortisan_tests::total' is not elementwise: it gives torch.float32\[\]"):
        front.map_op("ortisan_tests::total", cpp="x")
    with pytest.raises(OptionError, match="argument 'mode' of 'ortisan_tests::named' is a str"):
        front.map_op("ortisan_tests::named", cpp="x")
    with pytest.raises(OptionError, match="'float' can't be a name in the C"):
        front.map_op("ortisan_tests::typed", cpp="float")
    with pytest.raises(OptionError, match="is empty"):
        front.map_op("ortisan_tests::squash", cpp=" ")
    with pytest.raises(OptionError, match="needs an ONNX function or cpp=, and not both"):
        front.map_op("ortisan_tests::squash", lambda x: x, cpp="x")
    with pytest.raises(OptionError, match="needs an ONNX function or cpp="):
        front.map_op("ortisan_tests::squash")
    with pytest.raises(OptionError, match="reference= of 'ortisan_tests::squash' only applies to cpp="):
        front.map_op("ortisan_tests::squash", lambda x: x, reference=abs)
