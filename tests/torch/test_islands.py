"""What has no ONNX form runs eager, and the rest of its graph is compiled, on both roads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import ArtifactError, UnsupportedError  # noqa: E402
from ortisan.torch.reasons import NoFormError, WentEager  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
WIDTH = 8


@pytest.fixture(autouse=True, scope="module")
def ops() -> Iterator[Any]:
    with torch.library._scoped_library("islands", "DEF") as library:
        library.define("square(Tensor x) -> Tensor")
        library.define("count(Tensor(a!) x) -> ()")
        library.impl("square", lambda x: x * x, "CPU")
        library.impl("square", torch.empty_like, "Meta")
        library.impl("count", _count, "CPU")
        library.impl("count", lambda x: None, "Meta")
        yield library


def _count(x: Any) -> None:
    x.add_(1)


class Around(nn.Module):
    """Two layers around something."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.between, self.scale = between, torch.linspace(1, 2, WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.between(torch.relu(self.first(x)) * self.scale)
        return {"y": torch.relu(self.second(y)), "rows": x.shape[0]}


def square(x: Any) -> Any:
    return torch.ops.islands.square(x)


def counted(x: Any) -> Any:
    torch.ops.islands.count(x)
    return x


def transformed(x: Any) -> Any:
    return torch.fft.fftn(x, dim=(0, 1)).real


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "between, reason",
    [
        (square, r"islands.square has no ONNX form; ortisan.torch.map_op\('islands::square', ...\) gives it one"),
        (counted, "islands.count.default changes its argument 'x' in place, which has no ONNX form"),
        (transformed, "aten.fft_fftn.default has complex numbers"),
    ],
)
def test_the_wrapper_compiles_what_is_around(between: Any, reason: str, dynamic: bool, graphs: list[Any]) -> None:
    model = Around(between).eval()
    fast = front.compile(model, dynamic=dynamic)
    with torch.no_grad():
        with pytest.warns(
            WentEager, match=rf"an op of Around runs eager: {reason}.* \(at test_islands.py:\d+ in Around\)"
        ):
            fast(torch.randn(3, WIDTH))
        for rows in (3, 5):
            for change in (lambda: None, lambda: model.first.weight.data.mul_(2), lambda: model.scale.add_(1)):
                change()
                x = torch.randn(rows, WIDTH)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", WentEager)
                    have, want = fast(x), model(x)
                close(have["y"], want["y"])
                assert have["rows"] == rows
    built = [graph for graph in graphs if graph.artifact is not None]
    assert built
    assert all(graph.artifact.ops for graph in built)


def test_strict_refuses_and_build_too(tmp_path: Any) -> None:
    model, x = Around(square).eval(), torch.randn(3, WIDTH)
    with pytest.raises(NoFormError, match=r"islands\.square has no ONNX form") as caught:
        front.compile(model, strict=True)(x)
    assert caught.value.ops == {"islands.square"}
    with pytest.raises(UnsupportedError, match=r"islands\.square has no ONNX form"):
        front.build(model, tmp_path / "built", (x,))


@pytest.mark.filterwarnings("ignore::ortisan.torch.reasons.WentEager")
def test_a_session_in_parts_has_no_artifact_of_its_own() -> None:
    fast = front.compile(Around(square).eval())
    fast(torch.randn(3, WIDTH))
    with pytest.raises(ArtifactError, match="is in parts, around ops that run eager"):
        fast.entries()[0].artifact  # noqa: B018


@pytest.mark.filterwarnings("ignore::ortisan.torch.reasons.WentEager")
def test_gradients_through_a_session_in_parts() -> None:
    model, x = Around(square), torch.randn(3, WIDTH)
    found = []
    for module in (model, front.compile(model)):
        module(x)["y"].sum().backward()
        found.append([each.grad.clone() for each in model.parameters()])
        model.zero_grad()
    for want, have in zip(*found, strict=True):
        close(have, want)


def test_nothing_but_an_op_without_a_form_is_refused() -> None:
    class Alone(nn.Module):
        def forward(self, x: Any) -> Any:
            return square(x)

    with pytest.raises(UnsupportedError, match=r"islands\.square has no ONNX form"):
        front.compile(Alone())(torch.randn(3))
