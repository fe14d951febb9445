"""A compiled graph called from Python without ONNX Runtime."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.tiny_library import W, add_reference
from tests.tolerances import APPROXIMATE

pytestmark = pytest.mark.build


@pytest.fixture(params=[1, 3])
def graph(binding: ModuleType, request: pytest.FixtureRequest) -> object:
    graph = binding.Graph(0, threads=request.param)
    graph.set_weights([W])
    return graph


def random_inputs(batch: int = 3, seq: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.random((batch, seq, 4), np.float32), random.random(batch, np.float32)]


def test_graphs_describes_the_library(binding: ModuleType) -> None:
    add, where, _, same = binding.graphs()
    assert add["op"] == "tiny_add"
    assert add["inputs"][0] == {"name": "x", "dtype": 1, "shape": ["batch", "seq", 4]}
    assert add["inputs"][1]["name"] == 'b "quoted"'
    assert add["outputs"][0] == {"name": "y", "dtype": 1, "shape": ["batch", None, 4]}
    assert add["weights"] == [{"name": "w", "dtype": 1, "bytes": 16}]
    assert add["symbols"][1] == {"name": "seq", "low": 1, "high": 512}
    assert where["weights"] == []
    assert where["shared"] == {}
    assert same["shared"] == {0: 0}


@pytest.mark.parametrize("batch, seq", [(1, 1), (3, 3), (1, 512), (0, 1)])
def test_values(graph: object, batch: int, seq: int) -> None:
    inputs = random_inputs(batch, seq)
    y, z = graph.run(inputs)
    expected = add_reference(*inputs)
    np.testing.assert_array_equal(-y, expected[0])
    np.testing.assert_allclose(z, expected[1], rtol=APPROXIMATE)


@pytest.mark.parametrize("name", ["fortran", "strided", "negative", "unaligned", "list"])
def test_any_memory_layout_is_accepted(graph: object, name: str) -> None:
    x, b = random_inputs()
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(x.shape)
    unaligned[...] = x
    layouts = {
        "fortran": np.asfortranarray(x),
        "strided": np.repeat(x, 2, axis=1)[:, ::2],
        "negative": x[::-1].copy()[::-1],
        "unaligned": unaligned,
        "list": np.array(x.tolist(), np.float32),
    }
    np.testing.assert_array_equal(graph.run([layouts[name], b])[0], graph.run([x, b])[0])


def test_outputs_go_where_the_caller_says(graph: object) -> None:
    inputs = random_inputs()
    y, z = graph.run(inputs)
    place = np.full_like(z, 7)
    have_y, have_z = graph.run(inputs, out=[None, place])
    assert have_z is place
    np.testing.assert_array_equal(place, z)
    np.testing.assert_array_equal(have_y, y)
    assert have_y.ctypes.data != y.ctypes.data


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda y, z, b: [y], "got 1 arrays in out, expected 2"),
        (lambda y, z, b: [y.tolist(), z], "out for 'y' is not an array"),
        (lambda y, z, b: [y.astype(np.float64), None], "out for 'y' has element type float64, expected float32"),
        (lambda y, z, b: [y[:2], None], r"out for 'y' has shape \(2, 5, 4\), expected \(3, 5, 4\)"),
        (lambda y, z, b: [np.asfortranarray(y), None], "out for 'y' must be C-contiguous, aligned and writeable"),
        (lambda y, z, b: [np.broadcast_to(y[:1, :1, :1], y.shape), None], "must be C-contiguous"),
        (lambda y, z, b: [None, b], "out for 'z' overlaps input 'b \"quoted\"' in memory"),
    ],
)
def test_wrong_places_for_outputs_are_told(graph: object, change: object, sentence: str) -> None:
    inputs = random_inputs()
    y, z = graph.run(inputs)
    with pytest.raises(ValueError, match=sentence):
        graph.run(inputs, out=change(y, z, inputs[1]))


def test_a_shared_output_may_be_the_input(binding: ModuleType) -> None:
    x = np.zeros(5)
    (copied,) = binding.Graph(3).run([x])
    assert not copied.any()
    (y,) = binding.Graph(3).run([x], out=[x])
    assert y is x
    assert x.all()
    block = np.zeros(6)
    with pytest.raises(ValueError, match="out for 'y' overlaps input 'x' in memory"):
        binding.Graph(3).run([block[:5]], out=[block[1:]])


def test_trace_shows_the_scratch_block(graph: object) -> None:
    inputs = random_inputs()
    outputs, scratch, symbols = graph.trace(inputs)
    assert symbols == [3, 3]
    assert scratch.ctypes.data % 64 == 0
    np.testing.assert_array_equal(scratch.view(np.float32), outputs[0].ravel())


@pytest.mark.parametrize(
    "inputs, sentence",
    [
        ([np.zeros((3, 3, 4), np.float32)], "got 1 inputs, expected 2"),
        ([np.zeros((3, 3, 4)), np.zeros(3, np.float32)], "input 'x' has element type float64, expected float32"),
        ([np.zeros((3, 3, 4), ">f4"), np.zeros(3, np.float32)], "input 'x' has element type >f4, expected float32"),
        ([np.zeros((3, 4), np.float32), np.zeros(3, np.float32)], "input 'x' has 2 dims, expected 3"),
        ([np.zeros((3, 3, 4), np.float32), np.zeros(4, np.float32)], "is 4 but 'batch' is 3 in input 'x'"),
    ],
)
def test_wrong_inputs_are_told(graph: object, inputs: list[np.ndarray], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        graph.run(inputs)


def run_rules(
    binding: ModuleType, n: int, m: int, q: int, k: int, *, dtypes: tuple[str, str] = ("f2", "u2")
) -> np.ndarray:
    return binding.Graph(2).run([np.zeros((n, m), dtypes[0]), np.zeros(q, dtypes[1]), np.zeros(k, np.int64)])[0]


def test_16_bit_floats_come_as_halves_or_raw_bits(binding: ModuleType) -> None:
    for p in ("f2", "u2"):
        result = run_rules(binding, 3, 2, 5, 3, dtypes=(p, "u2"))
        assert (result.shape, result.dtype) == ((1,), np.uint16)
    run_rules(binding, 3, 2, 5, 3, dtypes=("f2", ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="input 'q' has element type float16, expected uint16"):
        run_rules(binding, 3, 2, 5, 3, dtypes=("f2", "f2"))


@pytest.mark.parametrize(
    "sizes, sentence",
    [
        ((3, 2, 6, 3), "tiny_rules: dim 0 of input 'q' is 6, expected 5 for the other inputs' sizes"),
        ((3, 2, 5, 4), "tiny_rules: node 'equal' needs equal sizes, got 4 and 3"),
        ((3, 1, 4, 3), "tiny_rules: node 'even' needs size 1 to be a multiple of 2"),
        ((1, 0, 1, 1), "tiny_rules: node 'two' has size 1, but needs at least 2"),
        ((2, 4, 6, 2), "tiny_rules: dim 0 of output 'r' would be -2 for these inputs"),
    ],
)
def test_each_rule_for_shapes_has_its_sentence(binding: ModuleType, sizes: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        run_rules(binding, *sizes)
    assert str(caught.value) == sentence


def test_long_names_are_cut_between_characters(binding: ModuleType) -> None:
    inputs = [np.zeros((3, 2), "f2"), np.zeros(5, "u2"), np.zeros((3, 1), np.int64)]
    with pytest.raises(ValueError, match=r"^tiny_rules: input 'xö{47}\.\.\.' has 2 dims, expected 1$"):
        binding.Graph(2).run(inputs)


@pytest.mark.parametrize(
    "weights, sentence",
    [
        ([], "got 0 weights, expected 1"),
        ([W[:3]], "has 12 bytes, expected 16"),
        ([W.astype(np.int32)], "has element type int32"),
    ],
)
def test_wrong_weights_are_told_and_the_old_ones_stay(graph: object, weights: list[np.ndarray], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        graph.set_weights(weights)
    inputs = random_inputs()
    np.testing.assert_array_equal(-graph.run(inputs)[0], add_reference(*inputs)[0])


def test_weights_must_be_set(binding: ModuleType) -> None:
    with pytest.raises(ValueError, match="set_weights has not been called"):
        binding.Graph(0).run(random_inputs())


def test_a_failure_inside_a_kernel(graph: object) -> None:
    x, b = random_inputs()
    with pytest.raises(RuntimeError, match="tiny_add: a bias is negative"):
        graph.run([x, -b])


@pytest.mark.parametrize("index", [-1, 4])
def test_a_graph_that_is_not_there(binding: ModuleType, index: int) -> None:
    with pytest.raises(IndexError, match=f"no graph {index}; the library has 4"):
        binding.Graph(index)


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_impossible_thread_counts(binding: ModuleType, threads: int) -> None:
    with pytest.raises(ValueError, match="threads must be"):
        binding.Graph(0, threads=threads)


def test_callers_at_once_get_equal_bits(graph: object) -> None:
    inputs = random_inputs(5, 5)
    expected = graph.run(inputs)

    def run_often(_: int) -> bool:
        return all(np.array_equal(a, b) for _ in range(50) for a, b in zip(graph.run(inputs), expected, strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run_often, range(8)))


def test_weights_may_change_while_others_run(graph: object) -> None:
    inputs = random_inputs(4, 4)
    stop = threading.Event()
    seen: list[np.ndarray] = []

    def run_until_stopped() -> None:
        while not stop.is_set():
            seen.append(graph.run(inputs)[0])

    with ThreadPoolExecutor(2) as pool:
        pool.submit(run_until_stopped)
        for turn in range(200):
            graph.set_weights([W * (turn % 2)])
        stop.set()
    zero, one = (graph_run(graph, W * factor, inputs) for factor in (0, 1))
    assert seen
    assert all(np.array_equal(y, zero) or np.array_equal(y, one) for y in seen)


def graph_run(graph: object, weight: np.ndarray, inputs: list[np.ndarray]) -> np.ndarray:
    graph.set_weights([weight])
    return graph.run(inputs)[0]
