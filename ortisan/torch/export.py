"""Turns an `ExportedProgram` into an ONNX model and applies the caller's transforms."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from ortisan.errors import ModelError, OptionError, UnsupportedError
from ortisan.torch.custom import translations
from ortisan.torch.functions import check_found, keep_functions
from ortisan.torch.graph import check_custom_ops
from ortisan.torch.options import FrontOptions
from ortisan.torch.packing import needs_no_packing
from ortisan.torch.reasons import no_form_of
from ortisan.torch.rewrites import rewrite
from ortisan.torch.widen import widen_mixed_nodes

_DTYPES_HERE = {
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.BFLOAT16,
    ir.DataType.DOUBLE,
}
"""The types of weights that may become inputs; whole numbers may be shapes, which have to be known."""


def to_onnx(
    program: torch.export.ExportedProgram, options: FrontOptions, *, is_whole: bool = False
) -> tuple[ir.Model, torch.export.ExportedProgram]:
    """Returns the program as an ONNX model, and the functional program it was made from.

    Weights are torch's own memory until they are read. `is_whole` says that the program is all of the module, so that
    every submodule that shall be a function has to be there.
    """
    check_custom_ops(program.graph)
    rewrite(program.graph_module.graph)
    with quiet_exporter():
        try:
            written = torch.onnx.export(
                program,
                dynamo=True,
                optimize=False,
                verbose=False,
                opset_version=options.opset,
                custom_translation_table=translations(),
            )
        except Exception as error:
            raise no_form_of(error) from error
    if written is None:
        raise UnsupportedError("torch.onnx gave no model")
    functional = written.exported_program or program
    widen_mixed_nodes(written.model)
    if options.functions:
        found = keep_functions(written.model, functional, options.functions)
        if is_whole:
            check_found(found, options.functions)
    return written.model, functional


def transform(model: ir.Model, options: FrontOptions) -> ir.Model:
    """Applies the caller's transforms. A transform that returns None has changed the model in place."""
    for change in options.transforms:
        changed = change(model)
        model = model if changed is None else as_ir(changed, "a transform")
    return model


def as_ir(model: Any, source: str) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return ir.from_proto(model)
    if isinstance(model, torch.onnx.ONNXProgram):
        return model.model
    raise OptionError(f"{source} gave a {type(model).__name__}, expected an ONNX model")


def with_weights(model: ir.Model, weights: dict[int, torch.Tensor]) -> ir.Model:
    """A copy in which some inputs (by position) are weights with these values."""
    model = model.clone()
    inputs = list(model.graph.inputs)
    for index, tensor in weights.items():
        value = inputs[index]
        value.const_value = tensor_adapters.TorchTensor(tensor.detach().contiguous(), name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def weights_as_inputs(model: ir.Model, own: Sequence[torch.Tensor], *, every: bool) -> dict[str, torch.Tensor]:
    """Makes a module's own tensors, or only those that need no packing, inputs of the model; gives them by name."""
    known = {_place(tensor): tensor for tensor in own if tensor.device.type == "cpu" and tensor.layout == torch.strided}
    given = {value.name for value in model.graph.inputs}
    found: dict[str, torch.Tensor] = {}
    for name, value in list(model.graph.initializers.items()):
        raw = getattr(value.const_value, "raw", None)
        if name in given or not isinstance(raw, torch.Tensor) or _place(raw) not in known:
            continue
        if value.dtype in _DTYPES_HERE and (every or needs_no_packing(value)) and not value.is_graph_output():
            del model.graph.initializers[name]
            value.const_value = None
            model.graph.inputs.append(value)
            found[name] = known[_place(raw)]
    return found


def is_of_torch(value: ir.Value) -> bool:
    """Whether a constant of the model is memory of torch's."""
    return isinstance(getattr(value.const_value, "raw", None), torch.Tensor)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def name_inputs(model: ir.Model, names: Sequence[str]) -> None:
    """Renames inputs to the arguments' names; internal values that clash are renamed."""
    inputs = list(model.graph.inputs)
    if len(inputs) != len(names):
        raise ModelError(f"the exported model has {len(inputs)} inputs, expected {len(names)}: {', '.join(names)}")
    taken = {value.name for node in model.graph for value in node.outputs} | set(model.graph.initializers)
    for value, name in zip(inputs, names, strict=True):
        value.name = name if name not in taken else f"{name}.input"


class _WithoutGraphs:
    """A stream without the graphs that torch.export prints when it fails."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._dropped = stream, False

    def write(self, text: str) -> int:
        is_end = self._dropped and text == "\n"
        self._dropped = "def forward(self" in text and "torch.ops." in text
        return len(text) if self._dropped or is_end else int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silences the logs and failure reports of torch's exporters; the error carries what matters."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx.experimental.symbolic_shapes")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stderr(_WithoutGraphs(sys.stderr)):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
