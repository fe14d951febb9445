"""Artifacts as ops of torch, by the C++ route and by the Python one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan  # noqa: E402
import ortisan.torch as front  # noqa: E402
from ortisan.codegen.tools import cmake as project  # noqa: E402
from ortisan.errors import OptionError, ToolchainError, UnsupportedError  # noqa: E402
from ortisan.torch import native  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import WIDTH, Net, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]

ROUTES = ("cpp", "python")


def artifact_of(model: nn.Module, *args: Any, **options: Any) -> Any:
    wrapped = front.compile(model.eval(), freeze=True, **options)
    with torch.no_grad():
        wrapped(*args)
    return wrapped.entries()[0].artifact


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = Net().eval().requires_grad_(False)
    return model, artifact_of(model, torch.randn(3, WIDTH), dynamic={"x": {0: "batch"}}, dims={"batch": (1, 64)})


class Uses(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.ortisan.tested_net(x) + 1


@pytest.mark.parametrize("route", ROUTES)
def test_an_artifact_is_an_op_of_torch(net: Any, route: Any) -> None:
    model, artifact = net
    run = front.register_op("tested_net", artifact, route=route)
    assert torch.ops.ortisan.tested_net is run
    assert front.registered_ops()["tested_net"] == front.RegisteredOp("tested_net(Tensor x) -> Tensor", route)
    for rows in (1, 2, 3, 17, 64):
        x = torch.randn(rows, WIDTH)
        close(run(x), model(x))
    turned = torch.randn(WIDTH, 5).t()
    close(run(turned), model(turned))
    torch.library.opcheck(run.default, (x,))
    compiled = torch.compile(Uses(), backend="eager", fullgraph=True, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, WIDTH)
        close(compiled(x), model(x) + 1)
    program = torch.export.export(Uses(), (x,), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}})
    x = torch.randn(9, WIDTH)
    close(program.module()(x), model(x) + 1)


def test_the_routes_give_the_same_bits(net: Any) -> None:
    _, artifact = net
    ops = [front.register_op(f"tested_{route}", artifact, route=route) for route in ROUTES]
    for rows in (1, 7, 64):
        x = torch.randn(rows, WIDTH)
        assert torch.equal(ops[0](x), ops[1](x))


class Picks(nn.Module):
    """Integers, booleans and floats, in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, WIDTH)

    def forward(self, ids: Any, keep: Any, scale: Any) -> Any:
        picked = ids * keep.to(torch.int64)
        rows = self.table(picked) * scale
        return rows > 0, picked, rows


@pytest.mark.parametrize("route", ROUTES)
def test_integers_booleans_and_several_results(route: Any) -> None:
    model = Picks().eval().requires_grad_(False)
    dims = {0: "batch", 1: "seq"}

    def arguments(batch: int, seq: int) -> tuple[Any, ...]:
        return torch.randint(11, (batch, seq)), torch.rand(batch, seq) > 0.5, torch.randn(WIDTH)

    artifact = artifact_of(model, *arguments(2, 3), dynamic={"ids": dims, "keep": dims})
    run = front.register_op("tested_picks", artifact, route=route)
    assert front.registered_ops()["tested_picks"].schema == (
        "tested_picks(Tensor ids, Tensor keep, Tensor scale) -> (Tensor, Tensor, Tensor)"
    )
    for shape in ((2, 3), (4, 9), (1, 1), (3, 0)):
        given = arguments(*shape)
        for got, want in zip(run(*given), model(*given), strict=True):
            assert got.dtype == want.dtype
            close(got, want)
    torch.library.opcheck(run.default, arguments(3, 4))


def test_what_does_not_fit_is_refused_in_a_sentence(net: Any) -> None:
    run = front.register_op("tested_net", net[1], route="cpp")
    x = torch.randn(3, WIDTH)
    with pytest.raises(TypeError, match=r"^ortisan::tested_net: input 'x' has dtype Double, expected Float$"):
        run(x.double())
    with pytest.raises(ValueError, match=r"^ortisan::tested_net: input 'x' has 1 dims, expected 2$"):
        run(x[0])
    with pytest.raises(ValueError, match="dim 1 of input 'x' is 9, expected 8"):
        run(torch.randn(3, WIDTH + 1))
    with pytest.raises(ValueError, match=r"'batch' .* is 65, outside its declared range 1\.\.64"):
        run(torch.randn(65, WIDTH))
    close(run(x), net[0](x))


