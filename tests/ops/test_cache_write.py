from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.graph import Value
from ortisan.registry.ops import Attention, CacheWrite, Concatenate, DynamicSlice, Permute
from ortisan.registry.refusal import Refused
from tests.ops.arrays import values
from tests.ops.op_graphs import GraphBatch, GraphCase
from tests.tolerances import APPROXIMATE, assert_close


def _case(name: str, past: tuple[int, ...], rows: int, starts: Any = None, axis: int = 2, dtype: Any = np.float32,
          dims: Any = None, **options: Any) -> GraphCase:  # fmt: skip
    def write(b: Builder, *operands: Value) -> Value:
        return b.add(CacheWrite(axis, **options), *operands)

    update = (*past[:axis], rows, *past[axis + 1 :])
    inputs = {"past": values(*past, dtype=dtype), "update": values(*update, dtype=dtype, seed=1)}
    if starts is not None:
        inputs["starts"] = np.asarray(starts)
    return GraphCase(name, inputs, write, dims or {})


IN_PLACE = _case("middle", (2, 3, 9, 5), 2, [3, 6])
CIRCULAR = _case("circular_wrap", (2, 3, 9, 5), 4, [7, -2], mode="circular")
CASES = [
    IN_PLACE, CIRCULAR, _case("front", (2, 3, 9, 5), 2, [0, 0]), _case("end", (2, 3, 9, 5), 2, [7, 7]), _case("whole", (2, 3, 9, 5), 9, [0, 0]),
    _case("no_starts", (2, 3, 9, 5), 4), _case("start", (2, 3, 9, 5), 4, start=5), _case("start_and_starts", (2, 3, 9, 5), 4, [1, 0], start=4),
    _case("int32_starts", (2, 3, 9, 5), 2, np.int32([1, 7])), _case("nothing_written", (2, 3, 9, 5), 0, [9, 0]),
    _case("axis_1", (2, 9, 3, 5), 2, [4, 7], axis=1), _case("axis_last", (2, 3, 9), 2, [4, 7]), _case("one_axis_left", (2, 9), 2, [4, 7], axis=1),
    _case("longer", (2, 3, 4, 5), 2, [4, 1], length=9), _case("from_nothing", (2, 3, 0, 5), 4, [0, 3], length=7), _case("longer_same", (2, 3, 4, 5), 2, [2, 1], length=4),
    _case("circular_far", (2, 3, 9, 5), 4, [2**62 + 7, -(2**63)], mode="circular"), _case("circular_more_than_all", (2, 3, 5, 4), 13, [3, 4], mode="circular"),
    _case("circular_start", (1, 2, 5, 4), 3, start=9, mode="circular"), _case("no_batch", (0, 3, 9, 5), 2, np.zeros(0, np.int64)),
    _case("float16", (2, 3, 9, 5), 2, [3, 6], dtype=np.float16), _case("int64", (2, 3, 9, 5), 2, [3, 6], dtype=np.int64), _case("bool", (2, 3, 9, 5), 2, [3, 6], dtype=bool),
    _case("large", (1, 2, 4100, 64), 70, [4000]),
    _case("dynamic", (2, 3, 9, 5), 2, dims={"past": ["b", 3, "t", 5], "update": ["b", 3, "s", 5]}, start=symbol("t") - symbol("s")),
    _case("dynamic_length", (2, 3, 9, 5), 2, dims={"past": ["b", 3, "t", 5], "update": ["b", 3, "s", 5]}, start=symbol("t"), length=symbol("t") + symbol("s")),
]  # fmt: skip


def _decode(b: Builder, q: Value, k: Value, v: Value, past_k: Value, past_v: Value, _sizer: Value) -> list[Value]:
    """One step of a decoder whose new rows come as a projection leaves them, over caches with room to spare."""
    used, new = symbol("used"), q.shape[1]
    caches = [
        b.add(CacheWrite(2, start=used), past, b.add(Permute((0, 2, 1, 3)), rows))
        for past, rows in ((past_k, k), (past_v, v))
    ]
    (batch, heads, _, size), ones = past_k.shape, (1, 1, 1, 1)
    seen = [b.add(DynamicSlice((0, 0, 0, 0), (batch, heads, used + new, size), ones), cache) for cache in caches]
    out = b.add(Attention(0.5, causal="lower_right"), b.add(Permute((0, 2, 1, 3)), q), *seen)
    return [out, *caches]


def _grow(b: Builder, q: Value, k: Value, v: Value, past_k: Value, past_v: Value) -> list[Value]:
    grown = [b.add(Concatenate(2), past, rows) for past, rows in ((past_k, k), (past_v, v))]
    return [b.add(Attention(0.5, causal="lower_right"), q, *grown), *grown]


