"""The wrapper as a module, its caches, and many threads."""

from __future__ import annotations

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan  # noqa: E402
import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, UnsupportedError  # noqa: E402
from tests.models.nets import WIDTH, Net, close, llama  # noqa: E402
from tests.tolerances import WIDE  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


def test_it_is_a_module() -> None:
    model, x = Net(), torch.randn(3, WIDTH)
    fast = front.compile(model)
    outer = nn.Sequential(fast, nn.Linear(6, 2)).eval()
    assert not model.training
    assert "0.module.linear.weight" in outer.state_dict()
    assert fast.linear is model.linear
    with pytest.raises(AttributeError, match="nothing"):
        _ = fast.nothing
    with torch.no_grad():
        close(outer(x), outer[1](model(x)))
        for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), saved(fast)):
            assert other.module is not model
            close(other(x), model(x))
            other.linear.weight.mul_(2)
            assert not torch.allclose(other(x), fast(x))
        outer.to(torch.float64)
        close(fast(x.double()), model(x.double()))


def saved(fast: Any) -> Any:
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_a_cache_that_is_given_is_updated() -> None:
    from transformers import DynamicCache

    model = llama()
    fast = front.compile(model, dynamic=True)
    ids, more = torch.randint(1, 53, (2, 5)), torch.randint(1, 53, (2, 1))
    with torch.no_grad():
        have, want = DynamicCache(), DynamicCache()
        for step in (ids, more, more):
            a, b = fast(step, past_key_values=have), model(step, past_key_values=want)
            close(a.logits, b.logits, WIDE)
            assert a.past_key_values is have
            assert have.get_seq_length() == want.get_seq_length()
            close(have.layers[0].keys, want.layers[0].keys, WIDE)


class Collects(nn.Module):
    def forward(self, x: Any, found: Any) -> Any:
        found["list"].append(x * 2)
        found["last"] = x + 1
        return x.relu()


def test_containers_that_a_forward_changes() -> None:
    model, fast, x = Collects(), front.compile(Collects()), torch.randn(3)
    have: Any = {"list": [], "last": None}
    want: Any = {"list": [], "last": None}
    for _ in range(2):
        close(fast(x, have), model(x, want))
        close(have["list"], want["list"])
        close(have["last"], want["last"])


class Holder:
    def __init__(self, x: Any) -> None:
        self.x = x


class Reads(nn.Module):
    def forward(self, held: Any) -> Any:
        return held.x + 1


def test_what_cannot_be_taken_apart_is_one_sentence() -> None:
    with pytest.raises(UnsupportedError, match=r"argument 'held' is a Holder, which can't be taken apart"):
        front.compile(Reads())(Holder(torch.ones(3)))
    for dynamic in ((0,), {"x": (0,)}, {"x": {0: 4}}):
        with pytest.raises(OptionError, match="dynamic must be True, False, or a mapping"):
            front.compile(Net(), dynamic=dynamic)


def test_the_dims_of_torch_name_dims() -> None:
    model, batch = Net().eval(), torch.export.Dim("batch")
    fast = front.compile(model, dynamic={"x": {0: batch}})
    with torch.no_grad():
        for rows in (3, 5):
            close(fast(torch.ones(rows, WIDTH)), model(torch.ones(rows, WIDTH)))
    assert fast.cache_info().misses == 1


def test_the_exporter_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_EXPORTER", "legacy")
    assert front.compile(Net()).options.exporter == "legacy"
    assert front.compile(Net(), exporter="dynamo").options.exporter == "dynamo"


def test_threads_that_come_first_together() -> None:
    models = [nn.Sequential(nn.Linear(WIDTH, 4 + index), nn.Tanh()).eval() for index in range(4)]
    roads = [
        *(front.compile(model) for model in models),
        *(torch.compile(model, backend=front.backend) for model in models),
    ]
    x = torch.randn(3, WIDTH)
    with torch.no_grad():
        wanted = [model(x) for model in models] * 2

    def call(index: int) -> Any:
        with torch.no_grad():
            return roads[index % 8](x), models[index % 4](x)

    with ThreadPoolExecutor(8) as pool:
        for index, (fast, eager) in enumerate(pool.map(call, [*range(8)] * 4)):
            close(fast, wanted[index % 8])
            close(eager, wanted[index % 8])


def test_a_folder_to_serve(tmp_path: Any) -> None:
    model, x = Net().eval(), torch.randn(3, WIDTH)
    program = torch.export.export(model, (x,))
    made = {
        "module": front.build(model, tmp_path / "module", (x,), dynamic={"x": {0: "batch"}}),
        "program": front.build(program, tmp_path / "program"),
        "onnx": ortisan.build(torch.onnx.export(program, verbose=False), tmp_path / "onnx"),
    }
    for artifact in made.values():
        (result,) = ortisan.load(artifact).run(None, {"x": x.numpy()})
        close(torch.from_numpy(result), model(x).detach())
    (result,) = ortisan.load(made["module"]).run(None, {"x": torch.ones(7, WIDTH).numpy()})
    assert result.shape == (7, 6)
    with pytest.raises(OptionError, match="has its arguments and dims already"):
        front.build(program, tmp_path / "again", (x,))
    with pytest.raises(OptionError, match=r"expected a torch.nn.Module or an ExportedProgram, got a str"):
        front.build("model", tmp_path / "again")  # type: ignore[arg-type]
