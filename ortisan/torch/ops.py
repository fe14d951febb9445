"""A compiled graph as an op of torch: `torch.ops.ortisan.NAME`, with a fake implementation."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from ortisan.errors import OptionError, UnsupportedError
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.torch.runner import Runner, dtype_of_type, open_runner

_DEFINED: dict[str, Any] = {}


def register_op(name: str, compiled: str | os.PathLike[str] | Artifact) -> Any:
    """Makes an artifact of `ortisan.build` callable as `torch.ops.ortisan.<name>`, and returns that op.

    Its signature is that of the model: one tensor for each input, in order, by its name; a tensor, or a tuple of them.
    The fake implementation gives the outputs' shapes from the symbolic dims of the model, so the op works in
    torch.compile and torch.export. A name that is registered already is replaced.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise OptionError(f"an op can't be called {name!r}; use letters, digits and '_', and no digit first")
    artifact = open_artifact(compiled)
    model = ir.load(artifact.model)
    signature = _Signature(model, open_runner(artifact))
    if (old := _DEFINED.pop(name, None)) is not None:
        old._destroy()  # torch.library has no public way to take back one op
    library: Any = torch.library.Library("ortisan", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(f"{name}({signature.parameters}) -> {signature.returns}")
    library.impl(name, signature.run, "CPU")
    torch.library.register_fake(f"ortisan::{name}", signature.fake, lib=library, allow_override=True)
    _DEFINED[name] = library
    return getattr(torch.ops.ortisan, name)


class _Signature:
    """The inputs and outputs of a model in torch's terms."""

    def __init__(self, model: ir.Model, runner: Runner) -> None:
        self._runner = runner
        by_name = {value.name: value for value in model.graph.inputs}
        self._inputs = [by_name[name] for name in runner.inputs]
        self._outputs = list(model.graph.outputs)
        self.parameters = ", ".join(f"Tensor {_parameter(value.name or '')}" for value in self._inputs)
        self.returns = "Tensor" if len(self._outputs) == 1 else f"({', '.join(['Tensor'] * len(self._outputs))})"
        known = {word for value in self._inputs for dim in value.shape or () for word in _words(dim)}
        for value in self._outputs:
            unknown = [word for dim in value.shape or () for word in _words(dim) if word not in known]
            if value.shape is None or unknown:
                raise UnsupportedError(
                    f"the shape of output '{value.name}' does not follow from the inputs' shapes, so the model can't "
                    "be an op of torch"
                )

    def run(self, *tensors: torch.Tensor) -> Any:
        results = self._runner(tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def fake(self, *tensors: torch.Tensor) -> Any:
        sizes: dict[str, Any] = {}
        for value, tensor in zip(self._inputs, tensors, strict=True):
            dims = list(value.shape or ())
            if len(dims) != tensor.ndim:
                raise OptionError(f"'{value.name}' has {tensor.ndim} dims, expected {len(dims)}")
            for dim, size in zip(dims, tensor.shape, strict=True):
                words = _words(dim)
                if len(words) == 1 and words[0] == str(dim):
                    sizes.setdefault(words[0], size)
        results = [
            tensors[0].new_empty([_size(dim, sizes) for dim in value.shape or ()], dtype=_dtype(value))
            for value in self._outputs
        ]
        return results[0] if len(results) == 1 else tuple(results)


def _parameter(name: str) -> str:
    cleaned = re.sub(r"\W", "_", name)
    return f"_{cleaned}" if keyword.iskeyword(cleaned) or not cleaned or cleaned[0].isdigit() else cleaned


def _words(dim: int | ir.SymbolicDim) -> Sequence[str]:
    """The symbols of a dim; a dim without a name has one that nothing else has."""
    if isinstance(dim, int):
        return ()
    return sorted(dim.free_symbols()) if dim.value is not None else ("?",)


def _size(dim: int | ir.SymbolicDim, sizes: dict[str, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    expression = ir.SymbolicDim(dim.value)
    if str(expression.value) in sizes:
        return sizes[str(expression.value)]
    import sympy

    symbols = sorted(expression.free_symbols())
    formula = sympy.sympify(str(dim.value), locals={word: sympy.Symbol(word, integer=True) for word in symbols})
    return sympy.lambdify([sympy.Symbol(word, integer=True) for word in symbols], formula, modules="math")(
        *(sizes[word] for word in symbols)
    )


def _dtype(value: ir.Value) -> torch.dtype:
    if value.dtype is None:
        raise UnsupportedError(f"output '{value.name}' has no type")
    return dtype_of_type(value.dtype.value, value.name or "")