DECODE = GraphCase(
    "decode",
    {
        "q": values(2, 3, 4, 8), "k": values(2, 3, 2, 8, seed=1), "v": values(2, 3, 2, 8, seed=2),
        "past_k": values(2, 2, 20, 8, seed=3), "past_v": values(2, 2, 20, 8, seed=4), "sizer": np.zeros(11, bool),
    },
    _decode,
    {"q": ["b", "s", 4, 8], "k": ["b", "s", 2, 8], "v": ["b", "s", 2, 8], "past_k": ["b", 2, "t", 8], "past_v": ["b", 2, "t", 8], "sizer": ["used"]},
    APPROXIMATE,
)  # fmt: skip
GROW = GraphCase(
    "grow",
    {
        "q": values(2, 4, 3, 8), "k": values(2, 2, 3, 8, seed=1), "v": values(2, 2, 3, 8, seed=2),
        "past_k": values(2, 2, 7, 8, seed=3), "past_v": values(2, 2, 7, 8, seed=4),
    },
    _grow,
    {"q": ["b", 4, "s", 8], "k": ["b", 2, "s", 8], "v": ["b", 2, "s", 8], "past_k": ["b", 2, "p", 8], "past_v": ["b", 2, "p", 8]},
    APPROXIMATE,
)  # fmt: skip
CASES += [DECODE, GROW]
BATCH = GraphBatch(CASES, "cache_write")


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cache_write(case: GraphCase) -> None:
    BATCH.check(case)


def test_attention_reads_the_caches_where_they_are() -> None:
    """Slices of a written cache are read in the graph outputs' memory, joined tensors there and in the inputs'."""
    for case, kernels, pasts in (
        (DECODE, ["cache_write", "cache_write", "attention"], []),
        (GROW, ["concatenate", "concatenate", "attention"], [("input", 3), ("input", 4)]),
    ):
        plan = case.plan
        assert [group.name for group in plan.groups] == kernels
        places = [plan.memory.places[a.value] for a in plan.kernels[2].arguments if a.value is not None]
        assert [(place.kind, place.index) for place in places] == [
            ("input", 0),
            ("output", 1),
            ("output", 2),
            *pasts,
            ("output", 0),
        ]
        assert not plan.memory.slots
        assert not plan.memory.copies


def _bind(case: GraphCase, shared: dict[str, str]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Runs a case with outputs (name -> input) in the memory of inputs. Gives all outputs, and the inputs afterwards."""
    session = BATCH.session(case)
    binding = session.io_binding()
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in case.inputs.items()}
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        if output.name in shared:
            binding.bind_ortvalue_output(output.name, feeds[shared[output.name]])
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    # Arrays of their own: those of numpy() don't keep the memory.
    outputs = [np.array(value.numpy()) for value in binding.get_outputs()]
    return outputs, {name: np.array(value.numpy()) for name, value in feeds.items()}


@pytest.mark.build
@pytest.mark.parametrize("case", [IN_PLACE, CIRCULAR], ids=str)
def test_an_output_may_be_the_memory_of_the_past(case: GraphCase) -> None:
    (out,), inputs = _bind(case, {"out0": "past"})
    np.testing.assert_array_equal(out, case.reference()[0])
    np.testing.assert_array_equal(inputs["past"], out)
    np.testing.assert_array_equal(inputs["update"], case.inputs["update"])


@pytest.mark.build
def test_a_decoder_writes_its_caches_in_place() -> None:
    outputs, inputs = _bind(DECODE, {"out1": "past_k", "out2": "past_v"})
    for have, want in zip(outputs, DECODE.reference(), strict=True):
        assert_close(have, want, "decode", APPROXIMATE)
    for name, output in (("past_k", outputs[1]), ("past_v", outputs[2])):
        assert not np.array_equal(inputs[name], DECODE.inputs[name])
        np.testing.assert_array_equal(inputs[name], output)


@pytest.mark.build
@pytest.mark.parametrize("starts", [[3, 8], [-1, 0], [2**63 - 1, 0], [0, -(2**63)]], ids=str)
def test_a_row_outside_the_cache_is_an_error_and_nothing_is_written(starts: list[int]) -> None:
    session = BATCH.session(IN_PLACE)
    binding = session.io_binding()
    inputs = IN_PLACE.inputs | {"starts": np.array(starts)}
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in inputs.items()}
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("out0", feeds["past"])
    with pytest.raises(Exception, match="node 'middle': a row that is written lies outside the cache"):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(feeds["past"].numpy(), IN_PLACE.inputs["past"])
    with pytest.raises(IndexError, match="the cache has 9 rows"):
        IN_PLACE.reference(inputs)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (_case("axis", (2, 3, 4), 1, axis=0), "an axis from 1 to 2"), (_case("short", (2, 3, 4, 5), 1, length=3), "3 is below 4"),
        (_case("beyond", (2, 3, 4, 5), 2, start=3), "4 is below 5"), (_case("early", (2, 3, 4, 5), 2, start=-1), "-1 is below 0"),
        (_case("starts", (2, 3, 4, 5), 2, [1, 2, 3]), "differ: 3 and 2"), (_case("kind", (2, 3, 4, 5), 2, np.float32([1, 2])), "one int32 or int64 per batch"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(case: GraphCase, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        case.graph  # noqa: B018
