"""A formula that can be recognised in a graph, and the pass that replaces it by one op wherever it is found.

The structure of a formula is written as onnxscript patterns; `read` then inspects the match and either describes the
fused node or raises `Mismatch` with the reason of a near miss.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import pattern

from ortisan.converter.fuse.outline import AttributeValue, outline
from ortisan.converter.passes.near_miss import NearMiss

Frozen = Callable[[ir.Node], bool]
Bindings = Mapping[str, ir.Value]


class Mismatch(Exception):
    """The structure of the formula matches, but a detail does not; the message says which."""


@dataclass(frozen=True)
class Fused:
    """The node that stands for a formula, and nodes that belong to it besides those of the pattern."""

    inputs: Sequence[ir.Value]
    attributes: Mapping[str, AttributeValue]
    more_nodes: Sequence[ir.Node] = field(default=())


class Formula(abc.ABC):
    """One private op and the written-out forms it replaces."""

    op_type: str

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.patterns = [pattern.Pattern(form) for form in self.forms()]

    @abc.abstractmethod
    def forms(self) -> Sequence[Callable[..., Any]]:
        """Pattern functions of onnxscript; constants come second in Add and Mul."""

    @abc.abstractmethod
    def read(self, values: Bindings, root: ir.Node) -> Fused:
        """Interprets the matched values. Raises `Mismatch`."""

    def prepare(self, fused: Fused, nodes: list[ir.Node], graph: ir.Graph) -> tuple[Fused, list[ir.Node]]:
        """Makes last changes to the graph once the nodes (the root last) are certain to be fused.

        Returns the nodes that become the body of the fused node.
        """
        return fused, nodes


def apply_formula(formula: Formula, model: ir.Model, frozen: Frozen) -> tuple[int, list[NearMiss]]:
    """Fuses every occurrence, later nodes first so that the longest form wins. Returns how many, and near misses."""
    count = 0
    misses: Counter[tuple[str, str]] = Counter()
    for graph in model.graphs():
        for root in reversed(list(graph)):
            if root.graph is None:
                continue
            reasons: list[str] = []
            for form in formula.patterns:
                match = form.match(model, graph, root, check_nodes_are_removable=False)
                if not match:
                    continue
                try:
                    fused = formula.read(dict(match.bindings), root)
                    others = dict.fromkeys(node for node in (*match.nodes, *fused.more_nodes) if node is not root)
                    nodes = [*others, root]
                    _check_free(nodes, root, frozen)
                except Mismatch as mismatch:
                    reasons.append(str(mismatch))
                    continue
                fused, nodes = formula.prepare(fused, nodes, graph)
                outline(nodes, graph, model, op_type=formula.op_type, inputs=fused.inputs, attributes=fused.attributes)
                count += 1
                break
            else:
                if reasons:
                    misses[root.name or "", reasons[0]] += 1
    name = f"fuse {formula.op_type}"
    return count, [NearMiss(name, node, reason) for node, reason in misses]


def _check_free(nodes: Sequence[ir.Node], root: ir.Node, frozen: Frozen) -> None:
    """Checks that the user excluded no node and that no intermediate value is used elsewhere."""
    for node in nodes:
        if frozen(node):
            raise Mismatch("excluded")
    inside = set(nodes)
    for node in nodes:
        for value in node.outputs if node is not root else ():
            if value.is_graph_output() or any(user not in inside for user in value.consumers()):
                raise Mismatch(f"the intermediate value '{value.name}' is used elsewhere too")
