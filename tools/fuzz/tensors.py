"""Mutations of constants: their values, shapes, element types and bytes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.parts import all_graphs, all_tensors, pick

_EXTREME = (0, 1, -1, 2, 7, 127, -128, 2**31 - 1, -(2**31), 2**62, -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-40, 1e30, -1e30, float("nan"), float("inf"), -float("inf"))


def change_values(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """One element or all of them."""
    tensor = pick(all_tensors(model), rng)
    if tensor is None or tensor.data_type == TensorProto.STRING:
        return
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError):
        return
    choices: tuple[float, ...] = _FLOATS if array.dtype.kind == "f" else _EXTREME
    value = np.array(pick(choices, rng) or 0)
    with np.errstate(all="ignore"):
        if array.size and rng.random() < 0.7:
            array.reshape(-1)[int(rng.integers(array.size))] = value.astype(array.dtype)
        else:
            array = np.full_like(array, value.astype(array.dtype))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def change_shape(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Other dims over the same bytes, of as many elements or not."""
    tensor = pick(all_tensors(model), rng)
    if tensor is None:
        return
    dims = list(tensor.dims)
    kind = rng.integers(6)
    if kind == 0:
        dims = dims[::-1]
    elif kind == 1:
        dims = [int(np.prod(dims))] if dims else [1]
    elif kind == 2:
        dims.insert(int(rng.integers(len(dims) + 1)), 1)
    elif kind == 3:
        dims = []
    elif kind == 4 and dims:
        dims[int(rng.integers(len(dims)))] = pick((0, 1, 2, 5, -1, 2**40), rng) or 0
    else:
        dims = [0, *dims]
    tensor.dims[:] = dims


def change_element_type(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """The label alone, or the elements too."""
    tensor = pick(all_tensors(model), rng)
    if tensor is None:
        return
    if rng.random() < 0.4:
        tensor.data_type = int(rng.integers(0, 26))
        return
    try:
        array = numpy_helper.to_array(tensor)
        with np.errstate(all="ignore"):
            changed = array.astype(
                pick((np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_), rng)
            )
    except (ValueError, TypeError):
        return
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def spoil_payload(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    tensor = pick(all_tensors(model), rng)
    if tensor is None:
        return
    kind = rng.integers(4)
    if kind == 0:
        tensor.raw_data = tensor.raw_data[:-1]
    elif kind == 1:
        tensor.raw_data += b"\0\0\0\0"
    elif kind == 2:
        tensor.ClearField("raw_data")
        tensor.float_data.append(1.0)
    else:
        place = pick(("data.bin", "../data.bin", "/etc/hostname", ""), rng) or ""
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)


def drop_tensor(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """It goes, or is there twice."""
    graph = pick([graph for graph in all_graphs(model) if graph.initializer], rng)
    tensor = pick(graph.initializer, rng) if graph is not None else None
    if graph is None or tensor is None:
        return
    if rng.random() < 0.5:
        graph.initializer.remove(tensor)
    else:
        graph.initializer.add().CopyFrom(tensor)


def make_it_an_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """An initializer that is an input too."""
    tensor = pick(model.graph.initializer, rng)
    if tensor is not None:
        dims = list(tensor.dims) if rng.random() < 0.7 else [f"d{axis}" for axis in range(len(tensor.dims))]
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))
