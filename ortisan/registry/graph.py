"""The op graph: what the registry lowers ONNX to, and what every target executes.

Ops carry AITemplate's names and semantics. Values are typed, dims are symbolic, everything is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ortisan.registry.dims import (
    MAX_PARTS,
    Dim,
    Facts,
    Guard,
    Shape,
    evaluate,
    is_long,
    is_static,
    product,
    symbols_of,
    total,
)
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.refusal import Refused

_MAX_RANK = 16
"""`max_rank` in templates/cpu/base/pieces.h."""
_MAX_ELEMENTS = 2**44


@dataclass(frozen=True)
class TensorType:
    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        return product(self.shape)

    def check(self) -> None:
        """Raises `Refused` for tensors too large for any memory, and for ranks that no kernel supports."""
        if self.rank > _MAX_RANK:
            raise Refused(f"a tensor of more than {_MAX_RANK} dims is not supported")
        if product(dim for dim in self.shape if is_static(dim)) > _MAX_ELEMENTS and 0 not in self.shape:
            raise Refused(f"{self} has too many elements")
        if any(is_long(dim) for dim in self.shape):
            raise Refused(f"a dim that is made of more than {MAX_PARTS} dims and numbers is not supported")

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(str(dim) for dim in self.shape)}]"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in the graph; compared by identity.

    `data` is what is known of its elements at compile time: an array, or an object array of dims when
    the elements are computed from shapes.
    """

    name: str
    type: TensorType
    data: Array | None = field(default=None, repr=False)

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class DimValues:
    """Numbers for the symbols of a graph, as the numpy references need them."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = dict(values)

    def __call__(self, dim: Dim) -> int:
        return evaluate(dim, self.values)

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self(dim) for dim in shape)


class Op:
    """One operation. Subclasses are frozen dataclasses whose fields are the attributes."""

    stem: ClassVar[str]
    """Names the op's test and its row in docs/ops.md."""
    ait: ClassVar[str | None]
    """The AITemplate ops that this becomes on a GPU, `ours` for our kernels, None where it stays in ONNX Runtime."""
    view: ClassVar[bool] = False
    """True when the output is the input's memory under another shape."""

    @property
    def name(self) -> str:
        return self.stem

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        """Returns the output types or raises `Refused`; conditions to check at run time go into `facts`."""
        raise NotImplementedError

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        """The straightforward numpy computation, in float64 internally."""
        raise NotImplementedError

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        """The single output's elements when all inputs' elements are known dims, else None."""
        return None

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return outputs[0].elements


@dataclass(frozen=True, eq=False)
class Node:
    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str
    """The ONNX node this came from."""

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def flops(self) -> Dim:
        return self.op.flops([v.type for v in self.inputs], [v.type for v in self.outputs])

    def __str__(self) -> str:
        outs = ", ".join(str(value) for value in self.outputs)
        return f"{outs} = {self.op.name}({', '.join(value.name for value in self.inputs)})"


@dataclass(frozen=True, eq=False)
class Graph:
    """`constants` are values whose `data` is an array; everything else is an input or a node's output."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Value, ...]
    nodes: tuple[Node, ...]
    guards: tuple[Guard, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Declared inclusive ranges of symbols."""
    output_names: tuple[str, ...] = ()
    """What the outputs are called in the model."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol of the inputs, in order of first appearance."""
        seen: dict[str, None] = {}
        for value in self.inputs:
            for dim in value.shape:
                for name in sorted(symbols_of(dim)):
                    seen.setdefault(name)
        return tuple(seen)

    @property
    def flops(self) -> Dim:
        return total(node.flops for node in self.nodes)

    def values(self) -> Iterator[Value]:
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def __str__(self) -> str:
        head = f"{self.name}({', '.join(str(value) for value in self.inputs)})"
        body = "\n".join(f"  {node}" for node in self.nodes)
        return f"{head}:\n{body}\n  return {', '.join(value.name for value in self.outputs)}"
