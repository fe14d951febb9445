"""Sample inputs: sizes inside the declared bounds, indices inside their table, masks with padding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from ortisan.checks.samples import Sampler
from ortisan.converter.read.symbols import declare_ascending
from ortisan.errors import OptionError
from tests.models.text import text_model


def first_cases(sampler: Sampler) -> list[dict[str, np.ndarray]]:
    return [dict(next(attempts).feeds) for attempts in sampler.cases()]


def embedding() -> Sampler:
    body = (
        "c = Cast<to = 7>(ids) u = Unsqueeze(c, one) e = Gather(words, u) m = Cast<to = 1>(pad_mask) y = ReduceSum(e)"
    )
    constants = {"words": np.zeros((11, 3), np.float32), "one": np.array([1])}
    return Sampler(
        text_model("(int32[batch,seq] ids, int64[batch,seq] pad_mask) => (float[] y)", body, constants=constants)
    )


def test_indices_stay_in_their_table() -> None:
    drawn = np.concatenate([feeds["ids"].ravel() for feeds in first_cases(embedding())])
    assert drawn.min() >= 0
    assert drawn.max() == 10
    assert drawn.dtype == np.int32


def test_masks_come_with_and_without_padding() -> None:
    masks = [feeds["pad_mask"] for feeds in first_cases(embedding())]
    assert any(mask.size > 3 and mask.all() for mask in masks)
    padded = [mask for mask in masks if not mask.all()]
    assert padded
    for mask in padded:
        assert mask[:, 0].all()
        assert (np.diff(mask, axis=1) <= 0).all()


def test_sizes_are_odd_different_and_inside_the_bounds() -> None:
    model = text_model("(float[batch,rows,columns] x) => (float[batch,rows,columns] y)", "y = Relu(x)")
    shapes = {feeds["x"].shape for feeds in first_cases(Sampler(model))}
    assert shapes == {(1, 1, 1), (2, 7, 11), (3, 17, 3), (1, 67, 31)}
    bounded = Sampler(model, {"batch": 4, "rows": (5, 9)})
    assert {feeds["x"].shape for feeds in first_cases(bounded)} == {(4, 5, 1), (4, 7, 11), (4, 9, 3), (4, 9, 31)}


@pytest.mark.parametrize("shape, timed", [("n", 128), ("n,4", 1)])
def test_a_single_symbol_gets_long_sizes_too(shape: str, timed: int) -> None:
    sampler = Sampler(text_model(f"(float[{shape}] x) => (float[{shape}] y)", "y = Relu(x)"))
    assert {feeds["x"].shape[0] for feeds in first_cases(sampler)} == {1, 7, 17, 67}
    assert next(sampler.timed()).label == f"n={timed}"


def test_expressions_of_dims_agree() -> None:
    model = text_model('(float[past] a, float["past + seq"] b, float[seq] c) => (float[past] y)', "y = Relu(a)")
    for feeds in first_cases(Sampler(model)):
        assert feeds["b"].size == feeds["a"].size + feeds["c"].size


def test_attempts_get_smaller_then_equal_then_larger() -> None:
    model = text_model("(float[batch,rows] x) => (float[batch,rows] y)", "y = Relu(x)")
    shapes = [case.feeds["x"].shape for case in list(Sampler(model).cases())[3]]
    assert shapes[:3] == [(1, 67), (1, 33), (1, 16)]
    assert [shape for shape in shapes if shape[0] == shape[1]][:3] == [(1, 1), (4, 4), (2, 2)]
    assert max(shapes) > (1, 1000)


def test_sizes_ascend_where_the_model_says_so() -> None:
    model = ir.from_proto(text_model("(float[b,new] x, float[b,room,all] y) => (float[b,new] z)", "z = Relu(x)"))
    declare_ascending(model, [ir.SymbolicDim(name) for name in ("new", "all", "room")])
    sizes = [(feeds["x"].shape[1], *feeds["y"].shape[:0:-1]) for feeds in first_cases(Sampler(model))]
    assert len(set(sizes)) == 4
    assert all(size == tuple(sorted(size)) for size in sizes)
    assert next(Sampler(model).timed()).label == "b=1, new=1, room=128, all=128"
    assert next(Sampler(model, {"all": 5}).timed()).label == "b=1, new=1, room=128"


def test_timing_takes_a_single_batch() -> None:
    assert next(embedding().timed()).label == "batch=1, seq=128"


def test_timing_takes_a_batch_and_a_short_item_too() -> None:
    sampler = embedding()
    assert not list(sampler.timed_beside()), "only around what ran"
    next(sampler.timed())
    assert [next(attempts).label for attempts in sampler.timed_beside()] == ["batch=16, seq=128", "batch=1, seq=32"]
    bounded = Sampler(
        text_model("(float[batch,n] x) => (float[batch,n] y)", "y = Relu(x)"), {"batch": 1, "n": (128, 512)}
    )
    next(bounded.timed())
    assert not list(bounded.timed_beside())


def test_a_length_is_an_array_also_without_dims() -> None:
    model = text_model(
        "(float[batch,time,4] x, int64 lengths) => (float[batch,time,4] y)",
        "steps = Range(zero, lengths, one) s = Cast<to = 1>(steps) t = ReduceSum<keepdims = 0>(s) y = Mul(x, t)",
        constants={"zero": np.array(0), "one": np.array(1)},
    )
    for feeds in first_cases(Sampler(model)):
        assert all(isinstance(array, np.ndarray) for array in feeds.values())


@pytest.mark.parametrize("type_, kind", [("bool", "b"), ("uint8", "u"), ("float16", "f"), ("double", "f")])
def test_element_types(type_: str, kind: str) -> None:
    model = text_model(f"({type_}[4] x) => ({type_}[4] y)", "y = Identity(x)")
    (feeds,) = first_cases(Sampler(model))
    assert feeds["x"].dtype.kind == kind


def test_unknown_dims_are_refused() -> None:
    with pytest.raises(OptionError, match="no symbolic dim 'rows'"):
        Sampler(text_model("(float[n] x) => (float[n] y)", "y = Relu(x)"), {"rows": 3})


def test_the_mask_of_a_decoder_is_as_long_as_its_cache_will_be() -> None:
    model = text_model(
        "(float[b,new,4] x, int64[b,total] mask, float[b,past,4] k, float[b,other,4] v) => (float[?,?,4] p, float[?,?,4] q)",
        "p = Concat<axis = 1>(k, x) q = Concat<axis = 1>(v, x)",
    )
    sampler = Sampler(model)
    for case in (case for attempts in sampler.cases() for case in attempts):
        new, past, other = (case.feeds[name].shape[1] for name in ("x", "k", "v"))
        assert past == other
        assert case.feeds["mask"].shape[1] == past + new
    step = next(sampler.timed()).feeds
    assert [step[name].shape[1] for name in ("x", "k", "mask")] == [1, 128, 129]
