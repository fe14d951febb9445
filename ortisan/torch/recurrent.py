"""torch's LSTM layer as AOTAutograd leaves it on a CPU, `aten.mkldnn_rnn_layer`, as ONNX's LSTM.

torch.onnx knows `aten.lstm`, which the wrapper exports; under torch.compile this is what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op

from ortisan.errors import UnsupportedError

_LSTM = 2
"""oneDNN's number for the kind of layer."""


def lstm_layer(*arguments: Any) -> Any:
    """One layer in one direction: x[S, B, N] -> y[S, B, H], h[1, B, H], c[1, B, H], and a workspace, empty here."""
    x, weight, recurrence, bias, recurrent_bias, hidden, cell, *settings = arguments
    reverse, batch_sizes, mode, hidden_size, num_layers, has_biases, bidirectional, batch_first, train = settings
    if mode != _LSTM or num_layers != 1 or bidirectional or batch_first or train or batch_sizes:
        raise UnsupportedError("aten.mkldnn_rnn_layer is known as one LSTM layer in one direction, in inference")
    biases = [op.Concat(_ordered(bias), _ordered(recurrent_bias), axis=0)] if has_biases else []
    y, last, state = op.LSTM(
        x,
        _one(_ordered(weight)),
        _one(_ordered(recurrence)),
        _one(biases[0]) if biases else None,
        None,
        hidden,
        cell,
        hidden_size=hidden_size,
        direction="reverse" if reverse else "forward",
    )
    return op.Squeeze(y, op.Constant(value_ints=[1])), last, state, op.Constant(value_floats=[0.0])


def _ordered(gates: Any) -> Any:
    """torch has input, forget, cell, output; ONNX has input, output, forget, cell."""
    i, f, c, o = op.Split(gates, num_outputs=4, axis=0)
    return op.Concat(i, o, f, c, axis=0)


def _one(value: Any) -> Any:
    """With the axis of directions, of which there is one."""
    return op.Unsqueeze(value, op.Constant(value_ints=[0]))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
if torch._C._has_mkldnn:
    TRANSLATIONS[torch.ops.aten.mkldnn_rnn_layer.default] = lstm_layer
