"""Mutations of the graph: edges, nodes, their order and names, and what goes in and out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tools.fuzz.parts import all_graphs, all_nodes, pick, value_names

_INSERTED = ("Identity", "Squeeze", "Neg", "Not", "Cast", "Abs", "Flatten", "Dropout", "Shape", "NonZero", "Round")
_OPS = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "And", "Equal", "MatMul", "Gemm", "Concat", "Where"),
    *("Relu", "Exp", "Sqrt", "Log", "Floor", "Sign", "Softmax", "ReduceSum", "ReduceMax", "ArgMin", "Transpose"),
    *("Reshape", "Squeeze", "Unsqueeze", "Gather", "Slice", "Expand", "Tile", "Identity", "Cast", "Split", "Einsum"),
    *("LayerNormalization", "Gelu", "LSTM", "Conv", "Nothing", "", "Resize", "CumSum", "Range", "ScatterND", "Trilu"),
)


def _reading(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in all_nodes(model) if node.input]


def rewire_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node, name = pick(_reading(model), rng), pick(value_names(model), rng)
    if node is not None and name:
        node.input[int(rng.integers(len(node.input)))] = name


def swap_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = pick([node for node in _reading(model) if len(node.input) > 1], rng)
    if node is not None:
        node.input[:] = [str(name) for name in rng.permutation(np.array(node.input, object))]


def drop_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """The last one goes, or any becomes empty."""
    node = pick(_reading(model), rng)
    if node is None:
        return
    if rng.random() < 0.5:
        del node.input[-1]
    else:
        node.input[int(rng.integers(len(node.input)))] = ""


def add_input(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node, name = pick(all_nodes(model), rng), pick(value_names(model), rng)
    if node is not None and name:
        node.input.append(name)


def delete_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Those that read it read what it read, or nothing that exists."""
    graph = pick(all_graphs(model), rng)
    node = pick(graph.node, rng) if graph is not None else None
    if graph is None or node is None:
        return
    if node.input and node.output and rng.random() < 0.7:
        old, new = node.output[0], node.input[0]
        for other in graph.node:
            other.input[:] = [new if name == old else name for name in other.input]
    graph.node.remove(node)


def repeat_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """With the same outputs, or with new ones that are outputs of the model."""
    graph = pick(all_graphs(model), rng)
    node = pick(graph.node, rng) if graph is not None else None
    if graph is None or node is None:
        return
    copy = graph.node.add()
    copy.CopyFrom(node)
    if rng.random() < 0.7:
        copy.output[:] = [f"{name}_again" for name in node.output]
        graph.output.extend(helper.make_tensor_value_info(name, 1, None) for name in copy.output[:1])


def insert_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """A node of one input between a value and its readers."""
    graph = model.graph
    at = int(rng.integers(len(graph.node) + 1)) if graph.node else 0
    op, old = pick(_INSERTED, rng), pick([name for node in graph.node[:at] for name in node.output if name], rng)
    if op is None or not old:
        return
    new = f"{old}_{op}"
    attributes = {"to": int(rng.choice([1, 6, 7, 9, 10, 11, 16]))} if op == "Cast" else {}
    for node in graph.node[at:]:
        node.input[:] = [new if name == old else name for name in node.input]
    graph.node.insert(at, helper.make_node(op, [old], [new], name=f"inserted_{at}", **attributes))


def change_op(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = pick(all_nodes(model), rng)
    if node is not None:
        node.op_type = pick(_OPS, rng) or ""


def change_domain(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = pick(all_nodes(model), rng)
    if node is not None:
        node.domain = pick(("", "com.microsoft", "ai.onnx.ml", "local", "nowhere", "ai.onnx"), rng) or ""


def move_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Out of order, in most cases."""
    graph = pick(all_graphs(model), rng)
    node = pick(graph.node, rng) if graph is not None else None
    if graph is not None and node is not None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        graph.node.remove(node)
        graph.node.insert(int(rng.integers(len(graph.node) + 1)), copy)


def rename_value(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """An output of a node takes the name of another value, or none."""
    node, name = pick([node for node in all_nodes(model) if node.output], rng), pick([*value_names(model), ""], rng)
    if node is not None and name is not None:
        node.output[int(rng.integers(len(node.output)))] = name


def rename_nodes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """All have one name, or none."""
    name = pick(("", "same", "/a/b"), rng) or ""
    for node in all_nodes(model):
        node.name = name


def change_outputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """An output goes, comes twice, or is another value: one inside, an input, an initializer."""
    outputs, kind = model.graph.output, rng.integers(3)
    if kind == 0 and outputs:
        del outputs[int(rng.integers(len(outputs)))]
    elif kind == 1 and outputs:
        outputs.add().CopyFrom(outputs[0])
    else:
        name = pick(value_names(model), rng)
        if name:
            outputs.append(helper.make_tensor_value_info(name, int(rng.choice([1, 1, 1, 7])), None))


def change_inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """An input goes, comes twice, or one that nothing reads is there."""
    inputs, kind = model.graph.input, rng.integers(3)
    if kind == 0 and inputs:
        del inputs[int(rng.integers(len(inputs)))]
    elif kind == 1 and inputs:
        inputs.add().CopyFrom(inputs[0])
    else:
        dims = [pick(("n", 2, "unread"), rng) for _ in range(rng.integers(0, 3))]
        inputs.append(helper.make_tensor_value_info("unread", int(rng.choice([1, 7, 8, 9, 10])), dims))
