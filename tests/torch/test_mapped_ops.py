"""Every op of docs/torch-ops.md gives what eager gives, for its samples and types."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnx_ir as ir  # noqa: E402
import onnxruntime  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from ortisan.runtime.engine import quiet_options  # noqa: E402
from ortisan.torch.decompose import training_decompositions  # noqa: E402
from ortisan.torch.document import render_torch_ops, rows  # noqa: E402
from ortisan.torch.drawing import take_draws  # noqa: E402
from ortisan.torch.export import to_onnx  # noqa: E402
from ortisan.torch.options import front_options  # noqa: E402
from tests.torch.mapped_ops import SAMPLES, samples_of  # noqa: E402

pytestmark = pytest.mark.torch

importlib.import_module("torch._inductor.inductor_prims")  # which defines prims.fma

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-7, torch.bfloat16: 2e-2}
"""Eager's own hardsigmoid has a sixth of float32 in float64."""


def names(form: str) -> list[str]:
    return [name for name, own, _ in rows() if own == form]


def op_of(name: str) -> Any:
    space, _, own = name.rpartition(".")
    return getattr(getattr(torch.ops, space), own).default if space else getattr(torch.ops.higher_order, own)


def rms_norm_backward(grad: Any, x: Any, sizes: Any, rstd: Any, weight: Any, mask: Any) -> Any:
    """CPUs have no kernel of this op."""
    x, weight = x.double().requires_grad_(), weight.double().requires_grad_()
    return torch.autograd.grad(nn.functional.rms_norm(x, sizes, weight, 1e-5), (x, weight), grad.double())


EAGER = {"aten._fused_rms_norm_backward": rms_norm_backward}


def same(have: Any, want: Any, dtype: torch.dtype) -> None:
    have, want = ([each] if isinstance(each, torch.Tensor) else each for each in (have, want))
    assert len(have) == len(want)
    for a, b in zip(have, want, strict=True):
        if b is not None and b.numel():
            assert a.shape == b.shape
            torch.testing.assert_close(a.double(), b.double(), rtol=RELATIVE[dtype], atol=RELATIVE[dtype])


def test_the_document_is_up_to_date() -> None:
    assert (Path(__file__).parents[2] / "docs" / "torch-ops.md").read_text() == render_torch_ops(), "run `make docs`"
    assert set(SAMPLES) == {name for name, _, _ in rows()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", names("composed"))
def test_a_composed_op(name: str, dtype: torch.dtype) -> None:
    op, composed = op_of(name), 0
    for args in samples_of(name, dtype):
        have, want = training_decompositions()[op](*_copied(args)), EAGER.get(name, op)(*_copied(args))
        if have is not NotImplemented:
            composed += 1
            same(have, want, dtype)
    assert composed or name == "aten.native_layer_norm", "composed only for types that differ"


def test_a_layer_norm_of_mixed_types_is_composed() -> None:
    x, weight = torch.randn(3, 8).bfloat16(), torch.randn(8)
    args = (x, [8], weight, weight, 1e-5)
    have = training_decompositions()[torch.ops.aten.native_layer_norm.default](*args)
    same(have[0], torch.ops.aten.native_layer_norm(*args)[0], torch.bfloat16)


class Calls(nn.Module):
    """An op as a function of its tensors."""

    def __init__(self, op: Any, args: Any) -> None:
        super().__init__()
        self.op, self.places = op, [index for index, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
        self.rest = list(args)

    def forward(self, *tensors: Any) -> Any:
        args = list(self.rest)
        for place, tensor in zip(self.places, tensors, strict=True):
            args[place] = tensor
        results = self.op(*args)
        return results[:1] if "attention" in str(self.op) else results[:3] if isinstance(results, tuple) else results


class Slices(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return torch._higher_order_ops.map(lambda row, y: self.function(row, y)[0], x, y)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("name", names("mapped"))
def test_a_mapped_op(name: str, dtype: torch.dtype) -> None:
    if name == "aten.mkldnn_rnn_layer" and dtype == torch.float64:
        pytest.skip("oneDNN has no float64")
    for args in samples_of(name, dtype):
        if name == "map_impl":
            function, (x,), (y,) = args
            module, tensors = Slices(function), (x, y)
        else:
            module, tensors = Calls(op_of(name), args), tuple(arg for arg in args if isinstance(arg, torch.Tensor))
        with torch.no_grad():
            model, _ = to_onnx(torch.export.export(module, tensors), front_options({}))
            session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), quiet_options())
            feeds = {given.name: each.numpy() for given, each in zip(session.get_inputs(), tensors, strict=True)}
            same([torch.from_numpy(each) for each in session.run(None, feeds)], module(*tensors), dtype)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("name", names("signature"))
def test_an_op_that_is_drawn(name: str, dtype: torch.dtype) -> None:
    op = op_of(name)
    for args in samples_of(name, dtype):
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        graph = make_fx(Calls(op, args), tracing_mode="fake")(*tensors).graph
        (draw,) = take_draws(graph, [node for node in graph.nodes if node.op == "placeholder"])
        torch.manual_seed(3)
        have = draw(tensors)
        torch.manual_seed(3)
        want = op(*args)
        assert torch.equal(have, want[1] if name == "aten.native_dropout" else want)


def _copied(args: Any) -> list[Any]:
    return [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
