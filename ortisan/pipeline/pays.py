"""Which compiled subgraphs can't make the model faster, by a cost model, so that they are not built to be given back.

Times are rough: what a node's arithmetic and its memory traffic take in ONNX Runtime, and what running a node costs. A
subgraph is left out when all that it does is a small part of the model's time, and when it only touches up images
between convolutions: ONNX Runtime fuses those steps with the convolutions, or keeps them in the layout of these.
"""

from __future__ import annotations

import math
from collections import defaultdict

import onnx_ir as ir

from ortisan.converter.flops import node_flops, typical_dims
from ortisan.converter.partition import Subgraph, boundary
from ortisan.converter.read.bodies import bodies
from ortisan.pipeline.compilation import Compilation
from ortisan.registry.ops import ArgReduce, Cast, Elementwise, Move, Pool2d, Reduce, Resize2d

_FLOPS = 40e9
_BYTES = 10e9
_CALL = 2e-6
"""Operations and bytes a second of a plain CPU core, and the seconds that running a node takes."""
_SMALL_SHARE = 0.01
"""The part of the model's time below which a subgraph gains nothing that could be seen."""
_SMALL_TOTAL = 0.03
"""The same for all subgraphs together."""
_TURNS = 16
"""How often the body of a loop is taken to run."""
_IMAGE_OPS = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "GlobalAveragePool", "MaxPool"}
    | {"QLinearConv", "Resize", "Upsample", "InstanceNormalization", "FusedConv"}
)
_TOO_SMALL = "too small to make the model faster"
_LIGHT = (ArgReduce, Cast, Elementwise, Move, Pool2d, Reduce, Resize2d)


def cannot_pay(compiled: Compilation) -> dict[int, str]:
    """Index of a subgraph -> why compiling it would not make the model faster."""
    turns = _turns(compiled.model.graph)
    inside = [sum(turns[node] * node_seconds(node) for node in subgraph.nodes) for subgraph in compiled.subgraphs]
    names = {left.node for left in compiled.left_out}
    total = sum(inside) + sum(times * node_seconds(node) for node, times in turns.items() if node.name in names)
    found: dict[int, str] = {}
    for index, subgraph in enumerate(compiled.subgraphs):
        if inside[index] < _SMALL_SHARE * total:
            found[index] = _TOO_SMALL
        elif (op := _image_neighbour(subgraph)) is not None:
            found[index] = f"steps beside {op}, which ONNX Runtime runs together with it"
    kept = sum(inside[index] for index in range(len(inside)) if index not in found)
    if kept < _SMALL_TOTAL * total:
        found |= {index: _TOO_SMALL for index in range(len(inside)) if index not in found}
    return found


def node_seconds(node: ir.Node) -> float:
    """A rough time of a node in ONNX Runtime. Symbolic dims count as a typical size."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return _CALL + node_flops(node) / _FLOPS + sum(map(_bytes, values)) / _BYTES


def costliest_left(compiled: Compilation, most: int = 5) -> list[dict[str, object]]:
    """The ops left to ONNX Runtime that take most of the model's time, each with its share and its reason."""
    reasons = {left.node: left.reason for left in compiled.left_out}
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    turns = _turns(compiled.model.graph)
    total = sum(turns[node] * node_seconds(node) for subgraph in compiled.subgraphs for node in subgraph.nodes)
    for node, times in turns.items():
        if (name := node.name or "") in reasons:
            seconds[node.op_type, reasons[name]] += times * node_seconds(node)
    total += sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])[:most]
    return [{"op_type": op, "reason": why, "share": round(time / total, 4)} for (op, why), time in ordered]


def _turns(graph: ir.Graph, turns: int = 1) -> dict[ir.Node, int]:
    """How often each node of a graph, and of the graphs inside of it, may run."""
    found: dict[ir.Node, int] = {}
    for node in graph:
        found[node] = turns
        for _, body in bodies(node):
            found |= _turns(body, turns if node.op_type == "If" else turns * _TURNS)
    return found


def _bytes(value: ir.Value) -> int:
    dims, dtype = typical_dims(value), value.dtype
    if dims is None or dtype is None or dtype == ir.DataType.STRING:
        return 0
    return math.ceil(math.prod(dims) * dtype.itemsize)


def _image_neighbour(subgraph: Subgraph) -> str | None:
    """The op next to a subgraph that works on images, if the subgraph has no product or normalisation of its own."""
    if not all(isinstance(node.op, _LIGHT) for node in subgraph.graph.nodes):
        return None
    read, written = boundary(subgraph.nodes)
    producers = (value.producer() for value in read)
    inside = set(subgraph.nodes)
    consumers = (use.node for value in written for use in value.uses() if use.node not in inside)
    around = (node.op_type for node in (*producers, *consumers) if node is not None)
    return next((op for op in around if op in _IMAGE_OPS), None)
