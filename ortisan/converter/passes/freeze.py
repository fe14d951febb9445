"""Makes constants of the inputs that have a default value: initializers that a caller of the model may override."""

from __future__ import annotations

import onnx_ir as ir


def overridable(graph: ir.Graph) -> list[ir.Value]:
    """The inputs that have a default value."""
    return [value for value in graph.inputs if value.is_initializer()]


def freeze_overridable(model: ir.Model) -> int:
    """Takes them from the inputs of `model`, in place; gives how many there were."""
    found = overridable(model.graph)
    kept = [value for value in model.graph.inputs if not value.is_initializer()]
    model.graph.inputs.clear()
    model.graph.inputs.extend(kept)
    return len(found)
