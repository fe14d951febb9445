"""Op graph -> the program that AITemplate is given: all that can be done without AITemplate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.architectures import why_not_on
from ortisan.codegen.ait.barriers import set_barriers
from ortisan.codegen.ait.blame import blame
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.chain import Chain
from ortisan.codegen.ait.chain_kernel import chain_kernel
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.dims import with_derived_bounds
from ortisan.codegen.ait.fuse_chains import fuse_chains
from ortisan.codegen.ait.join_products import join_products
from ortisan.codegen.ait.ops import AIT_OPS
from ortisan.codegen.ait.program import Program
from ortisan.codegen.ait.read_in_place import read_in_place
from ortisan.codegen.ait.rules import takes_all
from ortisan.codegen.ait.strided_ops import StridedCacheWrite
from ortisan.registry.graph import Graph
from ortisan.registry.ops import CacheWrite
from ortisan.registry.passes.channels_last import channels_last
from ortisan.registry.passes.fold_affine import fold_affine
from ortisan.registry.passes.narrow import narrow
from ortisan.registry.refusal import Refused

ROWS = {**AIT_OPS, Chain: AitOp(Chain, ours=takes_all, kernel=chain_kernel)}
_NOTHING = Program((), (), (), (), (), ())


@dataclass(frozen=True, eq=False)
class Prepared:
    """An op graph as AITemplate's calls, or why some of its nodes can't be (origin -> reason)."""

    program: Program
    notes: tuple[str, ...]
    refused: Mapping[str, str]
    shared: tuple[tuple[int, int], ...] = ()
    """Inputs and outputs that may be the same memory: caches that nothing else reads than the write into them."""


def prepare(graph: Graph, *, half: bool = False, architecture: str = "80") -> Prepared:
    """Runs the passes, then writes the calls; in float16 when `half`."""
    graph = with_derived_bounds(graph)
    dialect = to_dialect(fold_affine(channels_last(narrow(graph) if half else graph)))
    refused = {**_lacking(dialect.graph, architecture), **dialect.refused}
    if refused:
        return Prepared(_NOTHING, (), refused)
    done = arrange(dialect.graph)
    program, refused = write_calls(done)
    return Prepared(program, dialect.notes, refused, _shared(done))


def _shared(graph: Graph) -> tuple[tuple[int, int], ...]:
    reads = Counter(value for node in graph.nodes for value in node.inputs)
    reads.update(graph.outputs)
    writes = [node for node in graph.nodes if isinstance(node.op, (CacheWrite, StridedCacheWrite))]
    return tuple(
        (graph.inputs.index(node.inputs[0]), graph.outputs.index(node.output))
        for node in writes
        if node.inputs[0] in graph.inputs and node.output in graph.outputs and reads[node.inputs[0]] == 1
    )


def arrange(dialect: Graph) -> Graph:
    """Products joined, what they wrote read in place, chains made, and kept apart what AITemplate fuses too much."""
    joined = join_products(dialect)
    placed = read_in_place(joined, lambda node: ROWS[type(node.op)].is_ours(node, joined.bounds))
    return set_barriers(fuse_chains(placed, AIT_OPS))


def _lacking(graph: Graph, architecture: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in graph.nodes:
        if reason := why_not_on(architecture, node):
            found.update(blame(graph, node, reason))
    return found


def write_calls(graph: Graph) -> tuple[Program, dict[str, str]]:
    """The program of a dialect graph, or the first node whose dims AITemplate could not find at run time."""
    writer = CallWriter(graph)
    for node in graph.nodes:
        row = ROWS[type(node.op)]
        try:
            if row.kernel is not None and row.is_ours(node, graph.bounds):
                writer.add_own(node, row.kernel(node, graph.bounds))
            elif row.call is not None:
                row.call(writer, node)
            else:
                raise TypeError(f"{node.op.name} is no op of the dialect")
        except Refused as reason:
            return _NOTHING, blame(graph, node, str(reason))
    return writer.program(), {}
