"""Loading: every way to pass a model, and one clear sentence for every way it can be bad."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from ortisan.converter.read.load import copy_model, load_model
from ortisan.errors import ModelError
from tests.models.mlp import mlp
from tests.models.text import random_feeds, run_ort, text_model

SIGNATURE = "(float[N,4] x) => (float[N,4] y)"


def test_path_proto_and_ir_model_give_the_same_graph(tmp_path: Path) -> None:
    proto = mlp()
    onnx.save(proto, tmp_path / "mlp.onnx")
    feeds = random_feeds(proto, batch=5)
    expected = run_ort(proto, feeds)[0]
    for source in (tmp_path / "mlp.onnx", str(tmp_path / "mlp.onnx"), proto, ir.from_proto(proto)):
        np.testing.assert_array_equal(run_ort(ir.to_proto(load_model(source)), feeds)[0], expected)


@pytest.mark.parametrize("convert", [lambda proto: proto, ir.from_proto], ids=["proto", "ir"])
def test_the_callers_model_is_not_changed(convert: Callable[[onnx.ModelProto], onnx.ModelProto | ir.Model]) -> None:
    proto = mlp()
    before = proto.SerializeToString()
    model = load_model(convert(proto))
    for value in list(model.graph.initializers.values()):
        value.name = f"{value.name}_renamed"
    for node in list(model.graph):
        node.op_type = "Nothing"
    assert proto.SerializeToString() == before


def test_unsorted_nodes_are_sorted_and_no_nodes_are_fine() -> None:
    proto = text_model(SIGNATURE, "a = Relu(x) y = Abs(a)")
    proto.graph.node.insert(0, proto.graph.node.pop())
    assert [node.op_type for node in load_model(proto).graph] == ["Relu", "Abs"]
    assert not list(load_model(text_model("(float[N] x) => (float[N] x)", "")).graph)


def test_contrib_custom_and_early_layer_norm_nodes_pass() -> None:
    body = "a = com.microsoft.Gelu(x) b = custom.Thing<what = 3>(a) y = LayerNormalization(b, s)"
    model = load_model(text_model(SIGNATURE, body, opset=12, constants={"s": np.ones(4, np.float32)}))
    assert [node.domain for node in model.graph] == ["com.microsoft", "custom", ""]


def test_domain_ai_onnx_is_the_default_domain() -> None:
    proto = text_model(SIGNATURE, "y = Relu(x)")
    proto.opset_import[0].domain = "ai.onnx"
    proto.graph.node[0].domain = "ai.onnx"
    assert load_model(proto).opset_imports[""] == 17


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, this is not a model\n" * 20, "is not an ONNX file, or is truncated"),
        (np.random.default_rng(0).bytes(4096), "is not an ONNX file, or is truncated"),
        (mlp().SerializeToString()[:-100], "is not an ONNX file, or is truncated"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "is not an ONNX model: it has no graph"),
        (b"\x18\x00\x00\x00ORTM" + bytes(64), "is in ORT format"),
    ],
    ids=["empty", "text", "random", "truncated", "no graph", "ort format"],
)
def test_bad_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_folder_and_wrong_type(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="got a int"):
        load_model(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a = Add(x, b) b = Relu(a) y = Abs(b)", "graph 'g' has a cycle"),
        ("y = Add(x, nowhere)", "'' \\(Add\\)|type Add uses value 'nowhere', which nothing produces"),
        ("a = Relu(x)", "graph output 'y' is not produced"),
        ("y = Relu(x) y = Abs(x)", "value 'y' is defined 2 times"),
        ("x = Relu(x) y = Abs(x)", "value 'x' is defined 2 times"),
        ("y = other.domain.Thing(x)", "domain 'other.domain', which the model does not import"),
        ("y = Relu(x, x, x)", r"\(Relu\) is invalid: .*"),
        ("y = Relu<speed = 3>(x)", r"\(Relu\) is invalid: Unrecognized attribute: speed"),
        ("y = Concat(x, x)", r"\(Concat\) is invalid: Required attribute 'axis' is missing"),
    ],
)
def test_bad_graph(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(text_model(SIGNATURE, body))
    assert "\n" not in str(caught.value)


def test_bad_graph_as_ir_model() -> None:
    cyclic = text_model(SIGNATURE, "a = Relu(x) y = Abs(a)")
    model = ir.from_proto(cyclic)
    model.graph[0].replace_input_with(0, model.graph.outputs[0])
    with pytest.raises(ModelError, match=r"not in topological order or have a cycle"):
        load_model(model)


def test_bad_proto_details() -> None:
    nameless = text_model(SIGNATURE, "y = Relu(x)")
    nameless.graph.node[0].op_type = ""
    with pytest.raises(ModelError, match="has no op type"):
        load_model(nameless)
    future = text_model(SIGNATURE, "y = Relu(x)", opset=999)
    with pytest.raises(ModelError, match="needs opset 999"):
        load_model(future)
    short = text_model(SIGNATURE, "y = Add(x, w)", constants={"w": np.ones(4, np.float32)})
    short.graph.initializer[0].raw_data = b"123"
    with pytest.raises(ModelError, match=r"initializer 'w' has 3 bytes of data.*need 16"):
        load_model(short)
    twice = text_model(SIGNATURE, "y = Add(x, w)", constants={"w": np.ones(4, np.float32)})
    twice.graph.initializer.append(twice.graph.initializer[0])
    with pytest.raises(ModelError, match="value 'w' is defined 2 times"):
        load_model(twice)


def _external(folder: Path, location: str = "w.bin", offset: str = "0", length: str = "16") -> Path:
    proto = text_model(SIGNATURE, "y = Add(x, w)", constants={"w": np.arange(4, dtype=np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    (folder / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    model = load_model(_external(tmp_path))
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4, dtype=np.float32))


def test_external_data_beside_the_target_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    real = _external(tmp_path / "blobs")
    for name in (real.name, "w.bin"):
        (tmp_path / "snapshot" / name).symlink_to(tmp_path / "blobs" / name)
    tensor = load_model(tmp_path / "snapshot" / real.name).graph.initializers["w"].const_value
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"location": "gone.bin"}, "gone.bin' of initializer 'w' does not exist"),
        ({"location": "/etc/hostname"}, "has the absolute path '/etc/hostname'"),
        ({"location": "../w.bin"}, "lies outside the model's folder"),
        ({"location": "sub/../../w.bin"}, "lies outside the model's folder"),
        ({"offset": "8"}, "is too short: it has 16 bytes, initializer 'w' needs bytes 8 to 24"),
        ({"offset": "-4"}, "has offset '-4', expected a number >= 0"),
        ({"length": "-4"}, "has length '-4', expected a number >= 0"),
        ({"length": "8"}, "is declared as 8 bytes, but its type FLOAT and shape .4. need 16"),
        ({"offset": "many"}, "has offset 'many', expected a number >= 0"),
    ],
)
def test_bad_external_data(tmp_path: Path, options: dict[str, str], message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(ModelError, match=message):
        load_model(_external(folder, **options))


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = _external(folder)
    (folder / "w.bin").rename(tmp_path / "w.bin")
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        load_model(path)
    (folder / "w.bin").unlink()
    os.link(tmp_path / "w.bin", folder / "w.bin")
    with pytest.raises(ModelError, match="is a hard link"):
        load_model(path)


def test_external_data_of_a_proto_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(_external(tmp_path), load_external_data=False)
    monkeypatch.chdir(tmp_path)
    assert load_model(proto).graph.initializers["w"].const_value.numpy()[3] == 3


def test_map_inputs_and_sparse_initializers_are_refused_in_a_sentence() -> None:
    proto = text_model(SIGNATURE, "y = Relu(x)")
    proto.graph.input[0].type.map_type.key_type = TensorProto.INT64
    with pytest.raises(ModelError, match=r"input 'x' is a map.*with a tensor as its input"):
        load_model(proto)
    sparse = text_model(SIGNATURE, "y = Relu(x)")
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "s_indices")
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    with pytest.raises(ModelError, match="initializer 's' is sparse"):
        load_model(sparse)


def test_an_output_that_is_a_map_has_no_type_and_the_model_stays() -> None:
    listed = text_model(SIGNATURE, "y = Relu(x)")
    listed.graph.output[0].type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    loaded = load_model(listed)
    assert loaded.graph.outputs[0].type is None
    assert listed.graph.output[0].type.HasField("sequence_type"), "the caller's model is never changed"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m, "ir_version", 2**40), "IR version"),
        (lambda m: setattr(m.opset_import[0], "version", -3), "opset -3"),
        (lambda m: _floats(m, [1.0]), r"initializer 'w' has 1 elements of data.*need 4"),
        (lambda m: m.graph.initializer[0].dims.extend([0, 2**62]), "no array can have"),
        (lambda m: _wrong_constant(m, onnx.TensorProto(dims=[1])), "has no element type"),
        (lambda m: _wrong_constant(m, onnx.GraphProto(name="g")), "of type GRAPH, expected TENSOR"),
        (lambda m: _nest(m, 1500), "nested in each other more than 50"),
    ],
)
def test_what_would_break_a_later_step_is_a_model_error(
    change: Callable[[onnx.ModelProto], object], message: str
) -> None:
    model = text_model(SIGNATURE, "y = Add(x, w)", constants={"w": np.ones(4, np.float32)})
    change(model)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert "\n" not in str(caught.value)


def _floats(model: onnx.ModelProto, numbers: list[float]) -> None:
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].float_data.extend(numbers)


def _wrong_constant(model: onnx.ModelProto, value: onnx.TensorProto | onnx.GraphProto) -> None:
    node = model.graph.node.add(op_type="Constant", output=["unused"])
    attribute = node.attribute.add(name="value")
    if isinstance(value, onnx.TensorProto):
        attribute.type = onnx.AttributeProto.TENSOR
        attribute.t.CopyFrom(value)
    else:
        attribute.type = onnx.AttributeProto.GRAPH
        attribute.g.CopyFrom(value)


def _nest(model: onnx.ModelProto, depth: int) -> None:
    graph = model.graph
    for level in range(depth):
        attribute = graph.node.add(op_type="If", input=["x"], output=[f"o{level}"]).attribute.add(name="then_branch")
        attribute.type = onnx.AttributeProto.GRAPH
        graph = attribute.g


def test_a_negative_dim_is_an_unknown_one() -> None:
    model = text_model(SIGNATURE, "y = Relu(x)")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    shape = load_model(model).graph.inputs[0].shape
    assert shape is not None
    assert shape[0] == ir.SymbolicDim(None)


def test_an_output_that_is_listed_twice_has_one_type() -> None:
    model = text_model("(float[n] x) => (float[n] y)", "y = Exp(x)")
    model.graph.output.add().CopyFrom(model.graph.output[0])
    assert len(load_model(model).graph.outputs) == 2
    model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    with pytest.raises(ModelError, match="output 'y' is listed twice, with different types"):
        load_model(model)


def test_a_constant_is_what_its_tensor_says() -> None:
    """A stale declaration would make it another type and rank."""
    model = text_model("(float[n,4] x) => (float[n,4] y)", "y = Reshape(x, s)", constants={"s": np.array([-1, 4])})
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, []))
    value = load_model(model).graph.initializers["s"]
    assert value.dtype == ir.DataType.INT64
    assert value.shape == ir.Shape([2])


def test_a_weight_is_read_once_for_all_who_hold_it(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    loaded = load_model(tmp_path / "mlp.onnx")
    held = [
        tensor.numpy()
        for model in (loaded, copy_model(loaded))
        if (tensor := next(iter(model.graph.initializers.values())).const_value) is not None
    ]
    assert len(held) == 2
    assert held[0] is held[1]


def test_a_file_that_is_no_file_of_the_disk_can_be_read() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as end:
        end.write(mlp().SerializeToString())
    try:
        assert len(load_model(f"/dev/fd/{read}").graph) > 0
    finally:
        os.close(read)
