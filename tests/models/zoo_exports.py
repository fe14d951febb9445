"""The transformers of the zoo as torch's exporters write them, and inputs for them. Needs torch and transformers."""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tests.models.quiet import quiet
from tests.models.zoo import FAMILIES, VOCABULARY, Family, Input, Sizes

Array = npt.NDArray[np.generic]


@functools.cache
def export(family: str, *, attention: str = "sdpa", opset: int = 20, exporter: str = "dynamo") -> onnx.ModelProto:
    """One form of a family."""
    import torch

    spec = FAMILIES[family]
    module = spec.build(attention).eval()
    sizes = Sizes(past=3 if spec.has_past else 0)
    feeds = make_feeds(spec, sizes)
    tensors = tuple(torch.from_numpy(feeds[one.name]) for one in spec.inputs)
    names = [one.name for one in spec.inputs]
    outputs = [f"output_{index}" for index in range(spec.outputs)]
    dims = [dict(_dynamic(one, spec)) for one in spec.inputs]
    with quiet(), torch.no_grad():
        if exporter == "dynamo":
            shapes = [dict.fromkeys(named, torch.export.Dim.DYNAMIC) for named in dims]
            program = torch.onnx.export(
                module,
                tensors,
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=_grouped(shapes, module),
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
            return program.model_proto
        buffer = io.BytesIO()
        torch.onnx.export(
            module,
            tensors,
            buffer,
            dynamo=False,
            opset_version=opset,
            input_names=names,
            output_names=outputs,
            dynamic_axes=dict(zip(names, dims, strict=True)) | {name: {0: "batch"} for name in outputs},
        )
        return onnx.load_from_string(buffer.getvalue())


def _grouped(shapes: list[Any], module: Any) -> tuple[Any, ...]:
    """Dynamic shapes in the structure of the signature, where the parameter `rest` takes what the others leave."""
    names = list(inspect.signature(module.forward).parameters)
    fixed = len(names) - 1
    return (*shapes[:fixed], tuple(shapes[fixed:])) if names[-1] == "rest" and shapes[fixed:] else tuple(shapes)


def _dynamic(one: Input, family: Family) -> list[tuple[int, str]]:
    """Dynamic axes and their names. Without a past the total length is the length."""
    names = {"total": "total" if family.has_past else "length"}
    return [(axis, names.get(dim, dim)) for axis, dim in enumerate(one.dims) if isinstance(dim, str)]


def make_feeds(family: Family, sizes: Sizes, *, padding: str = "right", seed: int = 0) -> dict[str, Array]:
    """Random inputs. `padding` hides keys of all rows but the first: none, right, left, or all of the last row's."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for one in family.inputs:
        shape = [dim if isinstance(dim, int) else getattr(sizes, dim) for dim in one.dims]
        if one.kind == "ids":
            feeds[one.name] = rng.integers(2, VOCABULARY, shape)
        elif one.kind == "positions":
            feeds[one.name] = np.broadcast_to(np.arange(sizes.past, sizes.total), shape).copy()
        elif one.kind == "mask":
            feeds[one.name] = _mask(shape, padding)
        else:
            feeds[one.name] = rng.normal(size=shape).astype(np.float32)
    return feeds


def _mask(shape: Sequence[int], padding: str) -> Array:
    mask = np.ones(shape, np.int64)
    hidden = shape[1] // 3
    if padding == "right" and hidden:
        mask[1:, -hidden:] = 0
    elif padding == "left":
        mask[1:, :hidden] = 0
    elif padding == "all":
        mask[-1] = 0
    return mask
