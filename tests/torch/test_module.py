"""The module wrapper: structures, caches, weights, shapes, and the disk tier."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import ortisan.torch as front  # noqa: E402
from ortisan.codegen.tools.cache_place import cache_folder  # noqa: E402
from ortisan.errors import ArtifactError, OptionError, UnsupportedError  # noqa: E402
from ortisan.pipeline.kept import all_kept, kept_folder  # noqa: E402
from tests.models.nets import (  # noqa: E402
    GREEDY,
    WIDTH,
    Nested,
    Net,
    Recurrent,
    bert,
    close,
    gpt2,
    llama,
    resnet,
    text,
)
from tests.tolerances import WIDE  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


@pytest.mark.parametrize(
    "make, inputs",
    [
        pytest.param(bert, text(2, 7), marks=pytest.mark.slow),
        (Recurrent, {"ids": torch.arange(10).reshape(2, 5)}),
        (resnet, {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)}),
    ],
    ids=["bert", "lstm", "resnet"],
)
def test_models_give_what_eager_gives(make: Any, inputs: Any) -> None:
    model = make().eval()
    fast = front.compile(model)
    with torch.no_grad():
        have, want = fast(**inputs), model(**inputs)
    assert type(have) is type(want)
    close(have[0], want[0], WIDE)
    close(have[1], want[1], WIDE)
    assert fast.entries()[0].artifact.ops


def test_llama_serves_all_lengths_with_one_session() -> None:
    model = llama()
    axes = {0: "batch", 1: "seq"}
    fast = front.compile(model, dynamic={"input_ids": axes, "attention_mask": axes}, dims={"seq": (1, 32)})
    with torch.no_grad():
        for batch, length in ((2, 7), (3, 12), (2, 32)):
            inputs = {**text(batch, length), "use_cache": False}
            close(fast(**inputs).logits, model(**inputs).logits, WIDE)
        assert (fast.cache_info().misses, fast.cache_info().hits) == (1, 2)
        with pytest.raises(OptionError, match="'seq' is 33, and was declared to be from 1 to 32"):
            fast(**text(2, 33), use_cache=False)


@pytest.mark.slow
def test_gpt2_generates_with_its_cache_through_the_wrapper() -> None:
    model = gpt2()
    prompt = {"input_ids": text(2, 5)["input_ids"], "attention_mask": torch.ones((2, 5), dtype=torch.int64)}
    wanted = model.generate(**prompt, **GREEDY)
    fast = front.compile(model, dynamic=True)
    forward = type(model).forward
    with fast.as_forward():
        assert torch.equal(model.generate(**prompt, **GREEDY), wanted)
    assert "forward" not in model.__dict__
    assert type(model).forward is forward
    info = fast.cache_info()
    assert info.misses <= 3
    assert info.hits >= 3


def test_structures_pass_in_and_out() -> None:
    model, x = Nested().eval(), torch.randn(5, WIDTH)
    fast = front.compile(model)
    more = {"pair": (torch.ones(6), {"bias": torch.ones(5, 6)}), "scale": torch.tensor(2.0)}
    with torch.no_grad():
        for kwargs in ({}, more):
            have, want = fast(x, **kwargs), model(x, **kwargs)
            close(have.value, want.value)
            assert have.more["x"] is x
            close(have.more["sums"][0], want.more["sums"][0])
            assert have.more["sums"][1:] == [None, 3]
            assert have.more["rows"] == 5
        fast(x, **dict(reversed(more.items())))
    assert fast.cache_info().hits == 1, "the order of keyword arguments does not matter"


def test_the_least_recently_used_session_goes() -> None:
    model = torch.nn.Softmax(-1)
    fast = front.compile(model, entries=2)
    shapes = [(2, 3), (2, 4), (2, 3), (2, 5), (2, 3), (2, 4)]
    for shape in shapes:
        close(fast(torch.ones(shape)), model(torch.ones(shape)))
    # (2, 3) was used again before (2, 5) came, so (2, 4) went and had to be opened again, from disk.
    assert (fast.cache_info().hits, fast.cache_info().misses, fast.cache_info().disk) == (2, 4, 1)
    assert [tuple(entry.kind.tensors[0][0]) for entry in fast.entries()] == [(2, 3), (2, 4)]
    fast.cache_clear()
    assert fast.cache_info() == front.CacheInfo(0, 0, 0, 0, 2)


def change_in_place(model: Any) -> None:
    model.linear.weight.mul_(2)


def load_others(model: Any) -> None:
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


def replace_parameter(model: Any) -> None:
    model.linear.weight = torch.nn.Parameter(torch.randn_like(model.linear.weight))


def replace_memory(model: Any) -> None:
    model.linear.bias.data = torch.randn(6)


def replace_part(model: Any) -> None:
    model.linear = torch.nn.Linear(WIDTH, 6)


def change_buffer(model: Any) -> None:
    model.offset += 1


def test_changed_weights_change_the_results() -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    fast = front.compile(model)
    changes = (change_in_place, load_others, replace_parameter, replace_memory, replace_part, change_buffer)
    with torch.no_grad():
        for change in changes:
            close(fast(x), model(x))
            change(model)
            close(fast(x), model(x))
        model.train()
        misses = fast.cache_info().misses
        fast(x)
        assert fast.cache_info().misses == misses + 1
        for _ in range(4):
            model.linear.weight.data.mul_(2)
            close(fast(x), model(x))
    assert fast.cache_info().misses == misses + 1, "what changed often is read in each run"


def test_the_disk_tier_looks_at_every_weight() -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    with torch.no_grad():
        model.linear.weight.uniform_(3, 4)
        front.compile(model)(x)
        again = front.compile(model)
        close(again(x), model(x))
        assert again.cache_info().disk == 1
        model.linear.weight[5, 7] += 1e-3
        other = front.compile(model)
        close(other(x), model(x))
        assert other.cache_info().disk == 0


def test_a_damaged_artifact_is_built_again() -> None:
    model, x = torch.nn.Tanh(), torch.randn(3, 11)
    front.compile(model)(x)
    (all_kept(cache_folder())[-1].folder / "graph.onnx").write_bytes(b"")
    fast = front.compile(model)
    close(fast(x), model(x))
    assert fast.cache_info().disk == 0


def test_a_full_disk_tier_drops_what_was_used_longest_ago(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ORTISAN_TORCH_CACHE_MB", "0")
    for width in (3, 4):
        front.compile(torch.nn.Tanh())(torch.ones(2, width))
    assert len(all_kept(cache_folder())) == 1
    front.compile(torch.nn.Tanh()).cache_clear(disk=True)
    assert not kept_folder(cache_folder()).exists()


def test_two_processes_build_once(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import torch, ortisan.torch
        module = torch.nn.Linear(4, 3)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(0.5)
            fast = ortisan.torch.compile(module)
            assert torch.allclose(fast(torch.ones(2, 4)), torch.full((2, 3), 2.5))
        print(fast.cache_info().disk)
    """)
    root = Path(front.__file__).parents[2]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "ORTISAN_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=300)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(printed) == ["0", "1"], "one built it, and the other found it"
    assert len(list((tmp_path / "torch").glob("*/manifest.json"))) == 1


