"""Arguments for the ops of docs/torch-ops.md, by name: several lists of them, with shapes that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Samples = list[tuple[Any, ...]]
_SHAPES = ((5,), (2, 3), (3, 1, 7))
_aten = torch.ops.aten


def samples_of(name: str, dtype: torch.dtype) -> Samples:
    torch.manual_seed(0)
    return SAMPLES[name](lambda *shape: torch.randn(shape, dtype=torch.float64).to(dtype))


def _pointwise(*settings: Any, operands: int = 2) -> Callable[[Any], Samples]:
    return lambda r: [(*(r(*shape) for _ in range(operands)), *settings) for shape in _SHAPES]


def _loss(*settings: Any, between: bool = False) -> Callable[[Any], Samples]:
    def make(r: Any) -> Samples:
        given = [(r(*shape).sigmoid() if between else r(*shape), r(*shape).sigmoid()) for shape in _SHAPES]
        return [(r(), *pair, *each) for pair in given for each in settings]

    return make


def _activated(function: Any) -> Callable[[Any], Samples]:
    return lambda r: [(r(*shape), function(r(*shape))) for shape in _SHAPES]


def _softmax(function: Any) -> Callable[[Any], Samples]:
    return lambda r: [(x := r(*shape), function(r(*shape), -1), -1, x.dtype) for shape in _SHAPES]


def _convolution(r: Any) -> Samples:
    rest = ([4], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True, True, True])
    shapes = ((2, 3, 7, 6), (1, 3, 9, 5))
    settings = rest[1:4]
    forward = [
        (x := r(*shape), w := r(4, 3, 3, 3), _aten.convolution(x, w, None, *settings, False, [0, 0], 1))
        for shape in shapes
    ]
    return [(r(*y.shape), x, w, *rest) for x, w, y in forward]


def _max_pool(r: Any) -> Samples:
    settings = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    given = [(x := r(*shape), *_aten.max_pool2d_with_indices(x, *settings)) for shape in ((2, 3, 6, 4), (1, 1, 5, 7))]
    return [(r(*y.shape), x, *settings, indices) for x, y, indices in given]


def _norm(r: Any) -> Samples:
    return [(r(*shape), [shape[-1]], r(shape[-1]), r(shape[-1]), 1e-5) for shape in ((2, 8), (3, 1, 5))]


def _norm_backward(r: Any) -> Samples:
    return [(r(*x.shape), x, sizes, *_aten.native_layer_norm(x, sizes, w, b, eps)[1:], w, b, [True] * 3)
            for x, sizes, w, b, eps in _norm(r)]  # fmt: skip


def _rms_norm_backward(r: Any) -> Samples:
    return [(r(*x.shape), x, sizes, _aten._fused_rms_norm(x, sizes, w, eps)[1], w, [True] * 2)
            for x, sizes, w, _, eps in _norm(r)]  # fmt: skip


def _group_norm(r: Any) -> Samples:
    return [(r(n, c, h, h), r(c), r(c), n, c, h * h, groups, 1e-5) for n, c, h, groups in ((2, 4, 3, 2), (1, 6, 1, 3))]


def _group_norm_backward(r: Any) -> Samples:
    return [(r(*x.shape), x, *_aten.native_group_norm(x, w, b, *sizes, eps)[1:], w, *sizes, [True] * 3)
            for x, w, b, *sizes, eps in _group_norm(r)]  # fmt: skip


def _batch_norm(r: Any) -> Samples:
    return [(r(*shape), r(3), r(3), torch.zeros(3, dtype=r(1).dtype), torch.ones(3, dtype=r(1).dtype), training, 0.1, 1e-5)
            for shape in ((4, 3), (2, 3, 5, 4)) for training in (True, False)]  # fmt: skip


def _batch_norm_backward(r: Any) -> Samples:
    found = []
    for x, w, b, mean, variance, training, momentum, eps in _batch_norm(r):
        saved = _aten.native_batch_norm(x, w, b, mean.clone(), variance.clone(), training, momentum, eps)[1:]
        found.append((r(*x.shape), x, w, mean, variance, *saved, training, eps, [True] * 3))
    return found


def _nll(*image: int) -> Callable[[Any], Samples]:
    return lambda r: [(r(n, 5, *image).log_softmax(1), torch.arange(n * (6 if image else 1)).reshape(n, *image) % 5, None, reduction, -100)
                      for n in (1, 4) for reduction in (0, 1, 2)]  # fmt: skip


def _nll_backward(forward: Any, *image: int) -> Callable[[Any], Samples]:
    def make(r: Any) -> Samples:
        given = [(each, forward(*each)) for each in _nll(*image)(r)]
        return [(r(*y.shape), *each, total) for each, (y, total) in given]

    return make


def _attention(r: Any) -> Samples:
    return [
        (r(2, 3, m, 4), r(2, 3, n, 4), r(2, 3, n, 4), 0.0, causal) for m, n, causal in ((5, 5, True), (1, 7, False))
    ]


def _lstm(r: Any) -> Samples:
    def one(length: int, batch: int, width: int, size: int, reverse: bool) -> tuple[Any, ...]:
        weights = (r(4 * size, width), r(4 * size, size), r(4 * size), r(4 * size))
        states = (r(1, batch, size), r(1, batch, size))
        return (r(length, batch, width), *weights, *states, reverse, [], 2, size, 1, True, False, False, False)

    return [one(5, 2, 3, 4, False), one(1, 1, 2, 7, True)]


def _slices(r: Any) -> Samples:
    return [(lambda row, y: [row * y + 1], [r(n, 4)], [r(4)]) for n in (3, 1)]


def _distances(*more: Any) -> Callable[[Any], Samples]:
    return lambda r: [(r(*b, 4, 3), r(*b, 5, 3), p, *more) for b in ((), (2,)) for p in (1.0, 2.0, float("inf"))]


SAMPLES: dict[str, Callable[[Any], Samples]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._cdist_forward": _distances(None),
    "aten.cdist": _distances(),
    "aten.mkldnn_rnn_layer": _lstm,
    "map_impl": _slices,
    "prims.fma": _pointwise(operands=3),
    "aten._adaptive_avg_pool2d_backward": lambda r: [(r(2, 3, 2, 3), r(2, 3, 4, 9)), (r(1, 1, 1, 1), r(1, 1, 5, 7))],
    "aten._fused_rms_norm": lambda r: [(x, sizes, w, eps) for x, sizes, w, _, eps in _norm(r)],
    "aten._fused_rms_norm_backward": _rms_norm_backward,
    "aten._log_softmax_backward_data": _softmax(torch.log_softmax),
    "aten._native_batch_norm_legit_functional": _batch_norm,
    "aten._prelu_kernel_backward": _pointwise(operands=3),
    "aten._softmax_backward_data": _softmax(torch.softmax),
    "aten.avg_pool2d_backward": lambda r: [(r(2, 3, 3, 2), r(2, 3, 6, 4), [2, 2], [2, 2], [0, 0], False, True, None),
                                           (r(1, 1, 2, 3), r(1, 1, 5, 7), [3, 3], [2, 2], [0, 0], False, True, None)],
    "aten.binary_cross_entropy_backward": _loss((None, 1), (None, 2), between=True),
    "aten.binary_cross_entropy_with_logits": lambda r: [(r(*shape), r(*shape).sigmoid(), None, None, how)
                                                        for shape in _SHAPES for how in (0, 1, 2)],
    "aten.convolution_backward": _convolution,
    "aten.elu_backward": lambda r: [(r(*s), 1.5, 1.0, 0.5, is_result, r(*s)) for s in _SHAPES for is_result in (True, False)],
    "aten.embedding_dense_backward": lambda r: [(r(n, 3), torch.arange(n) % 4, 5, -1, False) for n in (1, 6)],
    "aten.gelu_backward": _pointwise(),
    "aten.glu_backward": lambda r: [(r(2, 3), r(2, 6), 1), (r(1, 5), r(2, 5), 0)],
    "aten.hardsigmoid_backward": _pointwise(),
    "aten.hardswish_backward": _pointwise(),
    "aten.hardtanh_backward": _pointwise(-0.5, 1.0),
    "aten.huber_loss_backward": _loss((1, 0.3), (2, 0.3)),
    "aten.leaky_relu_backward": _pointwise(0.1, False),
    "aten.log_sigmoid_backward": lambda r: [(r(*s), x := r(*s), _aten.log_sigmoid_forward(x)[1]) for s in _SHAPES],
    "aten.logit_backward": lambda r: [(r(*s), r(*s).sigmoid(), eps) for s in _SHAPES for eps in (None, 0.1)],
    "aten.max_pool2d_with_indices_backward": _max_pool,
    "aten.mish_backward": _pointwise(),
    "aten.mse_loss_backward": _loss((1,), (2,)),
    "aten.native_batch_norm": _batch_norm,
    "aten.native_batch_norm_backward": _batch_norm_backward,
    "aten.native_dropout_backward": lambda r: [(r(*s), r(*s) > 0, 1.25) for s in _SHAPES],
    "aten.native_group_norm": _group_norm,
    "aten.native_group_norm_backward": _group_norm_backward,
    "aten.native_layer_norm": _norm,
    "aten.native_layer_norm_backward": _norm_backward,
    "aten.nll_loss2d_backward": _nll_backward(_aten.nll_loss2d_forward, 2, 3),
    "aten.nll_loss2d_forward": _nll(2, 3),
    "aten.nll_loss_backward": _nll_backward(_aten.nll_loss_forward),
    "aten.nll_loss_forward": _nll(),
    "aten.reflection_pad1d_backward": lambda r: [(r(2, n + 3), r(2, n), [1, 2]) for n in (3, 7)],
    "aten.reflection_pad2d_backward": lambda r: [(r(2, 1, n + 1, n + 3), r(2, 1, n, n), [1, 2, 0, 1]) for n in (3, 5)],
    "aten.rrelu_with_noise_backward": lambda r: [(r(*s), r(*s), r(*s).abs(), 0.1, 0.3, training, False)
                                                 for s in _SHAPES for training in (True, False)],
    "aten.select_backward": lambda r: [(r(2, 4), [2, 3, 4], 1, 2), (r(5), [5, 1], 1, -1)],
    "aten.sigmoid_backward": _activated(torch.sigmoid),
    "aten.silu_backward": _pointwise(),
    "aten.slice_backward": lambda r: [(r(2, 2), [2, 5], 1, 1, 4, 2), (r(3, 4), [7, 4], 0, -3, 9, 1)],
    "aten.smooth_l1_loss_backward": _loss((1, 0.3), (2, 0.3)),
    "aten.soft_margin_loss_backward": _loss((1,), (2,)),
    "aten.softplus_backward": _pointwise(1.5, 0.7),
    "aten.tanh_backward": _activated(torch.tanh),
    "aten.threshold_backward": _pointwise(0.2),
    "aten.unfold_backward": lambda r: [(r(2, 3, 3), [2, 7], 1, 3, 2), (r(5, 2), [6], 0, 2, 1)],
    "aten.upsample_nearest2d_backward": lambda r: [(r(2, 3, 4, 6), [4, 6], [2, 3, 2, 3]), (r(1, 1, 3, 5), [3, 5], [1, 1, 1, 5])],
    "aten.bernoulli": lambda r: [(r(*s).sigmoid(),) for s in _SHAPES],
    "aten.rand": lambda r: [(list(s),) for s in _SHAPES],
    "aten.rand_like": _pointwise(operands=1),
    "aten.randn": lambda r: [(list(s),) for s in _SHAPES],
    "aten.randn_like": _pointwise(operands=1),
    "aten.randint": lambda r: [(9, list(s)) for s in _SHAPES],
    "aten.randint_like": _pointwise(9, operands=1),
    "aten.randperm": lambda r: [(n,) for n in (1, 7)],
    "aten.uniform": _pointwise(-1.0, 2.0, operands=1),
    "aten.normal_functional": _pointwise(1.0, 2.0, operands=1),
    "aten.exponential": _pointwise(1.5, operands=1),
    "aten.geometric": _pointwise(0.3, operands=1),
    "aten.cauchy": _pointwise(0.0, 1.5, operands=1),
    "aten.log_normal": _pointwise(0.5, 0.7, operands=1),
    "aten.random": _pointwise(operands=1),
    "aten.native_dropout": _pointwise(0.3, True, operands=1),
}  # fmt: skip
