"""Caches in place: the rewritten decoder against the one as exported, both in stock ONNX Runtime."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import ortisan
from ortisan.converter.passes.kv_cache import put_cache_in_place
from ortisan.converter.read.load import load_model
from ortisan.converter.read.symbols import ascending
from ortisan.errors import OptionError, UnsupportedError
from ortisan.registry.ops import DynamicSlice
from tests.models import decoder
from tests.models.sessions import open_session
from tests.models.text import run_ort, text_model
from tests.tolerances import APPROXIMATE, SAME

FORMS = {
    "gpt2_dynamo": lambda: decoder.dynamo("gpt2"),
    "llama_dynamo": lambda: decoder.dynamo("llama"),
    "gpt2_legacy": lambda: decoder.legacy("gpt2"),
    "llama_legacy_sum": lambda: decoder.legacy("llama", total="past + length"),
}
CAPACITY = 13
LENGTHS = (5, 1, 1, 3, 1, 2)


def in_place(model: onnx.ModelProto) -> ir.Model:
    changed = load_model(model)
    put_cache_in_place(changed)
    return changed


@functools.cache
def rewritten(form: str) -> onnx.ModelProto:
    return ir.to_proto(in_place(FORMS[form]()))


@functools.cache
def sessions(form: str) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    return open_session(FORMS[form]()), open_session(rewritten(form))


def dims_of(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("batch", "padding"), [(1, "none"), (3, "left"), (3, "right")])
def test_same_results_over_a_growing_sequence(form: str, batch: int, padding: str) -> None:
    """What lies behind the filled part is not a number: nothing may read it, and it stays."""
    kind = form.partition("_")[0]
    grown, fixed = sessions(form)
    past, buffer = decoder.empty_cache(kind, batch), decoder.empty_cache(kind, batch, CAPACITY, np.nan)
    for feeds in decoder.steps(batch, LENGTHS, padding):
        want_logits, *want = grown.run(list(decoder.OUTPUTS), {**feeds, **past})
        logits, *have = fixed.run(list(decoder.OUTPUTS), {**feeds, **buffer})
        past, buffer = (dict(zip(decoder.PAST, arrays, strict=True)) for arrays in (want, have))
        total = feeds["attention_mask"].shape[1]
        # logits are of order 4, and ONNX Runtime may sum them in another order where other shapes are known
        np.testing.assert_allclose(logits, want_logits, atol=SAME, rtol=SAME)
        for have_cache, want_cache in zip(have, want, strict=True):
            np.testing.assert_allclose(have_cache[:, :, :total], want_cache, atol=SAME, rtol=0)
            assert np.isnan(have_cache[:, :, total:]).all()
    with pytest.raises(Exception, match="exceeds max_sequence_length"):
        fixed.run(None, {**decoder.steps(batch, (CAPACITY + 1,))[0], **buffer})


@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
def test_the_interface(form: str) -> None:
    before, after = FORMS[form](), rewritten(form)
    onnx.checker.check_model(after, full_check=True)
    assert [value.name for value in after.graph.input] == [value.name for value in before.graph.input]
    assert [value.name for value in after.graph.output] == [value.name for value in before.graph.output]
    for value in (*after.graph.input, *after.graph.output):
        if value.name in (*decoder.PAST, *decoder.PRESENT):
            assert dims_of(value)[2] == "cache_capacity"
    length, total, past = (dims_of(before.graph.input[index])[axis] for index, axis in ((0, 1), (1, 1), (3, 2)))
    total = "total_length" if total == "past + length" else total
    assert dims_of(after.graph.input[1])[1] == total
    assert ascending(ir.from_proto(after)) == (length, total, "cache_capacity")
    made = {str(dim) for value in (*after.graph.value_info, *after.graph.output) for dim in dims_of(value)}
    assert not any(str(past) in dim for dim in made)


@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
def test_compiles_without_copies_of_the_cache(form: str) -> None:
    compiled = ortisan.compile(FORMS[form](), cache="in-place")
    counts = Counter(compiled.op_counts())
    assert not compiled.left_out
    assert counts["cache_write"] == len(decoder.PAST)
    assert counts["attention"] == len(decoder.PAST) // 2
    (plan,) = compiled.plans
    moved = [node for group in plan.groups for node in group.nodes if isinstance(node.op, DynamicSlice)]
    assert not any("cache_capacity" in str(node.inputs[0].type) for node in moved)
    assert not plan.memory.copies


@pytest.mark.torch
def test_a_model_of_custom_ops_needs_no_new_opset() -> None:
    model = FORMS["gpt2_legacy"]()
    converted = ortisan.convert_graph(model, ortisan.compile(model, cache="in-place", name="gpt2"))
    assert [node.op_type for node in converted.graph.node] == ["gpt2_0"]
    assert {entry.domain: entry.version for entry in converted.opset_import}[""] == 17
    assert not converted.metadata_props


def small(
    body: str = "present = Concat<axis=-2>(past, k)",
    *,
    past: str = "float[B,2,P,4]",
    mask: str = "int64[B,T] attention_mask,",
    outputs: str = "",
    step: str = "S",
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A cache whose sum is the other output."""
    text = f"k = Mul(x, x) {body} y = ReduceSum<keepdims=0>(present)"
    signature = f"({mask} {past} past, float[B,2,{step},4] x) => (float y, float[B,2,G,4] present {outputs})"
    return text_model(signature, text, opset=18, constants=constants)


