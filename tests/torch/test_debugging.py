"""intercept, dump, check and explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnx_ir as ir  # noqa: E402

import ortisan  # noqa: E402
import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, VerifyError  # noqa: E402
from ortisan.torch.reasons import WentEager  # noqa: E402
from tests.models.nets import WIDTH, Broken, Nested, Net, close  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


def test_intercept_tells_the_arguments_and_goes_again() -> None:
    model, x = Broken().eval(), torch.linspace(-1, 2, 3 * WIDTH).reshape(3, WIDTH)
    calls: list[front.Call] = []
    wanted = model(x)
    with front.intercept(model, calls.append, names=["", "sec*"]):
        assert torch.equal(model(x), wanted)
    model(x)
    assert [call.module for call in calls] == ["Broken", "second"]
    assert str(calls[0]) == f"Broken\n  x: float32[3, {WIDTH}] on cpu from -1 to 2"
    assert not model._forward_pre_hooks
    with pytest.raises(OptionError, match="no submodule of Broken matches third"):
        front.intercept(model, names="third")


def test_intercept_prints_nested_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    model = Nested()
    hooks = front.intercept(model)
    model(torch.zeros(2, WIDTH), pair=(torch.ones(6), {"bias": torch.ones(6)}), scale=None)
    hooks.remove()
    shown = capsys.readouterr().err
    assert "pair.1.bias: float32[6] on cpu from 1 to 1" in shown
    assert "scale: None" in shown


def test_graphs_and_the_wrapper_are_intercepted() -> None:
    calls: list[front.Call] = []
    model, x = Net().eval(), torch.ones(2, WIDTH)
    with torch.no_grad():
        torch.compile(model, backend=front.backend, options={"intercept": calls.append})(x)
        front.compile(model, intercept=calls.append)(x)
    assert [call.module.split(" ")[0] for call in calls] == ["graph", "Net"]
    assert any(argument.shape == (2, WIDTH) for argument in calls[0].arguments)


def test_dump_writes_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Net().eval(), torch.ones(2, WIDTH)
    monkeypatch.setenv("ORTISAN_DUMP", str(tmp_path / "backend"))
    with torch.no_grad():
        torch.compile(model, backend=front.backend)(x)
        monkeypatch.delenv("ORTISAN_DUMP")
        for _ in range(2):
            front.compile(model, dump=tmp_path / "wrapper")(x)
    (graph,) = (tmp_path / "backend").iterdir()
    assert sorted(path.name for path in (tmp_path / "wrapper").iterdir()) == ["net", "net_1"]
    for folder in (graph, tmp_path / "wrapper" / "net"):
        assert {"exported.onnx", "graph.txt", "inputs.pt", "artifact"} <= {path.name for path in folder.iterdir()}
        assert "aten.relu" in (folder / "graph.txt").read_text()
        inputs = torch.load(folder / "inputs.pt")
        feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
        close(torch.from_numpy(ortisan.load(folder / "artifact").run(None, feeds)[0]), model(x).detach())


def one_more(model: ir.Model) -> None:
    """A transform that makes the model wrong: what Relu gives is doubled."""
    relu = next(node for node in model.graph if node.op_type == "Relu")
    relu.op_type = "Neg"


def test_check_says_which_output_departs() -> None:
    model, x = Net().eval(), torch.ones(2, WIDTH)
    with torch.no_grad():
        close(front.compile(model, check="eager")(x), model(x))
        with pytest.raises(VerifyError, match=r"Net departs from eager:\n  output \[2, 6\]: off by up to"):
            front.compile(model, check="eager", transforms=[one_more])(x)
        with pytest.raises(VerifyError, match=r"graph \d+ departs from eager:\n  output.0 \[2, 6\]"):
            torch.compile(model, backend=front.backend, options={"check": "eager", "transforms": one_more})(x)


def test_explain_names_graphs_breaks_and_reasons() -> None:
    class Sorted(Broken):
        def forward(self, x: Any) -> Any:
            y = self.first(x)
            if y.sum() > 0:
                y = y + 1
            return torch.sort(self.second(y))[0]

    told = front.explain(Sorted().eval(), torch.ones(2, WIDTH))
    assert len(told.graphs) == 2
    assert len(told.breaks) == 1
    assert "test_debugging.py" in told.breaks[0]
    assert all(graph.compiled > 0 for graph in told.graphs)
    assert [op for op, _, _ in told.graphs[1].left_out] == ["TopK"]
    text = str(told)
    assert text.startswith("2 graphs, 1 break")
    assert "1 x TopK: no lowering for op TopK" in text


def test_explain_says_what_would_run_eager() -> None:
    class Values(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvalsh(x)

    told = front.explain(Values(), torch.eye(3))
    assert "aten._linalg_eigh" in str(told.graphs[0].eager)
    assert "test_debugging.py:" in str(told.graphs[0].eager)


def test_explain_names_the_module_and_the_line_of_what_is_left_out_and_the_parts_of_what_is_cut() -> None:
    class Sorted(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.sort(x * 2)[0] + 1

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Sorted()

        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvalsh(self.block(x)).sum() * 2 + x

    told = front.explain(Outer(), torch.eye(3))
    assert "map_op('aten::_linalg_eigh', ...) gives it one (at test_debugging.py:" in str(told.graphs[0].eager)
    assert [graph.title for graph in told.graphs[1:]] == [f"{told.graphs[0].title}, a part"] * 2
    assert "(at test_debugging.py:" in told.graphs[1].left_out[0][1]
    assert "in 'block' (Sorted))" in told.graphs[1].left_out[0][1]


def test_the_text_of_a_graph_that_runs_eager_is_dumped(tmp_path: Path) -> None:
    def values(x: Any) -> Any:
        return torch.linalg.eigvalsh(x)

    with pytest.warns(WentEager):
        torch.compile(values, backend=front.backend, options={"dump": tmp_path})(torch.eye(3))
    (folder,) = tmp_path.iterdir()
    assert "_linalg_eigh" in (folder / "graph.txt").read_text()
    assert "_linalg_eigh" in (folder / "reason.txt").read_text()


def test_what_is_intercepted_has_its_tensors() -> None:
    calls: list[front.Call] = []
    model, x = Net().eval(), torch.ones(2, WIDTH)
    with front.intercept(model, calls.append):
        model(x)
    assert [argument.name for argument in calls[0].arguments] == ["x"]
    assert calls[0].arguments[0].value is x
