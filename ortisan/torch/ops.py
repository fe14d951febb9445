"""A compiled graph as an op of torch: `torch.ops.ortisan.NAME`, with a fake implementation."""

from __future__ import annotations

import keyword
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import onnx_ir as ir
import torch

from ortisan.errors import OptionError, OrtisanError, UnsupportedError
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.torch.native import NativeKernel
from ortisan.torch.runner import Runner, dtype_of_type, open_runner

Route: TypeAlias = Literal["auto", "cpp", "python"]

_log = logging.getLogger("ortisan.torch")


@dataclass(frozen=True)
class RegisteredOp:
    """An op that `register_op` made: its schema, which route its calls take, and why "auto" took the Python one."""

    schema: str
    route: Literal["cpp", "python"]
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _Defined:
    op: RegisteredOp
    library: Any
    kernel: NativeKernel | None


_DEFINED: dict[str, _Defined] = {}


def register_op(name: str, compiled: str | os.PathLike[str] | Artifact, *, route: Route = "auto") -> Any:
    """Makes an artifact of `ortisan.build` callable as `torch.ops.ortisan.<name>`, and returns that op.

    Its signature is that of the model: one tensor for each input, in order, by its name; a tensor, or a tuple of them.
    The fake implementation gives the outputs' shapes from the symbolic dims of the model, so the op works in
    torch.compile and torch.export. A name that is registered already is replaced.

    `route="cpp"` builds the artifact's kernels against the installed PyTorch, once, and puts them behind its
    dispatcher: calls need neither Python nor a session of ONNX Runtime. The whole model has to be one custom op for
    CPUs. `route="python"` calls a session. "auto" takes the first where it works; `registered_ops` tells what it took.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise OptionError(f"an op can't be called {name!r}; use letters, digits and '_', and no digit first")
    if route not in get_args(Route):
        raise OptionError(f"route must be one of {', '.join(get_args(Route))}, not {route!r}")
    artifact = open_artifact(compiled)
    model = ir.load(artifact.model)
    signature = _Signature(model)
    kernel, reason = _native_kernel(name, artifact, model, signature.inputs, route)
    _forget(name)
    library: Any = torch.library.Library("ortisan", "FRAGMENT")  # type: ignore[no-untyped-call]
    op = RegisteredOp(f"{name}({signature.parameters}) -> {signature.returns}", "cpp" if kernel else "python", reason)
    library.define(op.schema)
    if kernel is not None:
        kernel.register(name)
    else:
        library.impl(name, _Call(open_runner(artifact), signature.inputs), "CPU")
    if kernel is None:
        torch.library.register_autograd(f"ortisan::{name}", _no_gradient(name), lib=library)
    torch.library.register_fake(f"ortisan::{name}", signature.fake, lib=library)
    _DEFINED[name] = _Defined(op, library, kernel)
    _log.info("ortisan::%s takes the %s route%s", name, op.route, f": {reason}" if reason else "")
    return getattr(torch.ops.ortisan, name)


def _no_gradient(name: str) -> Any:
    def backward(*_: Any) -> Any:
        raise UnsupportedError(f"torch.ops.ortisan.{name} computes no gradients; call it under torch.no_grad()")

    return backward


def registered_ops() -> dict[str, RegisteredOp]:
    """The ops that `register_op` made, by name."""
    return {name: defined.op for name, defined in _DEFINED.items()}


def _forget(name: str) -> None:
    """Unregisters an op and drops its library, which would otherwise unregister the next op of that name as well."""
    if name not in _DEFINED:
        return
    old = _DEFINED.pop(name)
    if old.kernel is not None:
        old.kernel.remove()
    old.library._destroy()  # torch.library has no public way to unregister one op


def _native_kernel(
    name: str, artifact: Artifact, model: ir.Model, inputs: Sequence[str], route: Route
) -> tuple[NativeKernel | None, str]:
    """The kernel of the C++ route, or why there is none."""
    if route == "python":
        return None, ""
    try:
        return NativeKernel(artifact, model, inputs), ""
    except OrtisanError as error:
        if route == "cpp":
            raise type(error)(f"'{name}' can't take the C++ route: {error}") from error
        return None, str(error)


class _Call:
    """The Python route: a session, called with tensors in the order of the op's parameters."""

    def __init__(self, runner: Runner, inputs: Sequence[str]) -> None:
        self._runner = runner
        self._order = [inputs.index(name) for name in runner.inputs]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        results = self._runner([tensors[index] for index in self._order])
        return results[0] if len(results) == 1 else tuple(results)


class _Signature:
    """The inputs and outputs of a model in torch's terms."""

    def __init__(self, model: ir.Model) -> None:
        self._inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
        self._outputs = list(model.graph.outputs)
        self.inputs = tuple(value.name or "" for value in self._inputs)
        self.parameters = ", ".join(f"Tensor {_parameter(name)}" for name in self.inputs)
        self.returns = "Tensor" if len(self._outputs) == 1 else f"({', '.join(['Tensor'] * len(self._outputs))})"
        known = {word for value in self._inputs for dim in value.shape or () for word in _words(dim)}
        for value in self._outputs:
            unknown = [word for dim in value.shape or () for word in _words(dim) if word not in known]
            if value.shape is None or unknown:
                raise UnsupportedError(
                    f"the shape of output '{value.name}' does not follow from the inputs' shapes, so the model can't "
                    "be an op of torch"
                )

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
    """The symbols of a dim; an unnamed dim gets a unique one."""
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