def refusal(model: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedError) as error:
        in_place(model)
    return str(error.value)


def test_a_step_of_fixed_length() -> None:
    model = small(step="1")
    changed = ir.to_proto(in_place(model))
    past, x = np.ones((3, 2, 4, 4), np.float32), np.full((3, 2, 1, 4), 2, np.float32)
    buffer = np.concatenate([past, np.full((3, 2, 5, 4), np.nan, np.float32)], axis=2)
    mask = np.ones((3, 5), np.int64)
    want = run_ort(model, {"attention_mask": mask, "past": past, "x": x})
    have = run_ort(changed, {"attention_mask": mask, "past": buffer, "x": x})
    np.testing.assert_array_equal(have[0], want[0])
    np.testing.assert_array_equal(have[1][:, :, :5], want[1])
    assert ascending(ir.from_proto(changed)) == ("1", "T", "cache_capacity")


@pytest.mark.parametrize("bounds", ["", "<start=2>", "<start=1,end=3>", "<start=-2,end=-1>", "<start=0,end=2>"])
def test_shapes_of_the_past_tell_the_filled_length(bounds: str) -> None:
    model = small(f"present = Concat<axis=2>(past, k) size = Shape{bounds}(past)", outputs=", int64[N] size")
    changed = ir.to_proto(in_place(model))
    feeds = {"attention_mask": np.ones((3, 7), np.int64), "x": np.ones((3, 2, 2, 4), np.float32)}
    want = run_ort(model, {**feeds, "past": np.zeros((3, 2, 5, 4), np.float32)})
    have = run_ort(changed, {**feeds, "past": np.zeros((3, 2, 11, 4), np.float32)})
    np.testing.assert_array_equal(have[2], want[2])
    np.testing.assert_array_equal(have[0], want[0])


def test_a_past_that_is_read_elsewhere_is_refused() -> None:
    body = "present = Concat<axis=2>(past, k) other = Relu(past)"
    assert "Relu '' reads it too" in refusal(small(body, outputs=", float[B,2,P,4] other"))


def test_a_past_that_is_an_output_is_refused() -> None:
    model = small()
    model.graph.output.append(model.graph.input[1])
    assert "it is an output too" in refusal(model)


@pytest.mark.parametrize(
    "body", ["Concat<axis=2>(k, past)", "Concat<axis=2>(past, k, k)", "Concat<axis=2>(past, past)"]
)
def test_other_concats_are_refused(body: str) -> None:
    assert "not the first of the two inputs" in refusal(small(f"present = {body}"))


def test_a_cache_that_stays_as_it_is_beside_another_is_refused() -> None:
    model = small("present = Concat<axis=2>(past, k) o = Relu(other)", outputs=", float[B,2,P,4] o")
    model.graph.input.append(onnx.helper.make_tensor_value_info("other", 1, ["B", 2, "P", 4]))
    assert "input 'other' has the past's length 'P' too" in refusal(model)


def test_growth_along_the_batch_is_refused() -> None:
    assert "first axis" in refusal(small("present = Concat<axis=0>(past, k)", past="float[P,2,S,4]"))


def test_a_fixed_past_is_refused() -> None:
    assert "fixed at 5" in refusal(small(past="float[B,2,5,4]"))


@pytest.mark.parametrize("mask", ["", "int64[B,S] attention_mask,", "int64[B,E] encoder_attention_mask,"])
def test_without_a_mask_over_all_positions_it_is_refused(mask: str) -> None:
    assert "no other input has the length of past and new positions together" in refusal(small(mask=mask))


@pytest.mark.parametrize(("length", "after"), [("P + S", "total_length"), ("S+P", "total_length"), ("G", "G")])
def test_a_mask_is_known_by_its_length(length: str, after: str) -> None:
    model = small(mask="int64[B,T] seen,")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = length
    assert ascending(in_place(model)) == ("S", after, "cache_capacity")


def test_a_model_without_a_cache_is_refused() -> None:
    assert "the model has no cache to keep in place" in refusal(
        text_model("(float[B,4] x) => (float[B,4] y)", "y=Relu(x)")
    )


def test_other_values_of_the_option_are_refused() -> None:
    with pytest.raises(OptionError, match="'as-is' or 'in-place', not 'shared'"):
        ortisan.compile(small(), cache="shared")


def test_the_callers_model_stays() -> None:
    model = small()
    before = model.SerializeToString()
    ortisan.compile(model, cache="in-place", target="reference")
    assert model.SerializeToString() == before


def test_fixed_dims_and_a_full_cache_in_numpy() -> None:
    compiled = ortisan.compile(
        small(), cache="in-place", target="reference", dims={"cache_capacity": 8}, whole_graph=True
    )
    rng = np.random.default_rng(0)
    past, x = rng.normal(size=(2, 2, 8, 4)).astype(np.float32), rng.normal(size=(2, 2, 3, 4)).astype(np.float32)
    total, present = compiled.run({"attention_mask": np.ones((2, 8), np.int64), "past": past, "x": x})
    want = np.concatenate([past[:, :, :5], x * x], axis=2)
    np.testing.assert_allclose(present, want, rtol=SAME)
    np.testing.assert_allclose(total, want.sum(), rtol=APPROXIMATE)
