"""The one runner of op-graph passes: rebuilds a graph by a rule, verifies what comes out, prints it when asked.

ORTISAN_PRINT=after:channels_last,before:narrow    graphs to stderr; `after:all` and `before:all` for every pass
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from ortisan.errors import OptionError
from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.verify import verify_graph

VARIABLE = "ORTISAN_PRINT"
_EVERY = ("all", "*")
PASSES = {
    "lower": "ONNX nodes become an op graph",
    "narrow": "float32 becomes float16 between the inputs and the outputs",
    "channels_last": "images keep their channels last from one convolution to the next",
    "fold_affine": "factors and terms per channel join the filters and the bias of a convolution",
    "pointwise": "convolutions that are matrix products become some",
    "widen": "convolutions and pools of 16-bit floats are computed in float32",
    "narrow_products": "matrix products get operands of the precision that was asked for",
    "to_dialect": "ops are composed of those that AITemplate has",
    "join_products": "products of one tensor with several weights become one",
    "read_in_place": "attention, rotary embeddings and caches read where products wrote",
    "fuse_chains": "functions of integers and bools, and those that AITemplate lacks, become chains",
    "set_barriers": "views keep AITemplate from fusing what it can't",
}
"""Every step whose op graph can be printed, in the order they run: on CPUs `lower`, those of images, `widen` and
`narrow_products`, on GPUs all but `pointwise`, `widen` and `narrow_products`."""


class Rule:
    """What one pass makes of a graph's inputs, nodes and outputs. These defaults keep all of them."""

    def input(self, b: Builder, value: Value) -> Value:
        """The new graph's value for an input of the old one."""
        b.inputs.append(value)
        return value

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        """The values that stand for the node's outputs, from the new values of its inputs; None keeps the node."""
        return None

    def output(self, b: Builder, value: Value, made: Value) -> Value:
        """The new graph's output for an output of the old one, `made` being what stands for it."""
        return made


def run_pass(name: str, graph: Graph, rule: Rule, builder: Builder | None = None) -> Graph:
    """The graph as the rule rewrites it, in `builder` if there is one; a broken result is an `IllegalGraph`.

    What nobody reads any more is gone. Guards stay: they are checked before the graph runs, whatever its form.
    """
    _show("before", name, graph)
    b = Builder(graph.name) if builder is None else builder
    values: dict[Value, Value] = {value: value for value in graph.constants}
    values.update([(value, rule.input(b, value)) for value in graph.inputs])
    origins: dict[Value, str] = {}
    for node in graph.nodes:
        b.origin = node.origin
        inputs = tuple(values[value] for value in node.inputs)
        made = rule.node(b, node, inputs)
        values.update(zip(node.outputs, b.add_many(node.op, *inputs) if made is None else made, strict=True))
        origins.update(dict.fromkeys(node.outputs, node.origin))
    outputs = []
    for value in graph.outputs:
        b.origin = origins.get(value, graph.name)
        outputs.append(rule.output(b, value, values[value]))
    done = replace(b.finish(outputs, graph.output_names, graph.bounds), guards=graph.guards)
    verify_graph(done, after=name)
    _show("after", name, done, before=len(graph.nodes))
    return done


def watch(name: str, graph: Graph) -> Graph:
    """The same graph, printed when asked for: for steps that make op graphs without rewriting one."""
    _show("after", name, graph)
    return graph


def _show(when: str, name: str, graph: Graph, before: int | None = None) -> None:
    if name not in PASSES:
        raise KeyError(f"the pass '{name}' has no row in PASSES")
    if not {f"{when}:{each}" for each in (name, *_EVERY)} & _asked():
        return
    count = f"{len(graph.nodes)} nodes" if before is None else f"{before} -> {len(graph.nodes)} nodes"
    sys.stderr.write(f"# {when} {name}: {graph.name}, {count}\n{graph}\n\n")


def _asked() -> set[str]:
    """What ORTISAN_PRINT asks for, or an `OptionError` for what does not exist."""
    text = os.environ.get(VARIABLE, "")
    items = {item.strip() for item in text.split(",") if item.strip()}
    known = {f"{when}:{name}" for when in ("before", "after") for name in (*PASSES, *_EVERY)} - {"before:lower"}
    for item in sorted(items - known):
        raise OptionError(
            f"{VARIABLE}={text}: '{item}' names no op graph; write after:NAME or before:NAME, where NAME is all or one "
            f"of {', '.join(PASSES)} (before lower there is none)"
        )
    return items