def test_wrong_arguments_are_one_sentence() -> None:
    with pytest.raises(OptionError, match="there is no option 'speed'"):
        front.compile(Net(), speed=1)
    with pytest.raises(OptionError, match=r"expected a torch.nn.Module, got a int"):
        front.compile(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="entries must be at least 1"):
        front.compile(Net(), entries=0)
    x = torch.ones(2, WIDTH)
    with pytest.raises(OptionError, match="no argument matches 'y'; the arguments are x"):
        front.compile(Net(), dynamic={"y": {0: "batch"}})(x)
    with pytest.raises(OptionError, match="'x' has 2 dims, so it has no dim 2"):
        front.compile(Net(), dynamic={"x": {2: "batch"}})(x)
    with pytest.raises(OptionError, match="there is no symbolic dim 'seq'"):
        front.compile(Net(), dynamic={"x": {0: "batch"}}, dims={"seq": 4})(x)


def test_gradients_pass_through() -> None:
    model, x, weights = Net(), torch.randn(2, WIDTH, requires_grad=True), torch.randn(2, 6)
    fast = front.compile(model)
    found = []
    for module in (model, fast):
        (module(x) * weights).sum().backward()
        found.append([x.grad, *(each.grad for each in model.parameters())])
        x.grad = None
        model.zero_grad()
    for want, have in zip(*found, strict=True):
        close(have, want)
    with torch.no_grad():
        assert not fast(x).requires_grad
    result = fast(x)
    with torch.no_grad():
        model.linear.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_what_onnx_runtime_refuses_is_one_sentence() -> None:
    fast = front.compile(Net().eval())
    with torch.no_grad():
        fast(torch.ones(2, WIDTH))
    with pytest.raises(ArtifactError, match="the compiled graph can't run on these inputs: "):
        fast.entries()[0].runner([torch.ones(2, WIDTH + 1)])


@pytest.mark.parametrize("rows", [3, 5000], ids=["copied", "bound"])
def test_inputs_are_left_alone_and_outputs_are_ours(rows: int) -> None:
    """Two runs don't share an output's memory, nor an output an input's."""
    module, x = torch.nn.ReLU(), torch.ones(rows, WIDTH)
    fast = front.compile(module)
    first = fast(x)
    second = fast(x * 2)
    first += 1
    assert torch.equal(x, torch.ones(rows, WIDTH))
    assert torch.equal(first, x + 1)
    assert torch.equal(second, x * 2)


class Halves(torch.nn.Module):
    """Right for even numbers of rows only, as a wider second argument."""

    def forward(self, x: Any, y: Any) -> Any:
        return y.reshape(x.shape[0], 2).sum(1) + x


def test_sizes_that_torch_ties_together_are_checked() -> None:
    module, fast = Halves(), front.compile(Halves(), dynamic=True, entries=1)
    for rows in (3, 5):
        x, y = torch.randn(rows), torch.randn(2 * rows)
        close(fast(x, y), module(x, y))
    with pytest.raises(UnsupportedError, match="can't export Halves"):
        fast(torch.randn(4), torch.randn(6))


def test_inference_mode_and_threads_give_the_same() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, x = Net().eval(), torch.randn(64, WIDTH)
    fast = front.compile(model, mode="max-autotune", tune="off")
    with torch.inference_mode():
        wanted = model(x)
        close(fast(x), wanted)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(fast, [x] * 32):
            close(result, wanted)
    assert fast.cache_info().misses == 1


def test_the_wrapper_breaks_the_graph_of_torch_compile() -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    fast = front.compile(model)
    with torch.no_grad():
        close(torch.compile(lambda x: fast(x + 1) * 2, backend="eager")(x), model(x + 1) * 2)
