"""Dims whose name is a mere label: found in inputs, and freed of it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.labels import mere_labels
from ortisan.converter.read.load import load_model
from ortisan.converter.read.symbols import declare_ascending
from ortisan.errors import OptionError
from tests.models.text import text_model

LABELLED = text_model(
    "(float[batch,width] x, float[batch,width] y) => (float[batch,width] z)", "a = Exp(x) z = Concat<axis = 1>(a, y)"
)


def dims_of(value: ir.Value) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        ({"x": (2, 3), "y": (2, 3)}, set()),
        ({"x": (2, 3), "y": (2, 4)}, {"width"}),
        ({"x": (1, 3), "y": (2, 4)}, {"batch", "width"}),
        ({"x": (2, 3)}, set()),
        ({"x": (2, 3), "y": (7,)}, set()),
    ],
)
def test_sizes_tell_a_label(shapes: dict[str, tuple[int, ...]], names: set[str]) -> None:
    assert mere_labels(load_model(LABELLED).graph.inputs, shapes) == names


def test_a_free_dim_has_a_name_at_each_place() -> None:
    canonical = canonicalize(load_model(LABELLED), dims={"width": "free", "y_dim1": 5})
    x, y = canonical.model.graph.inputs
    assert dims_of(x) == ["batch", "x_dim1"]
    assert dims_of(y) == ["batch", 5]
    assert dims_of(canonical.model.graph.outputs[0]) == ["batch", "x_dim1 + 5"]


def test_what_was_declared_of_a_free_dim_is_unknown() -> None:
    model = text_model("(float[n,2] x) => (float[m,2] y)", "a = Concat<axis = 0>(x, x) y = Exp(a)")
    canonical = canonicalize(load_model(model), dims={"n": "free"})
    assert dims_of(canonical.model.graph.outputs[0]) == ["2*x_dim0", 2]


def test_a_new_name_is_not_one_of_the_model() -> None:
    model = text_model("(float[n,x_dim0] x, float[n] y) => (float[n] z)", "z = Exp(y)")
    x, y = canonicalize(load_model(model), dims={"n": "free"}).model.graph.inputs
    assert dims_of(x) == ["x_dim0_1", "x_dim0"]
    assert dims_of(y) == ["y_dim0"]


def test_a_cache_in_place_holds_its_length() -> None:
    model = load_model(LABELLED)
    declare_ascending(model, [ir.SymbolicDim("batch"), ir.SymbolicDim("width")])
    with pytest.raises(
        OptionError, match="'width' can't be free, because the length of a cache in place is tied to it"
    ):
        canonicalize(model, dims={"width": "free"})
