"""A compiled graph as a custom op of stock ONNX Runtime: values, shapes, errors, threads, several libraries at once."""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import ortisan
from ortisan.codegen.cpu.build import Built, build_library
from ortisan.codegen.cpu.isa import ISAS, find_isa, missing_features
from tests.codegen.tiny_library import W, add_model, add_reference, build_tiny, open_session, tiny_project
from tests.models.text import text_model
from tests.tolerances import APPROXIMATE, SAME

pytestmark = pytest.mark.build


def random_inputs(batch: int, seq: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch * 1000 + seq)
    return {"x": random.random((batch, seq, 4), np.float32), "b": random.random(batch, np.float32)}


@pytest.mark.parametrize("batch, seq", [(1, 1), (3, 3), (1, 512), (7, 1), (0, 1)])
def test_values_at_any_size(tiny: Built, batch: int, seq: int) -> None:
    inputs = random_inputs(batch, seq)
    y, z = open_session(add_model(), tiny.library).run(None, inputs)
    expected_y, expected_z = add_reference(**inputs)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_allclose(z, expected_z, rtol=APPROXIMATE)


def where_model() -> onnx.ModelProto:
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("tiny_where", ["c", "a"], ["out"], domain="ortisan.tiny")],
        "g",
        [make("c", TensorProto.BOOL, None), make("a", TensorProto.DOUBLE, None)],
        [make("out", TensorProto.DOUBLE, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ortisan.tiny", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_the_second_graph_of_a_library(tiny: Built) -> None:
    session = open_session(where_model(), tiny.library)
    (out,) = session.run(None, {"c": np.array([True, False, True]), "a": np.array([1.0, 2.0, 3.0])})
    np.testing.assert_array_equal(out, [1, 0, 3])


@pytest.mark.parametrize(
    "x, b, sentence",
    [
        (
            (3, 600, 4),
            (3,),
            "tiny_add: 'seq' (dim 1 of input 'x') is 600, outside its declared range 1..512; rebuild with other dims",
        ),
        ((3, 0, 4), (3,), "tiny_add: 'seq' (dim 1 of input 'x') is 0, outside its declared range 1..512"),
        ((3, 3, 4), (4,), "tiny_add: dim 0 of input 'b \"quoted\"' is 4 but 'batch' is 3 in input 'x'"),
        ((3, 3, 5), (3,), "tiny_add: dim 2 of input 'x' is 5, expected 4"),
        ((3, 4), (3,), "tiny_add: input 'x' has 2 dims, expected 3"),
        ((3, 3, 4), (3, 1), "tiny_add: input 'b \"quoted\"' has 2 dims, expected 1"),
        ((3, 5, 4), (3,), "tiny_add: node 'second' can't broadcast size 3 with size 5"),
    ],
)
def test_shapes_that_do_not_fit_are_told_in_one_sentence(
    tiny: Built, x: tuple[int, ...], b: tuple[int, ...], sentence: str
) -> None:
    model = add_model()
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    session = open_session(model, tiny.library)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument) as caught:
        session.run(None, {"x": np.zeros(x, np.float32), "b": np.zeros(b, np.float32)})
    assert sentence in str(caught.value)
    inputs = random_inputs(2, 2)
    np.testing.assert_array_equal(session.run(None, inputs)[0], add_reference(**inputs)[0])


def same_model(*, between: bool) -> onnx.ModelProto:
    """y tells whether tiny_same had one memory for its input and its output; `between` other nodes or not."""
    value = helper.make_tensor_value_info
    same = helper.make_node("tiny_same", ["a" if between else "x"], ["b" if between else "y"], domain="ortisan.tiny")
    nodes = [helper.make_node("Neg", ["x"], ["a"]), same, helper.make_node("Abs", ["b"], ["y"])] if between else [same]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.DOUBLE, [5])], [value("y", TensorProto.DOUBLE, [5])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ortisan.tiny", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_shared_memory_is_known_to_onnx_runtime(tiny: Built) -> None:
    """Between other nodes ONNX Runtime shares it by itself; inputs and outputs of the model are the caller's to bind."""
    x = np.ones(5)
    assert open_session(same_model(between=True), tiny.library).run(None, {"x": x})[0].all()
    session = open_session(same_model(between=False), tiny.library)
    assert not session.run(None, {"x": x})[0].any()
    binding, buffer = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(np.zeros(5))
    binding.bind_ortvalue_input("x", buffer)
    binding.bind_ortvalue_output("y", buffer)
    session.run_with_iobinding(binding)
    assert buffer.numpy().all()


def test_memory_that_may_not_be_shared_is_told(tiny: Built) -> None:
    session = open_session(where_model(), tiny.library)
    (name,) = (value.name for value in session.get_outputs())
    condition, value = (one.name for one in session.get_inputs())
    binding, buffer = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(np.ones(5))
    binding.bind_cpu_input(condition, np.ones(5, np.bool_))
    binding.bind_ortvalue_input(value, buffer)
    binding.bind_ortvalue_output(name, buffer)
    with pytest.raises(Exception, match="output 'out' is bound to the memory of input 'a'; give it memory of its own"):
        session.run_with_iobinding(binding)


def test_an_input_without_elements_may_have_the_address_of_an_output(tmp_path: Path) -> None:
    """From the second run on, ONNX Runtime lays out its memory as in the first, tensors without elements at the start."""
    body = "a = Abs(x) e = Slice(a, zero, k, zero) z = Concat<axis = 0>(e, x) c = Mul(z, z) y = Sqrt(c)"
    model = text_model("(float[n] x, int64[1] k) => (float[m] y)", body, constants={"zero": np.array([0])})
    artifact = ortisan.build(model, tmp_path / "joined", include=["Concat"], keep="all", verify=False, quick=True)
    session = ortisan.load(artifact.folder)
    for k in (0, 0, 0, 2):
        (y,) = session.run(None, {"x": -np.ones(300, np.float32), "k": np.array([k])})
        assert y.tolist() == [1.0] * (300 + k)


def test_a_symbol_below_an_open_range(tiny: Built) -> None:
    session = open_session(where_model(), tiny.library)
    with pytest.raises(Exception, match=r"tiny_where: 'n' \(dim 0 of input 'c'\) is 1, below its declared minimum 2"):
        session.run(None, {"c": np.array([True]), "a": np.array([1.0])})


def test_a_failure_inside_a_kernel_becomes_a_status(tiny: Built) -> None:
    session = open_session(add_model(), tiny.library)
    with pytest.raises(Exception, match="tiny_add: a bias is negative"):
        session.run(None, {"x": np.zeros((2, 2, 4), np.float32), "b": np.array([1, -1], np.float32)})


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"constant": False}, "weight 'w' must be an initializer of the model that is not a graph input"),
        (
            {"weight": np.zeros(5, np.float32)},
            "weight 'w' is 20 bytes of element type 1, but the library was built for 16 bytes",
        ),
    ],
)
def test_weights_that_do_not_fit_stop_the_session(tiny: Built, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        open_session(add_model(**changes), tiny.library)


def test_known_sizes_are_inferred(tiny: Built) -> None:
    outputs = open_session(add_model(known=True), tiny.library).get_outputs()
    assert [output.shape for output in outputs] == [[3, 5, 4], [3]]


def test_symbols_keep_the_names_that_the_model_gives(tiny: Built) -> None:
    outputs = open_session(add_model(), tiny.library).get_outputs()
    assert [output.shape for output in outputs] == [["N", "tiny_add.expression0(N, S)", 4], ["N"]]


def test_unknown_ranks_stay_unknown(tiny: Built) -> None:
    assert open_session(where_model(), tiny.library).get_outputs()[0].shape in ([], None)


def test_inference_reaches_the_nodes_behind(tiny: Built, tmp_path: Path) -> None:
    model = add_model(known=True)
    model.graph.node.append(helper.make_node("Shape", ["y0"], ["size"]))
    model.graph.output.append(helper.make_tensor_value_info("size", TensorProto.INT64, None))
    open_session(model, tiny.library, optimized=tmp_path / "optimized.onnx")
    optimized = onnx.load(tmp_path / "optimized.onnx").graph
    assert "Shape" not in [node.op_type for node in optimized.node]
    session = open_session(model, tiny.library)
    np.testing.assert_array_equal(session.run(["size"], random_inputs(3, 3))[0], [3, 5, 4])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_on_one_session_give_equal_bits(tiny: Built, threads: int) -> None:
    inputs = random_inputs(5, 5)
    expected = open_session(add_model(), tiny.library, threads=1).run(None, inputs)
    session = open_session(add_model(), tiny.library, threads=threads)

    def run_often(_: int) -> bool:
        return all(
            np.array_equal(a, b) for _ in range(50) for a, b in zip(session.run(None, inputs), expected, strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run_often, range(8)))


def test_sessions_are_made_and_dropped_at_once(tiny: Built) -> None:
    inputs = random_inputs(2, 2)
    model = add_model()

    def open_and_run(_: int) -> np.ndarray:
        return open_session(model, tiny.library, threads=1).run(None, inputs)[0]

    with ThreadPoolExecutor(8) as pool:
        for y in pool.map(open_and_run, range(64)):
            np.testing.assert_array_equal(y, add_reference(**inputs)[0])


def test_two_libraries_in_one_session(tiny: Built) -> None:
    other = build_tiny(tiny_project(domain="ortisan.other"))
    model = add_model()
    node = helper.make_node("tiny_add", ["x", "b", "w"], ["y1", "z1"], domain="ortisan.other")
    model.graph.node.append(node)
    model.graph.output.append(helper.make_tensor_value_info("z1", TensorProto.FLOAT, None))
    model.opset_import.append(helper.make_opsetid("ortisan.other", 1))
    session = open_session(model, tiny.library, other.library)
    z, z1 = session.run(["z", "z1"], random_inputs(2, 2))
    np.testing.assert_array_equal(z, z1)


def test_two_sessions_share_one_registration_of_the_weights(tiny: Built) -> None:
    sessions = [open_session(add_model(weight=W * factor), tiny.library) for factor in (1, 2)]
    inputs = random_inputs(2, 2)
    first, second = (session.run(["y"], inputs)[0] for session in sessions)
    np.testing.assert_allclose(first - second, np.broadcast_to(W, first.shape), rtol=SAME)


def test_a_cpu_without_the_features_is_refused_before_anything_runs() -> None:
    isa = find_isa("native")
    project = tiny_project()
    project["CMakeLists.txt"] = project["CMakeLists.txt"].replace('_FEATURES=\\"', '_FEATURES=\\"avx1024 ')
    built = build_tiny(project)
    with pytest.raises(Exception, match=f"built for {re.escape(isa.name)} CPUs, but this CPU has no avx1024; rebuild"):
        open_session(add_model(), built.library)


def test_a_library_for_a_newer_cpu_names_what_is_missing() -> None:
    isa = ISAS["x86-64-v4"]
    missing = missing_features(isa)
    if find_isa("native").machine != isa.machine or not missing:
        pytest.skip("this machine runs x86-64-v4 code, or is no x86-64")
    built = build_library(tiny_project(isa.name), name="tiny", isa=isa)
    with pytest.raises(Exception, match=f"built for x86-64-v4 CPUs, but this CPU has no {missing[0]}"):
        open_session(add_model(), built.library)


def test_an_old_onnx_runtime_is_refused(tiny: Built) -> None:
    said: list[bytes] = []
    create_status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda _, text: said.append(text) or 1
    )
    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p))
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
        lambda version: ctypes.addressof(table) if version <= 17 else 0
    )
    version = ctypes.create_string_buffer(b"1.17.3")
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(function, ctypes.c_void_p) for function in (get_api, get_version)))
    register = ctypes.CDLL(str(tiny.library)).RegisterCustomOps
    register.restype = ctypes.c_void_p
    assert register(None, base) == 1
    assert said == [b"this library needs ONNX Runtime 1.18 or newer, this is 1.17.3"]


def test_a_library_for_an_older_cpu_runs() -> None:
    if find_isa("native").machine != "x86_64":
        pytest.skip("this machine is no x86-64")
    inputs = random_inputs(2, 2)
    built = build_library(tiny_project("x86-64-v2"), name="tiny", isa=ISAS["x86-64-v2"])
    np.testing.assert_array_equal(
        open_session(add_model(), built.library).run(None, inputs)[0], add_reference(**inputs)[0]
    )
