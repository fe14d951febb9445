"""Backward ops, in terms of ops that torch.onnx has a function for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

_aten = torch.ops.aten

# torch.onnx translates the first five, but not all of their outputs, so backward graphs would read wrong values.
_TORCH_HAS = [
    "nll_loss_forward",
    "nll_loss2d_forward",
    "native_batch_norm",
    "_native_batch_norm_legit_functional",
    "native_group_norm",
    "silu_backward",
    "mish_backward",
    "hardswish_backward",
    "hardsigmoid_backward",
    "hardtanh_backward",
    "elu_backward",
    "glu_backward",
    "leaky_relu_backward",
    "log_sigmoid_backward",
    "softplus_backward",
    "threshold_backward",
    "gelu_backward",
    "_prelu_kernel_backward",
    "rrelu_with_noise_backward",
    "softshrink_backward",
    "hardshrink_backward",
    "celu_backward",
    "max_pool2d_with_indices_backward",
    "native_dropout_backward",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "native_batch_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "embedding_dense_backward",
    "slice_backward",
    "select_backward",
    "unfold_backward",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "mse_loss_backward",
    "smooth_l1_loss_backward",
    "huber_loss_backward",
    "binary_cross_entropy_backward",
    "nll_loss_backward",
    "nll_loss2d_backward",
    "soft_margin_loss_backward",
    "binary_cross_entropy_with_logits",
    "logit_backward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "tanh_backward",
    "sigmoid_backward",
]


def training_decompositions() -> dict[Any, Callable[..., Any]]:
    known = [packet for name in _TORCH_HAS if (packet := getattr(_aten, name, None)) is not None]
    return {**get_decompositions(known), **OWN}


def convolution_backward(  # noqa: PLR0917  # as aten has it
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a convolution, or of a transposed one, are such convolutions again."""
    axes = x.ndim - 2
    stride, padding, dilation = (_each(value, axes) for value in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        missing = [0] * axes
        if not transposed:
            missing = [
                x.shape[2 + i]
                - ((grad.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1)
                for i in range(axes)
            ]
        of_x = _aten.convolution(
            grad,
            weight,
            None,
            stride,
            padding,
            dilation,
            not transposed,
            missing if not transposed else [0] * axes,
            groups,
        )
    if output_mask[1]:
        wide, narrow = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(wide, narrow, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.ndim)])
    return of_x, of_weight, of_bias


def _weight_gradient(  # noqa: PLR0917  # those of a convolution
    wide: Tensor,
    narrow: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The sum over the batch: a convolution with the batch in the place of channels, stride and dilation exchanged."""
    batch, channels = wide.shape[:2]
    axes = range(wide.ndim - 2)
    if groups == 1:
        a, b = wide.transpose(0, 1), narrow.transpose(0, 1)
    else:
        spatial = [3 + i for i in axes]
        a = wide.reshape(batch, groups, channels // groups, *wide.shape[2:]).permute(2, 1, 0, *spatial)
        a = a.reshape(channels // groups, groups * batch, *wide.shape[2:])
        own = narrow.shape[1]
        b = narrow.reshape(batch, groups, own // groups, *narrow.shape[2:]).permute(1, 2, 0, *spatial)
        b = b.reshape(own, batch, *narrow.shape[2:])
    gradient: Tensor = _aten.convolution(
        a.contiguous(), b.contiguous(), None, dilation, padding, stride, False, [0] * len(axes), groups
    )
    for i in axes:
        gradient = gradient.narrow(2 + i, 0, shape[2 + i])
    return gradient.transpose(0, 1).contiguous()


def avg_pool2d_backward(  # noqa: PLR0917  # as aten has it
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Each gradient goes, divided by the size of its window, to all of the window."""
    kernel = _each(kernel_size, 2)
    stride, padding = _each(stride or kernel, 2), _each(padding, 2)
    if ceil_mode or x.ndim != 4 or not (count_include_pad or divisor_override or not any(padding)):
        return NotImplemented
    channels = x.shape[1]
    missing = [x.shape[2 + i] - ((grad.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + kernel[i]) for i in range(2)]
    ones = grad.new_full([channels, 1, *kernel], 1.0 / (divisor_override or kernel[0] * kernel[1]))
    return _aten.convolution(grad, ones, None, stride, padding, [1, 1], True, missing, channels)


def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Any:
    (height, width), (rows, columns) = grad.shape[-2:], x.shape[-2:]
    if rows % height or columns % width:
        return NotImplemented
    return _spread(grad, rows // height, columns // width) / ((rows // height) * (columns // width))


def upsample_nearest2d_backward(
    grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
) -> Any:
    (rows, columns), (height, width) = grad.shape[-2:], input_size[-2:]
    if rows % height or columns % width or any(scale is not None and scale != int(scale) for scale in scales):
        return NotImplemented
    return grad.reshape(*input_size[:2], height, rows // height, width, columns // width).sum([3, 5])


def native_layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """With float32 weights, the mean and the deviation are float32, which torch's fake tensors get wrong."""
    if weight is None or weight.dtype == x.dtype:
        return NotImplemented
    axes = list(range(x.ndim - len(normalized_shape), x.ndim))
    wide = x.to(weight.dtype)
    mean = wide.mean(axes, keepdim=True)
    centered = wide - mean
    scale = torch.rsqrt((centered * centered).mean(axes, keepdim=True) + eps)
    y = centered * scale * weight
    return (y if bias is None else y + bias).to(x.dtype), mean, scale


def _spread(x: Tensor, rows: int, columns: int) -> Tensor:
    """Repeats each element of an image."""
    *rest, height, width = x.shape
    wide = x.reshape(*rest, height, 1, width, 1).expand(*rest, height, rows, width, columns)
    return wide.reshape(*rest, height * rows, width * columns)


def _each(value: Sequence[int], axes: int) -> list[int]:
    """One number for each axis, where one for all may be given."""
    return list(value) * axes if len(value) == 1 else list(value)


OWN: dict[Any, Callable[..., Any]] = {
    _aten.native_layer_norm.default: native_layer_norm,
    _aten.convolution_backward.default: convolution_backward,
    _aten.avg_pool2d_backward.default: avg_pool2d_backward,
    _aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool2d_backward,
    _aten.upsample_nearest2d_backward.default: upsample_nearest2d_backward,
}
