"""What callers change about the export: exporter, opset, transforms, patterns, control flow, custom ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnx_ir as ir  # noqa: E402
from onnxscript import FLOAT, script  # noqa: E402
from onnxscript import opset18 as op  # noqa: E402
from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, UnsupportedError  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import WIDTH, Net, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


def test_the_older_exporter_with_dynamic_dims() -> None:
    model = Net().eval()
    fast = front.compile(model, exporter="legacy", opset=17, dynamic={"x": {0: "batch"}})
    with torch.no_grad():
        for rows in (3, 5):
            x = torch.randn(rows, WIDTH)
            close(fast(x), model(x))
    assert fast.cache_info().misses == 1
    assert fast.entries()[0].captured.model.opset_imports[""] == 17


def test_an_exporter_of_the_caller() -> None:
    seen: list[Any] = []

    def exporter(request: Any) -> Any:
        seen.append(request)
        program = torch.onnx.export(
            request.module, request.tensors, dynamo=True, input_names=request.names, verbose=False
        )
        return program.model_proto

    model, x = Net().eval(), torch.randn(3, WIDTH)
    with torch.no_grad():
        close(front.compile(model, exporter=exporter)(x), model(x))
        assert seen[0].names == ("x",)
        with pytest.raises(OptionError, match="the exporter gave a str, expected an ONNX model"):
            front.compile(model, exporter=lambda request: "model")(x)


def by_dynamo(request: Any) -> Any:
    return torch.onnx.export(
        request.module, request.tensors, dynamo=True, input_names=request.names, verbose=False
    ).model_proto


@pytest.mark.parametrize("exporter", ["legacy", by_dynamo])
def test_other_exporters_under_torch_compile(exporter: Any) -> None:
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(-1)
    )
    for model, x in ((Net(), torch.randn(3, WIDTH)), (images, torch.randn(2, 3, 8, 8))):
        torch._dynamo.reset()
        model.eval().requires_grad_(False)
        fast = torch.compile(model, backend=front.backend, options={"exporter": exporter, "strict": True})
        close(fast(x), model(x))


def test_the_older_exporter_trains_and_refuses_dynamic_sizes() -> None:
    model, x = Net(), torch.randn(3, WIDTH)
    options = {"exporter": "legacy", "strict": True}
    torch.compile(model, backend=front.backend, options=options)(x).sum().backward()
    have = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for gradient, each in zip(have, model.parameters(), strict=True):
        close(gradient, each.grad)
    with (
        torch.no_grad(),
        pytest.raises(UnsupportedError, match="would fix the graph's dynamic sizes; use dynamic=False"),
    ):
        torch.compile(Net(), backend=front.backend, options=options, dynamic=True)(x)


def test_the_environment_chooses_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_EXPORTER", "newer")
    with pytest.raises(OptionError, match="exporter must be 'dynamo', 'legacy' or a function, not 'newer'"):
        torch.compile(Net(), backend=front.backend)(torch.randn(3, WIDTH))
    monkeypatch.setenv("ORTISAN_EXPORTER", "legacy")
    with torch.no_grad(), pytest.raises(UnsupportedError, match="the older exporter"):
        torch.compile(Net(), backend=front.backend, options={"strict": True}, dynamic=True)(torch.randn(3, WIDTH))


def test_an_exporter_has_to_keep_the_names() -> None:
    def renaming(request: Any) -> Any:
        model = by_dynamo(request)
        model.graph.input[0].name = "other"
        for node in model.graph.node:
            node.input[:] = ["other" if name == request.names[0] else name for name in node.input]
        return model

    with torch.no_grad(), pytest.raises(OptionError, match="the exporter's model has an input 'other'; known are x"):
        front.compile(Net(), exporter=renaming)(torch.randn(3, WIDTH))


def test_opset_transforms_and_patterns() -> None:
    model, x = nn.Sequential(nn.LayerNorm(WIDTH), nn.GELU()).eval(), torch.randn(3, WIDTH)
    seen: list[int] = []

    def look(exported: ir.Model) -> ir.Model:
        seen.append(exported.opset_imports[""])
        return exported

    with torch.no_grad():
        plain = front.compile(model, opset=19, transforms=look, patterns=False)
        fused = front.compile(model, opset=19)
        close(plain(x), model(x))
        close(fused(x), model(x))
    assert seen == [19]
    counts = [fast.entries()[0].artifact.manifest["op_counts"] for fast in (plain, fused)]
    assert "elementwise.erf" in str(counts[0]) or "erf" in str(counts[0])
    assert counts[0] != counts[1], "Gelu is written out at opset 19, and found again"


class Either(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x - 1, (x,)) * 2


def test_cond_works_on_both_roads() -> None:
    model = Either()
    roads = (front.compile(model), torch.compile(model, backend=front.backend, options={"strict": True}))
    with torch.no_grad():
        for fast in roads:
            for x in (torch.ones(4), -torch.ones(4)):
                close(fast(x), model(x))


class Inverted(nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return x + (1.0 - mask) * -3.0 + (1 - mask)


def test_a_number_minus_whole_numbers_on_both_roads() -> None:
    model, x = Inverted(), torch.randn(2, 3)
    roads = (front.compile(model), torch.compile(model, backend=front.backend, options={"strict": True}))
    with torch.no_grad():
        for fast in roads:
            for mask in (torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1], dtype=torch.int32)):
                close(fast(x, mask), model(x, mask))


class Slices(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch._higher_order_ops.map(lambda row, y: (row * y).sin() + row.sum(), x, y).relu()


def test_map_works_on_both_roads() -> None:
    model, y = Slices(), torch.randn(4)
    roads = (front.compile(model), torch.compile(model, backend=front.backend, options={"strict": True}))
    with torch.no_grad():
        for fast in roads:
            for rows in (3, 5):
                x = torch.randn(rows, 4)
                close(fast(x, y), model(x, y))


@script()
def double_plus(x: FLOAT[...], y: FLOAT[...]) -> FLOAT[...]:  # type: ignore[misc]
    return op.Add(op.Add(x, x), y)


@script()
def nothing_said(x, y):  # type: ignore[no-untyped-def]
    return op.Add(x, y)


@pytest.fixture
def custom_op() -> Iterator[Any]:
    @torch.library.custom_op("ortisan_tests::double_plus", mutates_args=())
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 * x + y

    run.register_fake(lambda x, y: torch.empty_like(x))
    yield run
    front.unmap_op("ortisan_tests::double_plus")


class Custom(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.ortisan_tests.double_plus(x, x * 3).relu()


def test_a_custom_op_becomes_an_onnx_function(custom_op: Any) -> None:
    model, x = Custom(), torch.randn(5)
    with pytest.raises(UnsupportedError, match=r"ortisan_tests.double_plus"):
        front.compile(model)(x)
    front.map_op("ortisan_tests::double_plus", double_plus)
    fast = front.compile(model)
    close(fast(x), model(x))
    assert not fast.entries()[0].artifact.manifest["left_out"]
    close(torch.compile(model, backend=front.backend, options={"strict": True})(x), model(x))
    with pytest.raises(OptionError, match="does not say what it returns"):
        front.map_op("ortisan_tests::double_plus", nothing_said)
    with pytest.raises(OptionError, match="there is no torch op 'ortisan_tests::other'"):
        front.map_op("ortisan_tests::other", double_plus)


def bump(x: Any, by: float) -> None:
    x.add_(by)


class InPlace(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 3
        torch.ops.ortisan_tests.bump(y, 1.5)
        return y.relu()


def test_an_op_that_writes_to_its_argument_is_refused_by_name() -> None:
    with torch.library._scoped_library("ortisan_tests", "FRAGMENT") as library:
        library.define("bump(Tensor(a!) x, float by) -> ()")
        library.impl("bump", bump, "CPU")
        library.impl("bump", lambda x, by: None, "Meta")
        with pytest.raises(OptionError, match="'ortisan_tests::bump' changes its argument 'x' in place"):
            front.map_op("ortisan_tests::bump", double_plus)
        model, x = InPlace(), torch.randn(5)
        sentence = r"ortisan_tests.bump.default changes its argument 'x' in place, which has no ONNX form"
        with pytest.raises(UnsupportedError, match=sentence):
            front.compile(model)(x)
        with pytest.warns(WentEager, match=sentence):
            close(torch.compile(model, backend=front.backend)(x), model(x))
