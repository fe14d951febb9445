"""The kernel of a chain: a thread per element finds its place in the loop, and from it the address of each operand.

Extents, offsets and strides are numbers that the kernel is given, so that chains of one form share a source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ortisan.codegen.ait.chain import Chain, Leaf, Literal, Step
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import NAME, OwnKernel
from ortisan.codegen.literals import literal
from ortisan.codegen.render import render
from ortisan.registry.dims import Dim, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, TensorType
from ortisan.registry.ops import Cast


@dataclass(frozen=True)
class ChainSource:
    """What templates/cuda/chain.cu.j2 is rendered with."""

    extents: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    """Value and C++ type of each result, in the order of the last tensors."""
    tensors: int
    numbers: int
    name: str = NAME


def chain_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    assert isinstance(node.op, Chain)
    chain = _joined_axes(node.op)
    writer = _Writer(chain, [value.dtype for value in node.inputs])
    lines = tuple(writer.lines())
    source = ChainSource(
        tuple(writer.extents),
        lines,
        tuple((f"v{number}", writer.types[number].cpp) for number in chain.results),
        len(node.inputs) + len(node.outputs),
        len(writer.numbers),
    )
    numbers = tuple(writer.numbers)
    return OwnKernel("chain", render("cuda/chain.cu.j2", source), node.inputs, numbers, _attributes(node.op))


def _joined_axes(chain: Chain) -> Chain:
    """Axes next to each other are one where every operand goes through them as through one; axes of 1 are none."""
    shape, strides = list(chain.shape), [list(leaf.strides) for leaf in chain.leaves]
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            del shape[axis]
            for own in strides:
                del own[axis]
    for axis in reversed(range(len(shape) - 1)):
        if all(own[axis] == settle(own[axis + 1] * shape[axis + 1]) for own in strides):
            shape[axis : axis + 2] = [product(shape[axis : axis + 2])]
            for own in strides:
                del own[axis]
    leaves = tuple(Leaf(leaf.operand, leaf.offset, tuple(own)) for leaf, own in zip(chain.leaves, strides, strict=True))
    return Chain(tuple(shape), leaves, chain.literals, chain.steps, chain.results)


class _Writer:
    """The lines of a chain's body: `v3` is its fourth value, `a1` the index along the second axis of the loop."""

    def __init__(self, chain: Chain, inputs: Sequence[DType]) -> None:
        self.chain = chain
        self.inputs = inputs
        self.types = chain.types([TensorType(dtype, ()) for dtype in inputs])
        self.numbers: dict[Dim, int] = {}
        self.extents = [self.number(extent) for extent in chain.shape]

    def number(self, dim: Dim) -> str:
        return f"n[{self.numbers.setdefault(dim, len(self.numbers))}]"

    def lines(self) -> Iterator[str]:
        items: list[Leaf | Literal | Step] = [*self.chain.leaves, *self.chain.literals, *self.chain.steps]
        for index, (item, dtype) in enumerate(zip(items, self.types, strict=True)):
            yield f"const {dtype.compute_cpp} v{index} = {self._value(item, dtype)};"

    def _value(self, item: Leaf | Literal | Step, dtype: DType) -> str:
        if isinstance(item, Leaf):
            at = self._address(item)
            return at if item.operand is None else f"load(static_cast<const {dtype.cpp}*>(t[{item.operand}])[{at}])"
        if isinstance(item, Literal):
            return literal(item.number, dtype)
        operands = [f"v{index}" for index in item.operands]
        if isinstance(item.op, Cast):
            return f"load(cast<{dtype.cpp}>({operands[0]}))"
        params = [literal(number, self.types[item.operands[0]]) for number in item.op.params]
        called = f"fn::{item.op.row.cpp}({', '.join((*operands, *params))})"
        return f"load(store<{dtype.cpp}>({called}))" if dtype.compute_cpp != dtype.cpp else called

    def _address(self, leaf: Leaf) -> str:
        terms = [] if leaf.offset == 0 else [self.number(leaf.offset)]
        for axis, stride in enumerate(leaf.strides):
            if stride != 0:
                terms.append(f"a{axis}" if stride == 1 else f"a{axis} * {self.number(stride)}")
        return " + ".join(terms) or "0"


def _attributes(chain: Chain) -> dict[str, Any]:
    """The chain for the interpreter."""
    return {
        "shape": chain.shape,
        "leaves": [asdict(leaf) for leaf in chain.leaves],
        "literals": [{"number": item.number, "dtype": item.dtype.value} for item in chain.literals],
        "steps": [_step(step) for step in chain.steps],
        "results": chain.results,
    }


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step.op, Cast):
        return {"cast": step.op.to.value, "operands": step.operands}
    return {"function": step.op.func, "params": step.op.params, "operands": step.operands}
