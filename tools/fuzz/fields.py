"""Mutations of fields: attributes, declared types and shapes, versions and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper

from tools.fuzz.parts import all_graphs, all_nodes, all_values, pick, tensor_types, value_names

_INTS = (-(2**63), -(2**31), -3, -2, -1, 0, 1, 2, 3, 5, 7, 100, 2**31, 2**62, 2**63 - 1)
_FLOATS = (0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf"), -float("inf"), 0.5, 2.0)
_TEXTS = (b"", b"NOTSET", b"SAME_UPPER", b"constant", b"reflect", b"wrap", b"linear", b"\xff\xfe", b"add", b"tanh")
_DIMS = (0, 1, 2, 3, 5, 7, 16, -1, 2**31, 2**62)
_ODD_NAMES = ("", " ", "x", "y", "a b", "*/ int", '"; #', "\n", "é", "0", "n" * 300, "..", "/a/b")


def _attribute(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[onnx.NodeProto, AttributeProto] | None:
    found = [(node, attribute) for node in all_nodes(model) for attribute in node.attribute]
    return pick(found, rng)


def drop_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    found = _attribute(model, rng)
    if found:
        found[0].attribute.remove(found[1])


def change_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    found = _attribute(model, rng)
    if not found:
        return
    attribute = found[1]
    if rng.random() < 0.08:
        attribute.type = int(rng.integers(0, 15))  # type: ignore[assignment]
    elif attribute.type == AttributeProto.INT:
        attribute.i = pick(_INTS, rng) or 0
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = pick(_FLOATS, rng) or 0.0
    elif attribute.type == AttributeProto.STRING:
        attribute.s = pick(_TEXTS, rng) or b""
    elif attribute.type == AttributeProto.INTS:
        _change_list(attribute.ints, _INTS, rng)
    elif attribute.type == AttributeProto.FLOATS:
        _change_list(attribute.floats, _FLOATS, rng)


def _change_list(numbers: Any, choices: tuple[Any, ...], rng: np.random.Generator) -> None:
    kind = rng.integers(4)
    if kind == 0 or not numbers:
        numbers.append(pick(choices, rng))
    elif kind == 1:
        numbers.pop()
    elif kind == 2:
        numbers[int(rng.integers(len(numbers)))] = pick(choices, rng)
    else:
        shuffled = list(rng.permutation(np.array(numbers)).tolist())
        del numbers[:]
        numbers.extend(shuffled)


def add_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """One that the op has in another version, or nowhere, or has already."""
    node = pick(all_nodes(model), rng)
    name = pick(
        ("axis", "axes", "keepdims", "to", "perm", "alpha", "transA", "mode", "unknown", "epsilon", "value"), rng
    )
    if node is not None and name:
        value = pick((1, 0, -1, [0], [1, 0], 0.5, "text"), rng)
        node.attribute.append(helper.make_attribute(name, value))


def change_dim(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    dims = [dim for each in tensor_types(model) for dim in each.shape.dim]
    dim = pick(dims, rng)
    if dim is None:
        return
    kind = rng.integers(3)
    if kind == 0:
        dim.dim_value = pick(_DIMS, rng) or 0
    elif kind == 1:
        dim.dim_param = pick(("n", "t", "other", "", "n*2", "n + 1", "-1", "é"), rng) or ""
    else:
        dim.Clear()


def change_rank(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    kind = pick(tensor_types(model), rng)
    if kind is None:
        return
    choice = rng.integers(3)
    if choice == 0:
        kind.ClearField("shape")
    elif choice == 1:
        kind.shape.dim.add().dim_value = int(rng.integers(0, 4))
    elif kind.shape.dim:
        del kind.shape.dim[-1]


def change_type(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    value = pick(all_values(model), rng)
    if value is None:
        return
    if rng.random() < 0.15:
        inner = helper.make_tensor_type_proto(1, None)
        make = pick((helper.make_sequence_type_proto, helper.make_optional_type_proto), rng)
        value.type.CopyFrom(make(inner) if make and rng.random() < 0.8 else onnx.TypeProto())
    else:
        value.type.tensor_type.elem_type = int(rng.integers(0, 24))


def stale_value_info(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """A type and shape for a value, true or not."""
    graph, name = pick(all_graphs(model), rng), pick(value_names(model), rng)
    if graph is not None and name:
        shape = (
            None if rng.random() < 0.2 else [pick((1, 2, 3, 4, 8, "n", "q"), rng) for _ in range(rng.integers(0, 4))]
        )
        graph.value_info.append(helper.make_tensor_value_info(name, int(rng.choice([1, 1, 1, 7, 10, 11])), shape))


def change_opset(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    imports = [*model.opset_import, *(each for function in model.functions for each in function.opset_import)]
    chosen = pick(imports, rng)
    if chosen is None:
        return
    if rng.random() < 0.15:
        del model.opset_import[int(rng.integers(len(model.opset_import)))]
    elif rng.random() < 0.1:
        chosen.version = pick(_INTS, rng) or 0
    else:
        chosen.version = int(rng.integers(1, 27))


def change_ir_version(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    model.ir_version = int(pick((0, 1, 2, 3, 4, 7, 9, 10, 11, 13, 99, 2**40, -1), rng) or 0)


def odd_name(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """The name of the graph, a dim, an attribute, or a value wherever it occurs."""
    name = pick(_ODD_NAMES, rng) or ""
    kind = rng.integers(3)
    if kind == 0:
        model.graph.name = name
    elif kind == 1:
        found = _attribute(model, rng)
        if found:
            found[1].name = name
    else:
        old = pick(value_names(model), rng)
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [name if each == old else each for each in names]
        for part in (*model.graph.input, *model.graph.output, *model.graph.initializer):
            if part.name == old:
                part.name = name
