"""Small models from ONNX's text form, and stock ONNX Runtime to run them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper

from tests.models.sessions import open_session

Array = npt.NDArray[np.generic]


def text_model(
    signature: str, body: str, *, opset: int = 17, ir_version: int = 8, constants: Mapping[str, Array] | None = None
) -> onnx.ModelProto:
    """`signature` is "(float[B,4] x) => (float[B,4] y)", `body` the nodes; `constants` become initializers."""
    header = f'<ir_version: {ir_version}, opset_import: ["": {opset}, "com.microsoft": 1, "custom": 1]>'
    model = onnx.parser.parse_model(f"{header} g {signature} {{ {body} }}")
    for name, array in (constants or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def run_ort(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of stock ONNX Runtime with its optimizations off."""
    return open_session(model, plain=True).run(None, dict(feeds))


def random_feeds(model: onnx.ModelProto, *, seed: int = 0, **sizes: int) -> dict[str, Array]:
    """Values for all graph inputs; symbolic dims get the given sizes (3 when not given), integers are 0 or 1."""
    rng = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [
            dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, 3) for dim in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
            feeds[value.name] = rng.integers(0, 2, shape).astype(dtype)
        else:
            feeds[value.name] = rng.normal(size=shape).astype(dtype)
    return feeds
