"""Replaces an elementwise torch op by C++ text: from the op's signature to a node that Ortisan compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnxscript import values
from torch._subclasses.fake_tensor import FakeTensorMode

from ortisan.errors import OptionError
from ortisan.registry.dtypes import Array
from ortisan.registry.scalars import FLOATS
from ortisan.registry.snippets import DOMAIN, PARAMS, add_snippet
from ortisan.torch.reasons import reason_of

_SAMPLES = {"float": 1.0, "int": 1, "bool": True, "number": 1.0}
"""The types of numbers that an op may take, and one of each."""

_SHAPES = ((2, 3), (3,), (2, 1))


def translate_to_cpp(op: Any, cpp: str, reference: Callable[..., Any] | None) -> Callable[..., Any]:
    """What torch.onnx calls to translate the op: it writes one node, whose meaning is the snippet.

    Raises an `OptionError` when the op has no elementwise signature, or gives another shape or type for samples.
    """
    title = str(op.name())
    arguments = list(op._schema.arguments)
    tensors = [each.name for each in arguments if str(each.type) == "Tensor"]
    numbers = [each.name for each in arguments if str(each.type) in _SAMPLES]
    wrong = [each for each in arguments if each.name not in (*tensors, *numbers)]
    if wrong:
        raise OptionError(
            f"argument '{wrong[0].name}' of '{title}' is a {wrong[0].type}; C++ takes the place of ops of tensors and "
            "numbers, so give the op an ONNX function"
        )
    if not isinstance(cpp, str):
        raise OptionError(f"cpp of '{title}' must be text, not {type(cpp).__name__}")
    to_bool = _gives_bool(op, title)
    meaning = reference or _as_numpy(op, arguments, tensors, numbers)
    name = add_snippet(title, cpp, tensors, numbers, reference=meaning, to_bool=to_bool)
    node = values.Op(values.Opset(DOMAIN, 1), name, _schema(name, tensors, to_bool))

    def translate(*args: Any, **kwargs: Any) -> Any:
        given = _bind(arguments, args, kwargs)
        params = np.array([float(given[each]) for each in numbers], np.float64)
        return node(*(given[each] for each in tensors), **{PARAMS: ir.tensor(params)})

    return translate


def _bind(arguments: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The value of each argument by name, defaults included."""
    given = dict(zip((each.name for each in arguments), args, strict=False)) | kwargs
    return {each.name: given.get(each.name, each.default_value) for each in arguments}


def _gives_bool(op: Any, title: str) -> bool:
    """Whether the op returns booleans, by its fake implementation, for operands that broadcast to 2 x 3."""
    with FakeTensorMode():
        sample: dict[str, Any] = {}
        for index, each in enumerate(op._schema.arguments):
            is_tensor = str(each.type) == "Tensor"
            sample[each.name] = torch.ones(_SHAPES[index % 3]) if is_tensor else _SAMPLES[str(each.type)]
        try:
            result = op(**sample)
        except Exception as error:
            raise OptionError(
                f"'{title}' does not take float32 tensors that broadcast ({reason_of(error)}), so C++ for one element "
                "can't take its place; does it have a fake implementation?"
            ) from error
    shapes = [tuple(value.shape) for value in sample.values() if isinstance(value, torch.Tensor)]
    expected = np.broadcast_shapes(*shapes)
    fits = isinstance(result, torch.Tensor) and tuple(result.shape) == expected
    if not fits or result.dtype not in (torch.float32, torch.bool):
        got = f"{result.dtype}{list(result.shape)}" if isinstance(result, torch.Tensor) else type(result).__name__
        raise OptionError(
            f"'{title}' is not elementwise: it gives {got} for operands that broadcast to float32{list(expected)}"
        )
    return bool(result.dtype == torch.bool)


def _as_numpy(op: Any, arguments: Sequence[Any], tensors: Sequence[str], numbers: Sequence[str]) -> Callable[..., Any]:
    """The op itself, on arrays and params in the order that a snippet has them."""
    types = {each.name: str(each.type) for each in arguments}
    casts = {"int": int, "bool": bool}

    def reference(*values: Any) -> Array:
        given = dict(zip((*tensors, *numbers), values, strict=True))
        for name in tensors:
            given[name] = torch.from_numpy(np.array(given[name]))
        for name in numbers:
            given[name] = casts.get(types[name], float)(given[name])
        return np.asarray(op(**given).numpy())

    return reference


def _schema(name: str, tensors: Sequence[str], to_bool: bool) -> onnx.defs.OpSchema:
    parameter, attribute = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.Attribute
    floats = [f"tensor({_onnx_name(dtype.value)})" for dtype in sorted(FLOATS, key=lambda dtype: dtype.value)]
    return onnx.defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[parameter(each, "T") for each in tensors],
        outputs=[parameter("result", "tensor(bool)" if to_bool else "T")],
        type_constraints=[("T", floats, "")],
        attributes=[attribute(PARAMS, onnx.defs.OpSchema.AttrType.TENSOR, required=True)],
    )


def _onnx_name(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)
