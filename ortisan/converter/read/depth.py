"""Bounds how deep graphs lie inside each other: every step of the way is recursive."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ortisan.errors import ModelError

DEEPEST = 50
"""A file can hold about 33: protobuf reads 100 levels of messages."""


def check_depth(graph: onnx.GraphProto | ir.Graph) -> None:
    """Raises `ModelError` when control flow is nested too deeply."""
    level: list[onnx.GraphProto | ir.Graph] = [graph]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _bodies(each)]
        if not level:
            return
    raise ModelError(f"graphs are nested in each other more than {DEEPEST} levels deep, which is not supported")


def _bodies(graph: onnx.GraphProto | ir.Graph) -> Iterator[onnx.GraphProto | ir.Graph]:
    if isinstance(graph, onnx.GraphProto):
        for proto in graph.node:
            for attribute in proto.attribute:
                if attribute.HasField("g"):
                    yield attribute.g
                yield from attribute.graphs
        return
    for node in graph:
        for own in node.attributes.values():
            if own.type is ir.AttributeType.GRAPH and not own.is_ref():
                yield own.as_graph()
            elif own.type is ir.AttributeType.GRAPHS and not own.is_ref():
                yield from own.as_graphs()
