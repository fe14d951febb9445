"""Reads and checks a model.

`load_model` returns a copy that can be changed freely; the caller's object or file is never modified, and weights are
not read until their values are needed. Anything wrong with the input raises `ModelError`.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ortisan.converter.passes.quiet import quiet_libraries
from ortisan.converter.read.check import check_structure
from ortisan.converter.read.depth import check_depth
from ortisan.converter.read.payload import check_payload
from ortisan.errors import ModelError, OrtisanError
from ortisan.registry.dtypes import Array
from ortisan.registry.surprise import Surprise, surprises

Tensor = ir.TensorProtocol

# The tag of a flatbuffer in ORT's own format, at byte 4.
_ORT_FORMAT_TAG = b"ORTM"
_MAX_PROTOBUF_BYTES = 2**31 - 1


def load_model(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> ir.Model:
    """Returns a checked, topologically sorted copy of `model`. Raises `ModelError` when it is not valid ONNX.

    A value that is a map, which onnx-ir has no type for, has no type in the copy; ONNX Runtime finds it again.
    """
    try:
        with surprises(OrtisanError), quiet_libraries():
            return _load(model)
    except Surprise as surprise:
        raise ModelError(f"{_name(model)} can't be read as an ONNX model ({surprise})") from surprise


def _name(model: object) -> str:
    return f"'{model}'" if isinstance(model, (str, os.PathLike)) else "the model"


def _load(model: str | os.PathLike[str] | onnx.ModelProto | ir.Model) -> ir.Model:
    if isinstance(model, ir.Model):
        loaded, folder = _clone(model), None
    elif isinstance(model, onnx.ModelProto):
        loaded, folder = _deserialize(model, "the model"), None
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        loaded, folder = _deserialize(_read(path), f"'{path}'"), path
    elif isinstance(held := getattr(model, "model", None), ir.Model):
        loaded, folder = _clone(held), None  # a torch.onnx.ONNXProgram
    else:
        raise ModelError(f"expected a path, an onnx.ModelProto or an onnx_ir.Model, got a {type(model).__name__}")
    _normalize_domains(loaded)
    _forget_negative_dims(loaded)
    check_structure(loaded)
    _own_tensors(loaded, folder)
    _trust_tensors(loaded)
    return loaded


def copy_model(model: ir.Model) -> ir.Model:
    """Copies a loaded model; the copy can be changed freely, too."""
    copy = model.clone()
    _own_tensors(copy, None)
    return copy


def external_files(model: ir.Model) -> list[Path]:
    """The files that hold weights of a loaded model, in the order of their names."""
    tensors = (slot.tensor for slot in _tensor_slots(model))
    return sorted({Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)})


def _own_tensors(model: ir.Model, folder: Path | None) -> None:
    for slot in _tensor_slots(model):
        slot.replace(_own(slot.tensor, slot.name, folder))


def _read(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError(f"'{path}' does not exist")
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder, expected an ONNX file")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size > _MAX_PROTOBUF_BYTES:
                raise ModelError(f"'{path}' is larger than 2 GB, which protobuf can't hold; save it with external data")
            if not (size and path.is_file()):
                return _parse(file.read(), path)
            # Mapped, a file is not copied before protobuf makes its own copy.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                return _parse(data, path)
    except OSError as error:
        raise ModelError(f"'{path}' can't be read: {error.strerror or error}") from error


def _parse(data: bytes | memoryview, path: Path) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"'{path}' is empty, expected an ONNX file")
    if bytes(data[4:8]) == _ORT_FORMAT_TAG:
        raise ModelError(f"'{path}' is in ORT format; pass the ONNX file that it was converted from")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"'{path}' is not an ONNX file, or is truncated") from error
    return proto


def _deserialize(proto: onnx.ModelProto, what: str) -> ir.Model:
    if not proto.HasField("graph") or proto.ir_version <= 0:
        raise ModelError(f"{what} is not an ONNX model: it has no {'graph' if proto.ir_version > 0 else 'IR version'}")
    check_depth(proto.graph)
    graph = proto.graph
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ModelError(f"initializer '{name}' is sparse; store it as a dense tensor")
    for value in graph.input:
        if _is_map(value.type):
            raise ModelError(
                f"input '{value.name}' is a map, and inputs must be tensors, sequences or optionals; export the model "
                "without DictVectorizer, with a tensor as its input"
            )
    if any(_is_map(value.type) for value in (*graph.output, *graph.value_info)):
        proto = _without_maps(proto)
        graph = proto.graph
    for tensor in graph.initializer:
        _check_external_entries(tensor)
    inputs = {value.name for value in graph.input}
    initializers = Counter(tensor.name for tensor in graph.initializer)
    names = Counter(name for name in initializers.elements() if initializers[name] > 1 or name not in inputs)
    names.update(value.name for value in graph.input)
    names.update(name for node in graph.node for name in node.output if name)
    for name, count in names.items():
        if count > 1:
            raise ModelError(f"value '{name}' is defined {count} times in graph '{graph.name}'")
    _check_outputs(graph)
    try:
        return ir.from_proto(proto)
    except Exception as error:
        raise ModelError(f"{what} can't be read as an ONNX model: {_root_cause(error)}") from error


def _check_outputs(graph: onnx.GraphProto) -> None:
    """An output may be listed twice, but it has one type."""
    types: dict[str, onnx.TypeProto] = {}
    for value in graph.output:
        kind = types.setdefault(value.name, value.type).tensor_type.elem_type
        if kind != value.type.tensor_type.elem_type:
            raise ModelError(f"output '{value.name}' is listed twice, with different types; list it once")


def _is_map(kind: onnx.TypeProto) -> bool:
    """A map, or a sequence of maps."""
    while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind.optional_type.elem_type
    return bool(kind.HasField("map_type"))


def _without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which maps have no type."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in (*copy.graph.output, *copy.graph.value_info):
        if _is_map(value.type):
            value.ClearField("type")
    return copy


def _check_external_entries(tensor: onnx.TensorProto) -> None:
    for entry in tensor.external_data:
        if entry.key in ("offset", "length") and not entry.value.isdecimal():
            raise ModelError(
                f"external data of initializer '{tensor.name}' has {entry.key} '{entry.value}', expected a number >= 0"
            )


def _clone(model: ir.Model) -> ir.Model:
    check_depth(model.graph)
    try:
        return model.clone()
    except RuntimeError as error:
        check_structure(model, sort=False)
        raise ModelError(
            "the nodes of the onnx_ir.Model are not in topological order or have a cycle; try model.graph.sort()"
        ) from error


def _root_cause(error: BaseException) -> str:
    """The first line of the innermost exception, short enough for one sentence."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _normalize_domains(model: ir.Model) -> None:
    """Renames the opset import "ai.onnx" to "", as onnx-ir does with the nodes' domains."""
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if "ai.onnx" in imports:
            version = imports.pop("ai.onnx")
            imports.setdefault("", version)


