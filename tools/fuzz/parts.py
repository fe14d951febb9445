"""The parts of a model that mutations choose from, those in bodies of control flow and functions included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx

T = TypeVar("T")


def pick(items: Sequence[T], rng: np.random.Generator) -> T | None:
    return items[int(rng.integers(len(items)))] if items else None


def all_graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    return list(_graphs(model.graph))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def all_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    inside = [node for function in model.functions for node in function.node]
    return [node for graph in all_graphs(model) for node in graph.node] + inside


def all_values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return [value for graph in all_graphs(model) for value in (*graph.input, *graph.output, *graph.value_info)]


def all_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Initializers, and the tensors of Constant nodes."""
    constants = [attribute.t for node in all_nodes(model) for attribute in node.attribute if attribute.HasField("t")]
    return [tensor for graph in all_graphs(model) for tensor in graph.initializer] + constants


def value_names(model: onnx.ModelProto) -> list[str]:
    """All that a node of the main graph may read."""
    graph = model.graph
    made = [name for node in graph.node for name in node.output if name]
    return [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer] + made


def tensor_types(model: onnx.ModelProto) -> list[Any]:
    return [value.type.tensor_type for value in all_values(model) if value.type.HasField("tensor_type")]
