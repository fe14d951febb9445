"""convert_graph: the model with custom ops in place of its compiled subgraphs."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir

from ortisan._version import __version__
from ortisan.codegen.backend import StoredWeight
from ortisan.converter.save import own_external_tensors
from ortisan.converter.substitute import Replacement, substitute
from ortisan.errors import ArtifactError, OptionError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import compile_source
from ortisan.pipeline.source import Model, Source
from ortisan.pipeline.unforeseen import raises_ortisan_errors

_MAX_PROTOBUF_BYTES = 2**31 - 1


@raises_ortisan_errors
def convert_graph(model: Model, compiled: Compilation) -> onnx.ModelProto:
    """The model with its compiled subgraphs replaced by custom ops; weights come from `model`."""
    source = Source.of(model, compiled.options)
    again = compile_source(source, compiled.options, tuning=compiled.tuning) if _is_source(source, compiled) else None
    if again is None or again.domain != compiled.domain:
        raise OptionError(f"the model is not the one that '{compiled.name}' was compiled from")
    converted = substitute_ops(again)
    tensors = [value.const_value for value in converted.graph.initializers.values() if value.const_value]
    if sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING) > _MAX_PROTOBUF_BYTES:
        raise ArtifactError("the converted model is larger than 2 GB, which protobuf can't hold; use ortisan.build")
    own_external_tensors(converted)
    return ir.to_proto(converted)


def _is_source(source: Source, compiled: Compilation) -> bool:
    """The hash has all that decides what code is generated: weights may differ."""
    return source.hash == compiled.model_hash


def substitute_ops(compiled: Compilation, kept: Collection[int] | None = None) -> ir.Model:
    """The canonical model with custom ops in place of the subgraphs: all of them, or those whose index is in `kept`."""
    replacements = [
        Replacement(
            subgraph,
            compiled.domain,
            op,
            [(weight.name, _tensor(weight)) for weight in plan.stored_weights()],
            {
                "partition_name": op,
                "hardware_architecture": str(compiled.target),
                "source": f"ortisan {__version__}",
                "notes": f"{len(subgraph.nodes)} nodes",
            },
        )
        for index, (subgraph, op, plan) in enumerate(zip(compiled.subgraphs, compiled.ops, compiled.plans, strict=True))
        if kept is None or index in kept
    ]
    return substitute(compiled.model, replacements)


def _tensor(weight: StoredWeight) -> ir.TensorProtocol:
    """Made when it is read, so that a model is written without holding all of it at once."""
    dtype = ir.DataType(weight.dtype.onnx)
    return ir.LazyTensor(lambda: ir.tensor(weight.load(), dtype=dtype), dtype=dtype, shape=ir.Shape(weight.shape))