def _forget_negative_dims(model: ir.Model) -> None:
    """Some exporters declare an unknown dim as -1, and ONNX Runtime takes it for that."""
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs, *(value for node in graph for value in node.outputs)):
            if value.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in value.shape):
                value.shape = ir.Shape([None if isinstance(dim, int) and dim < 0 else dim for dim in value.shape])


def _trust_tensors(model: ir.Model) -> None:
    """What a constant is, its tensor says; what is declared beside it may be stale."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and not value.is_graph_input():
                value.type, value.shape = (
                    ir.TensorType(value.const_value.dtype),
                    ir.Shape(value.const_value.shape.numpy()),
                )


class _TensorSlot:
    """A place in the model that holds a tensor: an initializer, or a tensor attribute of a node."""

    def __init__(self, owner: ir.Value | ir.Node, tensor: Tensor, attribute: str = "") -> None:
        self.owner, self.tensor, self.attribute = owner, tensor, attribute

    @property
    def name(self) -> str:
        if isinstance(self.owner, ir.Value):
            return f"initializer '{self.owner.name}'"
        return f"attribute '{self.attribute}' of node '{self.owner.name}' ({self.owner.op_type})"

    def replace(self, tensor: Tensor) -> None:
        if isinstance(self.owner, ir.Value):
            self.owner.const_value = tensor
        else:
            self.owner.attributes[self.attribute] = ir.AttrTensor(self.attribute, tensor)


def _tensor_slots(model: ir.Model) -> Iterator[_TensorSlot]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield _TensorSlot(value, value.const_value)
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for part in graphs:
        for node in ir.traversal.RecursiveGraphIterator(part):
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    yield _TensorSlot(node, attribute.value, name)


def _own(tensor: Tensor, what: str, model_path: Path | None) -> Tensor:
    """Wraps a tensor so that it can be renamed independently of the caller's; its values are not read yet."""
    check_payload(tensor, what)
    if isinstance(tensor, ir.ExternalTensor):
        return _locate(tensor, what, model_path)
    if isinstance(tensor, ir.StringTensor):
        return tensor
    return ir.LazyTensor(_shared(tensor), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)  # type: ignore[arg-type]


def _shared(tensor: Tensor) -> Callable[[], Tensor]:
    """Reads a tensor once for all who use it at a time: protobuf copies the bytes whenever it is asked for them."""
    held: weakref.ref[Array] | None = None

    def read() -> Tensor:
        nonlocal held
        array = held() if held is not None else None
        if array is None:
            array = tensor.numpy()
            held = weakref.ref(array)
        return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)

    return read


def _locate(tensor: ir.ExternalTensor, what: str, model_path: Path | None) -> ir.ExternalTensor:
    """Finds the external data and checks that all of it is there, beside the model's file or its link's target."""
    location = os.fspath(tensor.location)
    base = model_path.parent if model_path is not None else Path(tensor.base_dir or ".")
    if os.path.isabs(location):
        raise ModelError(f"external data of {what} has the absolute path '{location}'; it must lie beside the model")
    path = (base / location).resolve()
    folders = [base.resolve()]
    if model_path is not None:
        folders.append(model_path.resolve().parent)
    inside = os.path.normpath(location).split(os.sep)[0] != os.pardir
    folder = next((folder for folder in folders if inside and path.is_relative_to(folder)), None)
    if folder is None:
        raise ModelError(f"external data of {what} ('{location}') lies outside the model's folder '{base}'")
    offset = tensor.offset or 0
    length = tensor.nbytes if tensor.length is None else tensor.length
    if offset < 0 or length < 0:
        raise ModelError(f"external data of {what} has a negative {'offset' if offset < 0 else 'length'}")
    if length < tensor.nbytes:
        raise ModelError(
            f"external data of {what} is declared as {length} bytes, but its type {tensor.dtype.name} and shape "
            f"{list(tensor.shape)} need {tensor.nbytes}"
        )
    if not path.is_file():
        raise ModelError(f"external data file '{path}' of {what} does not exist")
    status = path.stat()
    if status.st_size < offset + length:
        raise ModelError(
            f"external data file '{path}' is too short: it has {status.st_size} bytes, {what} needs "
            f"bytes {offset} to {offset + length}"
        )
    if status.st_nlink > 1:
        raise ModelError(
            f"external data file '{path}' of {what} is a hard link, which onnx-ir refuses to read; copy it"
        )
    return ir.ExternalTensor(
        os.path.relpath(path, folder),
        offset=offset,
        length=length,
        dtype=tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir=folder,
    )
