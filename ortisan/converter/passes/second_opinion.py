"""Asks ONNX's own shape inference about a model that ours finds contradictory.

ONNX Runtime asks it too when it opens a model, so what it refuses can't be run, and is the model's fault and not ours.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ortisan.registry.surprise import Surprise, surprises

_SMALL = 4096


def contradiction(model: ir.Model) -> str | None:
    """Why no runtime would take the model, or None. Declared shapes and large constants count for nothing."""
    try:
        with surprises(onnx.shape_inference.InferenceError):
            onnx.shape_inference.infer_shapes(_skeleton(model), strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        lines = [line for line in str(error).splitlines() if "rror" in line] or [str(error)]
        return " ".join(lines[-1].split())[:300]
    except Surprise:
        return None
    return None


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    copy = model.clone()
    graph = copy.graph
    for node in graph.all_nodes():
        for value in node.outputs:
            value.shape = None
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _SMALL:
            value.const_value, value.shape = None, ir.Shape(tensor.shape.numpy())
            del graph.initializers[name]
            if not value.is_graph_input():
                graph.inputs.append(value)
    return ir.to_proto(copy)
