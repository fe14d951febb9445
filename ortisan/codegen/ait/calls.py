"""Writes the program of AITemplate calls; names are made here, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy

from ortisan.codegen.ait.dims import DimNames, range_of
from ortisan.codegen.ait.model import AitConstant
from ortisan.codegen.ait.own import OwnKernel
from ortisan.codegen.ait.program import Call, Derived, Kernel, Program, ProgramDim, Symbol, Tensor, shape, tensor
from ortisan.codegen.expressions import DimPrinter
from ortisan.registry.dims import product, settle
from ortisan.registry.graph import Graph, Node, TensorType, Value
from ortisan.registry.refusal import Refused


class CallWriter:
    """Names values and writes calls; constants are declared when something reads them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dims = DimNames(graph)
        self.calls: list[Call] = []
        self.data: list[AitConstant] = []
        self._names: dict[Value, str] = {value: f"i{index}_" for index, value in enumerate(graph.inputs)}
        self._constants: dict[Value, str] = {}
        self._read: set[Value] = set()
        self._printer = DimPrinter(graph.symbols)
        self._checked = 0
        used = {value for node in graph.nodes for value in node.inputs}
        self._input_dims = {self.dims(dim) for value in graph.inputs if value in used for dim in value.shape}

    def shape(self, dims: Sequence[Any]) -> tuple[ProgramDim, ...]:
        return tuple(self.dims(dim) for dim in dims)

    def read(self, value: Value) -> dict[str, str]:
        """The tensor of a value, as an argument."""
        self._read.add(value)
        if value in self._names:
            return tensor(self._names[value])
        if value.data is None:
            raise TypeError(f"{value} is read before it is made")
        if value not in self._constants:
            self._constants[value] = f"c{len(self._constants)}_"
            self.data.append(AitConstant(self._constants[value], value.data))
        return tensor(self._constants[value])

    def number_or_tensor(self, value: Value) -> Any:
        """A constant of one element that broadcasts as a number does stands as a number."""
        if value.data is not None and value.data.size == 1 and len(value.shape) <= 1:
            return float(value.data.reshape(()))
        return self.read(value)

    def add(self, node: Node, op: str, args: Sequence[Any], make: dict[str, Any] | None = None) -> None:
        names = [f"t{len(self.calls)}_" + (f"{i}_" if i else "") for i in range(len(node.outputs))]
        self._names.update(zip(node.outputs, names, strict=True))
        self._call(op, args, dict(zip(names, node.outputs, strict=True)), make, node.origin)

    def add_own(self, node: Node, own: OwnKernel) -> None:
        """A call of a kernel of ours. One that checks indices has a number of its own, to be reported by."""
        names = [f"t{len(self.calls)}_" + (f"{i}_" if i else "") for i in range(len(node.outputs))]
        args = tuple(self.read(value) for value in own.inputs)
        self._names.update(zip(node.outputs, names, strict=True))
        made = tuple(
            Tensor(name, v.dtype.value, self.shape(v.shape)) for name, v in zip(names, node.outputs, strict=True)
        )
        self._checked += own.checked
        numbers = self._printer.all((*own.numbers, *((self._checked,) if own.checked else ())))
        sizes = tuple(self._printer.all(value.shape) for value in node.outputs)
        kernel = Kernel(own.source, numbers, sizes, self._plain(own.attributes), own.checked)
        self.calls.append(Call(own.kind, {}, args, made, node.origin or self.graph.name, kernel))

    def _plain(self, value: Any) -> Any:
        """Attributes as JSON has them, dims as texts."""
        if isinstance(value, Mapping):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        return self.dims(value) if isinstance(value, sympy.Expr) else value

    def _call(
        self,
        op: str,
        args: Sequence[Any],
        results: Mapping[str, Value],
        make: dict[str, Any] | None = None,
        origin: str | None = None,
    ) -> None:
        made = tuple(Tensor(name, v.dtype.value, self.shape(v.shape)) for name, v in results.items())
        self.calls.append(Call(op, make or {}, tuple(args), made, origin or self.graph.name))

    def target(self, node: Node) -> dict[str, list[ProgramDim]]:
        """The shape of the result, in dims that have a value before the call runs."""
        dims = self.shape(node.output.shape)
        if any(isinstance(dim, str) and dim not in self._input_dims for dim in dims):
            raise Refused(f"AITemplate can't find the dims of {node.output.type} when it runs")
        return shape(dims)

    def reshape(self, node: Node) -> None:
        """A reshape finds one dim itself (-1). Of two, one is left as its factors at first."""
        source, dims = self.read(node.inputs[0]), list(node.output.shape)
        unknown = self._unknown(dims, node.inputs[0].shape)
        if unknown and settle(product(dims) - product(node.inputs[0].shape)) != 0:
            raise Refused(
                f"AITemplate can't tell that {node.inputs[0].type} has as many elements as {node.output.type}"
            )
        if len(unknown) > 1:
            axis = unknown[0]
            split = [*dims[:axis], *_factors(dims[axis]), *dims[axis + 1 :]]
            if len(self._unknown(split, node.inputs[0].shape)) > 1:
                raise Refused(f"AITemplate can't find the dims of {node.output.type} when it runs")
            name = f"t{len(self.calls)}_"
            half = Value(name, TensorType(node.output.dtype, tuple(split)))
            self._call("reshape", (source, self._open(split, node.inputs[0].shape)), {name: half}, None, node.origin)
            self.add(node, "reshape", [tensor(name), self._open(dims, split)])
        else:
            self.add(node, "reshape", [source, self._open(dims, node.inputs[0].shape)])

    def _unknown(self, dims: Sequence[Any], source: Sequence[Any]) -> list[int]:
        """The axes whose dim neither an input nor the reshaped tensor has."""
        have = self._input_dims | set(self.shape(source))
        return [axis for axis, dim in enumerate(self.shape(dims)) if isinstance(dim, str) and dim not in have]

    def _open(self, dims: Sequence[Any], source: Sequence[Any]) -> dict[str, list[ProgramDim]]:
        unknown = self._unknown(dims, source)
        return shape([-1 if axis in unknown else dim for axis, dim in enumerate(self.shape(dims))])

    def program(self) -> Program:
        graph = self.graph
        symbols = tuple(Symbol(new, *graph.bounds[name]) for name, new in self.dims.symbols.items())
        plain = {symbol.name for symbol in symbols}
        derived: dict[str, Derived] = {}
        for value in graph.inputs:
            for dim in value.shape:
                text = self.dims(dim)
                if isinstance(text, str) and text not in plain and text not in derived:
                    derived[text] = Derived(f"e{len(derived)}_", text, *range_of(dim, graph.bounds))
        outputs = self._outputs()
        inputs = tuple(
            Tensor(self._names[value], value.dtype.value, self.shape(value.shape))
            for value in graph.inputs
            if value in self._read
        )
        constants = tuple(
            Tensor(name, value.dtype.value, self.shape(value.shape)) for value, name in self._constants.items()
        )
        calls, names = tuple(self.calls), tuple((f"o{index}_", name) for index, name in enumerate(outputs))
        sources = {new: name for name, new in self.dims.symbols.items()}
        return Program(symbols, tuple(derived.values()), inputs, constants, calls, names, tuple(self.data), sources)

    def _outputs(self) -> list[str]:
        names: list[str] = []
        for value in self.graph.outputs:
            name = self.read(value)["tensor"]
            if value in self.graph.inputs or name in names:
                copy = f"t{len(self.calls)}_"
                self._call("elementwise", (tensor(name), tensor(name)), {copy: value}, {"func_enum": {"enum": "MAX"}})
                name = copy
            names.append(name)
        return names


def _factors(dim: Any) -> list[Any]:
    """The dims whose product a dim is: 2*batch is [2, batch]."""
    return [settle(factor) for factor in dim.as_ordered_factors()]


WriteCall = Callable[[CallWriter, Node], None]
"""Writes the AITemplate call of a node, or raises `Refused` when AITemplate could not find its dims at run time."""
