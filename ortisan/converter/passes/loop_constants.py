"""Takes out of loops what they only carry along: exporters pass weights from iteration to iteration.

    y, w2 = Loop(m, c, x, w) { (x, w) -> (f(x, w), w) }    =>    y = Loop(m, c, x) { (x) -> f(x, w) }

A value that the body gives back as it got it is the same in every iteration and after the last one, so the body can
read it where it was made. Weights are constants of the body then.
"""

from __future__ import annotations

import onnx_ir as ir

from ortisan.converter.read.bodies import bodies

_CARRIED = 2
"""The first two inputs of a Loop and of its body are the trip count, or the turn, and the condition."""


def release_carried(model: ir.Model) -> int:
    """Makes such values outer values of the bodies; returns how many."""
    count = 0
    for node in list(model.graph.all_nodes()):
        held = dict(bodies(node)).get("body") if node.op_type == "Loop" and node.domain == "" else None
        if held is None or node.graph is None:
            continue
        kept = min(len(node.inputs), len(held.inputs)) - _CARRIED
        released = [index for index in range(kept) if _is_passed_on(node, held, index)]
        if released:
            _release(node, held, released)
            count += len(released)
    return count


def _is_passed_on(node: ir.Node, body: ir.Graph, index: int) -> bool:
    first, given, after = node.inputs[index + _CARRIED], body.inputs[index + _CARRIED], body.outputs[index + 1]
    producer = after.producer()
    copied = producer is not None and (producer.domain, producer.op_type) == ("", "Identity")
    if first is None or not (after is given or (copied and producer is not None and producer.inputs[0] is given)):
        return False
    # Outputs of graphs must be made in them.
    others = [value for place, value in enumerate(body.outputs) if place != index + 1]
    return not node.outputs[index].is_graph_output() and given not in others and after not in others


def _release(node: ir.Node, body: ir.Graph, released: list[int]) -> None:
    graph = node.graph
    if graph is None:
        return
    for index in reversed(released):
        first, given, after = node.inputs[index + _CARRIED], body.inputs[index + _CARRIED], body.outputs[index + 1]
        body.inputs.pop(index + _CARRIED)
        body.outputs.pop(index + 1)
        if first is not None:
            ir.convenience.replace_all_uses_with([node.outputs[index], given, after], [first, first, first])
    kept = [index for index in range(len(node.outputs)) if index not in released]
    inputs = [value for place, value in enumerate(node.inputs) if place - _CARRIED not in released]
    loop = ir.Node(
        "",
        "Loop",
        inputs,
        list(node.attributes.values()),
        num_outputs=len(kept),
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    for index, new in zip(kept, loop.outputs, strict=True):
        old = node.outputs[index]
        new.name, new.type, new.shape = old.name, old.type, old.shape
    old_outputs = [node.outputs[index] for index in kept]
    ir.convenience.replace_nodes_and_values(graph, node, [node], [loop], old_outputs, loop.outputs)
