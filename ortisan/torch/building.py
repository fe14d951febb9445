"""`ortisan.torch.build`: from a module or an exported program to a folder that ONNX Runtime serves without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ortisan.errors import OptionError
from ortisan.pipeline.build import build as build_model
from ortisan.runtime.artifact import Artifact
from ortisan.torch.axes import check_dynamic
from ortisan.torch.capture import capture
from ortisan.torch.export import to_onnx, transform
from ortisan.torch.options import front_options
from ortisan.torch.tree import flatten

_OWN = ("exporter", "opset", "functions", "transforms")


def build(
    module: nn.Module | torch.export.ExportedProgram,
    out: str | os.PathLike[str],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: bool | Mapping[str, Mapping[int, Any]] = False,
    **options: Any,
) -> Artifact:
    """Builds an artifact folder from a module, exported for these arguments, or from an `ExportedProgram`.

    Weights are part of the folder. `dynamic` is that of the wrapper; `exporter`, `opset`, `functions` and `transforms`
    say how to export; all other options are those of `ortisan.build`. The arguments are the inputs that the build is
    verified and timed with.
    """
    own = front_options({name: options.pop(name) for name in _OWN if name in options})
    if isinstance(module, torch.export.ExportedProgram):
        if args or kwargs or dynamic:
            raise OptionError("an ExportedProgram has its arguments and dims already; give them to torch.export.export")
        return build_model(transform(to_onnx(module, own, is_whole=True)[0], own), out, **options)
    if not isinstance(module, nn.Module):
        raise OptionError(f"expected a torch.nn.Module or an ExportedProgram, got a {type(module).__name__}")
    call = (args, dict(sorted((kwargs or {}).items())))
    captured = capture(module, *call, check_dynamic(dynamic), own)
    model = transform(captured.whole, own)
    tensors, _ = flatten(call)
    named = dict(zip(captured.names, tensors, strict=True))
    taken = [value.name for value in model.graph.inputs if value.name in named]
    plain = all(named[name].dtype != torch.bfloat16 for name in taken)
    inputs = {name: np.asarray(named[name].detach().contiguous().numpy()) for name in taken} if plain else None
    return build_model(model, out, **{"inputs": inputs, **options})
