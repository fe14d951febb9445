"""`torch.compile(backend=...)`: results, weights, breaks, what runs eager, and training."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, UnsupportedError  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import GREEDY, WIDTH, Broken, Net, bert, close, gpt2, llama, resnet, text  # noqa: E402
from tests.tolerances import WIDE  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]
STRICT = {"strict": True}


def compiled(module: Any, **how: Any) -> Any:
    options = {**STRICT, **how.pop("options", {})}
    return torch.compile(module, backend=front.backend, options=options, **how)


@pytest.mark.parametrize(
    "make, inputs, dynamic",
    [
        (bert, [text(2, 7)], False),
        pytest.param(llama, [{**text(2, n), "use_cache": False} for n in (5, 9)], True, marks=pytest.mark.slow),
        (resnet, [{"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)}], False),
    ],
    ids=["bert", "llama", "resnet"],
)
def test_models_give_what_eager_gives(make: Any, inputs: Any, dynamic: bool, graphs: list[Any]) -> None:
    model = make()
    fast = compiled(model, dynamic=dynamic)
    with torch.no_grad():
        for each in inputs:
            close(fast(**each)[0], model(**each)[0], WIDE)
    assert graphs[-1].artifact.ops
    assert len({graph.artifact.folder for graph in graphs if graph.artifact}) == 1


@pytest.mark.slow
def test_gpt2_generates_with_its_cache(graphs: list[Any]) -> None:
    model = gpt2()
    prompt = text(2, 5) | {"attention_mask": torch.ones((2, 5), dtype=torch.int64)}
    wanted = model.generate(**prompt, **GREEDY)
    model.forward = compiled(model.forward)
    assert torch.equal(model.generate(**prompt, **GREEDY), wanted)
    assert all(graph.artifact.ops for graph in graphs)
    assert len(graphs) <= 3


def test_each_graph_is_compiled_by_itself(graphs: list[Any]) -> None:
    model, x = Broken().eval(), torch.randn(3, WIDTH)
    with torch.no_grad():
        close(compiled(model)(x), model(x))
    assert len(graphs) == 2


def test_parameters_and_buffers_are_weights_and_changes_count(graphs: list[Any]) -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    fast = compiled(model)
    with torch.no_grad():
        close(fast(x), model(x))
        assert len(graphs[0].artifact.manifest["ops"][0]["inputs"]) == 1
        model.linear.weight.mul_(-2)
        close(fast(x), model(x))
        model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
        close(fast(x), model(x))
        model.linear.weight.add_(1)
        close(fast(x), model(x))
        assert len(graphs[0].artifact.manifest["ops"][0]["inputs"]) > 1, "what changes often becomes an input"
        built = graphs[0].artifact
        model.linear.weight.add_(1)
        close(fast(x), model(x))
    assert graphs[0].artifact is built
    assert len(graphs) == 1


class Odd(nn.Module):
    def forward(self, x: Any, n: int) -> Any:
        x.add_(1)
        y = x.t() * n
        return y, x, None, y.shape[1], y[0].expand(2, -1)


def test_mutation_aliases_numbers_and_strides() -> None:
    fast, slow = compiled(Odd(), dynamic=True), Odd()
    for size in (4, 5):
        a, b = torch.ones(size, 3), torch.ones(size, 3)
        have, want = fast(a, 3), slow(b, 3)
        close(a, b)
        assert have[1] is a
        assert have[2:4] == want[2:4]
        close(have[0], want[0])
        close(have[4], want[4])
        assert have[0].stride() == want[0].stride()
        assert have[4].stride(0) == want[4].stride(0) == 0


def test_dynamic_shapes_are_one_artifact(graphs: list[Any]) -> None:
    model = Net().eval()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (3, 4, 9):
            x = torch.randn(rows, WIDTH)
            close(fast(x), model(x))
    assert len([graph for graph in graphs if graph.artifact]) == 1


def test_what_cannot_be_exported_runs_eager_with_one_warning() -> None:
    def decompose(x: Any) -> Any:
        return torch.linalg.eigvalsh(x) + 1

    fast = torch.compile(decompose, backend=front.backend)
    x = torch.eye(4)
    with pytest.warns(WentEager, match=r"graph \d+ runs eager: .*aten._linalg_eigh.*\(at test_backend.py:\d+\)"):
        assert torch.equal(fast(x), decompose(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(fast(x), decompose(x))
    torch._dynamo.reset()
    with pytest.raises(UnsupportedError, match=r"can't be compiled: .*aten._linalg_eigh") as caught:
        torch.compile(decompose, backend=front.backend, options=STRICT)(x)
    assert "\n" not in str(caught.value)


def test_wrong_options_end_with_their_sentence() -> None:
    for options, message in (({"speed": 11}, "there is no option 'speed'"), ({"dims": {"seq": 4}}, "seq")):
        torch._dynamo.reset()
        with pytest.raises(OptionError, match=message) as caught:
            torch.compile(Net(), backend=front.backend, options=options)(torch.ones(2, WIDTH))
        assert "\n" not in str(caught.value)


def test_inference_mode(graphs: list[Any]) -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    fast = compiled(model)
    with torch.inference_mode():
        close(fast(x), model(x))
        close(fast(x), model(x))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "options, mode, message",
    [
        ({"speed": 11}, None, "there is no option 'speed'"),
        ({"tune": "maybe"}, None, "tune"),
        ({"check": "twice"}, None, "check must be 'eager'"),
        ({"exporter": "newer"}, None, "exporter must be 'dynamo', 'legacy' or a function"),
        ({"transforms": 3}, None, "transforms must be functions"),
        (None, "fastest", "there is no mode 'fastest'"),
    ],
)
def test_wrong_options_are_refused(options: Any, mode: str | None, message: str) -> None:
    graph = torch.fx.symbolic_trace(Net())
    with pytest.raises(OptionError, match=message):
        front.backend(graph, [torch.ones(2, WIDTH)], options=options, mode=mode)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(WIDTH)), 1e-3

    def forward(self, x: Any) -> Any:
        centered = x - x.mean(-1, keepdim=True)
        return centered / torch.sqrt(centered.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def test_a_float_is_part_of_what_is_built_until_it_changes(graphs: list[Any]) -> None:
    model = Scaled().eval()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows, eps in ((3, 1e-3), (5, 1e-3), (5, 0.5), (4, 2.0)):
            model.eps = eps
            x = torch.randn(rows, WIDTH) / 10
            close(fast(x), model(x))
            if eps == 1e-3:
                assert "layernorm" in str(graphs[0].artifact.manifest["op_counts"])


def test_modes_set_the_tuning() -> None:
    from ortisan.torch.options import front_options

    assert [front_options({}, mode).build.tune for mode in ("default", "reduce-overhead", "max-autotune")] == [
        "off",
        "auto",
        "full",
    ]
    assert front_options({"tune": "off"}, "max-autotune").build.tune == "off"
    assert front_options({}, "max-autotune").build.keep == "faster"


def trained(net: Any, step: Any, steps: int) -> tuple[list[float], list[Any]]:
    torch.manual_seed(1)
    x, y = torch.randn(16, WIDTH), torch.randint(0, 3, (16,))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = step(net, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, list(net.state_dict().values())


def loss_of(net: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(net(x), y)


def test_training_has_the_losses_of_eager(graphs: list[Any]) -> None:
    """Batch norm changes its buffers, and the loss's backward reads what only a decomposition gets right."""

    def net() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(WIDTH, 16, bias=False), nn.BatchNorm1d(16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)
        )

    losses, weights = trained(net(), loss_of, 50)
    fast, own = trained(net(), compiled(loss_of), 50)
    torch.testing.assert_close(torch.tensor(fast), torch.tensor(losses), atol=2e-4, rtol=1e-3)
    for have, want in zip(own, weights, strict=True):
        close(have, want, 2e-3)
    assert losses[-1] < losses[0] / 2
    built = [graph for graph in graphs if graph.artifact]
    assert [graph.title.split(" ", 2)[2] for graph in built] == ["(forward)", "(backward)"]
    assert all(graph.artifact.ops for graph in built)


def test_importing_touches_no_setting_of_dynamo() -> None:
    import subprocess
    import sys

    code = (
        "import torch, torch._dynamo; before = torch._dynamo.config.save_config_portable(); import ortisan.torch as t;"
        "[getattr(t, n) for n in t.__all__]; assert before == torch._dynamo.config.save_config_portable()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