@pytest.mark.parametrize("route", ROUTES)
def test_any_number_of_threads_gives_the_same_bits(route: Any) -> None:
    model = nn.Sequential(nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 64))
    x, threads = torch.randn(40, 96), torch.get_num_threads()
    artifact, results = artifact_of(model, x), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(front.register_op("tested_threads", artifact, route=route)(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(50):
            if not torch.equal(torch.ops.ortisan.tested_threads(x), results[0]):
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_name_can_be_registered_again_by_either_route(net: Any) -> None:
    x = torch.randn(4, 5)
    other = artifact_of(nn.Linear(5, 2).requires_grad_(False), x)
    for route in ("cpp", "python", "cpp", "cpp"):
        front.register_op("tested_again", net[1], route=route)
        y = torch.randn(2, WIDTH)
        close(torch.ops.ortisan.tested_again(y), net[0](y))
        front.register_op("tested_again", other, route=route)
        assert torch.ops.ortisan.tested_again(x).shape == (4, 2)
        assert front.registered_ops()["tested_again"].route == route


def test_what_is_not_compiled_whole_takes_the_python_route() -> None:
    model, x = Net().eval().requires_grad_(False), torch.randn(3, WIDTH)
    artifact = artifact_of(model, x, exclude=["Relu"])
    run = front.register_op("tested_part", artifact)
    close(run(x), model(x))
    found = front.registered_ops()["tested_part"]
    assert found.route == "python"
    assert "(Relu) was not compiled, and only ONNX Runtime can run it" in found.reason
    with pytest.raises(UnsupportedError, match=r"^'tested_part' can't take the C\+\+ route: .*Relu"):
        front.register_op("tested_part", artifact, route="cpp")
    close(torch.ops.ortisan.tested_part(x), model(x))


def test_without_a_compiler_or_headers_the_python_route_is_taken(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, WIDTH)
    kit = native.torch_kit()
    with monkeypatch.context() as patch:
        patch.setattr(native, "torch_kit", lambda: native.TorchKit(kit.version, (), kit.libraries, kit.cxx11_abi))
        close(front.register_op("tested_tools", net[1])(x), net[0](x))
        assert "has no headers" in front.registered_ops()["tested_tools"].reason
    monkeypatch.setenv("CXX", "no-such-compiler")
    close(front.register_op("tested_tools", net[1])(x), net[0](x))
    assert "there is no such program" in front.registered_ops()["tested_tools"].reason
    with pytest.raises(ToolchainError, match=r"can't take the C\+\+ route: \$CXX is 'no-such-compiler'"):
        front.register_op("tested_tools", net[1], route="cpp")


def test_builds_are_remembered_and_byte_identical(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front.register_op("tested_cache", net[1], route="cpp")
    first = native._build(net[1])
    with monkeypatch.context() as patch:
        patch.setattr(project, "run_tool", lambda *_, **__: pytest.fail("it was built again"))
        front.register_op("tested_other_name", net[1], route="cpp")
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path))
    again = native._build(net[1])
    assert again.is_relative_to(tmp_path)
    assert again.read_bytes() == first.read_bytes()


def test_names_routes_and_folders_that_make_no_sense(net: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="an op can't be called '2fast'"):
        front.register_op("2fast", net[1])
    with pytest.raises(OptionError, match="route must be one of auto, cpp, python, not 'fast'"):
        front.register_op("fast", net[1], route="fast")
    with pytest.raises(ortisan.ArtifactError):
        front.register_op("nothing", tmp_path)


@pytest.mark.parametrize("route", ROUTES)
def test_a_gradient_is_refused(net: Any, route: Any) -> None:
    run = front.register_op("tested_net", net[1], route=route)
    x = torch.randn(3, WIDTH, requires_grad=True)
    with pytest.raises(
        (UnsupportedError, RuntimeError), match=r"tested_net (computes no gradients|is not implemented)"
    ):
        run(x).sum().backward()


def test_inside_torch_compile_the_rest_is_compiled(net: Any, graphs: list[Any]) -> None:
    front.register_op("tested_net", net[1], route="python")

    def around(x: Any) -> Any:
        return (torch.ops.ortisan.tested_net(x.tanh() * 2) + 1).relu() * 3

    fast, x = torch.compile(around, backend=front.backend), torch.randn(3, WIDTH)
    with torch.no_grad():
        with pytest.warns(WentEager, match="tested_net"):
            have = fast(x)
        close(have, around(x))
        close(fast(x), around(x))
    assert sum(graph.artifact is not None for graph in graphs) == 2
