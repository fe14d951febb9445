"""ONNX Runtime's own convolutions, which have no op of their own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import APPROXIMATE, WIDE

CONTRIB = "com.microsoft"


def _fused(name: str, activation: str = "", params: tuple[float, ...] = (), *, added: bool = False) -> Case:
    inputs = {"x": values(2, 3, 9, 7), "w": values(5, 3, 3, 3, seed=1), "b": values(5, seed=2), "z": None}
    inputs |= {"z": values(2, 5, 9, 7, seed=3)} if added else {}
    attributes = {"pads": [1, 1, 1, 1]} | ({"activation": activation} if activation else {})
    attributes |= {"activation_params": list(params)} if params else {}
    return Case(name, "FusedConv", inputs, attributes, ("w", "b"), domain=CONTRIB, tolerance=(APPROXIMATE, WIDE), dynamic=False)  # fmt: skip


def _last(name: str, op: str, filters: np.ndarray, group: int = 1, **attributes: object) -> Case:
    """ONNX Runtime has them on GPUs, and for float16 on ARM."""
    inputs = {"x": values(2, 9, 7, 6), "w": filters, "b": values(len(filters), seed=2)}
    attributes |= {"group": group, "strides": [2, 1]}
    return Case(name, op, inputs, attributes, ("w", "b"), domain=CONTRIB, tolerance=(APPROXIMATE, WIDE), ort=False)


CASES = [
    _fused("plain"), _fused("relu", "Relu"), _fused("leaky", "LeakyRelu", (0.3,)), _fused("clip", "Clip", (-1.5, 2.0)),
    _fused("hard", "HardSigmoid", (0.3, 0.4)), _fused("tanh", "Tanh"), _fused("sigmoid", "Sigmoid"), _fused("added", added=True),
    _fused("added_relu", "Relu", added=True),
    _last("last", "NhwcConv", values(4, 6, 3, 3)), _last("last_groups", "NhwcConv", values(4, 3, 3, 3), 2),
    _last("last_relu", "NhwcFusedConv", values(4, 6, 3, 3), activation="Relu"),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_contrib_convolutions(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_what_is_not_supported_is_refused() -> None:
    refused(_fused("other", "Softmax"), "activation=Softmax and 0 numbers")
    refused(_fused("numbers", "LeakyRelu", (0.1, 0.2)), "activation=LeakyRelu and 2 numbers")
    blocked = Case(
        "blocked", "Conv", {"x": values(1, 16, 4, 4), "w": values(16, 16, 3, 3)}, domain="com.microsoft.nchwc"
    )
    refused(blocked, "channels in blocks for ONNX Runtime's own kernels")
