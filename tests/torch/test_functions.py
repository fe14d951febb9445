"""Submodules that stay ONNX functions in the exported model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnx  # noqa: E402
import onnx_ir as ir  # noqa: E402
from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.errors import OptionError, UnsupportedError  # noqa: E402
from ortisan.torch.functions import keep_functions  # noqa: E402
from tests.models.nets import WIDTH, bert, close, text  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.build]


class Block(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear, self.norm, self.scale = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), scale

    def forward(self, x: Any) -> Any:
        return self.norm(torch.relu(self.linear(x))) * self.scale + x


class Stacked(nn.Module):
    """Two equal blocks, one with another number in it, and a layer that is called twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(), Block(3.0)])
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.head(x)) * 2.0


def stacked() -> Any:
    return Stacked().eval().requires_grad_(False)


def calls(model: ir.Model) -> list[tuple[str, str]]:
    return [(node.op_type, node.overload) for node in model.graph if node.domain]


def test_submodules_are_functions_by_class_name_or_path() -> None:
    model, seen = stacked(), []
    plain, fast = (
        front.compile(model, dynamic={"x": {0: "batch"}}, transforms=lambda m: seen.append(m.clone()), functions=wanted)
        for wanted in ((), [Block, "head", "LayerNorm"])
    )
    for rows in (3, 5):
        x = torch.randn(rows, WIDTH)
        assert torch.equal(fast(x), plain(x)), "functions change how the model is written, and nothing else"
        close(fast(x), model(x))
    exported, inlined = seen
    assert not inlined.functions
    assert calls(exported) == [("Block", ""), ("Block", ""), ("Block", "1"), ("Linear", ""), ("Linear", "")]
    assert {name for _, name, _ in exported.functions} == {"Block", "Linear", "LayerNorm"}
    block = exported.functions[__name__, "Block", ""]
    assert [value.name for value in block.inputs][1:] == ["linear.weight", "linear.bias", "norm.weight", "norm.bias"]
    assert "LayerNorm" in [node.op_type for node in block], "functions call functions"
    onnx.checker.check_model(ir.to_proto(exported))
    manifests = [each.entries()[0].artifact.manifest for each in (plain, fast)]
    assert manifests[0]["op_counts"] == manifests[1]["op_counts"]


def test_only_the_modules_of_a_path() -> None:
    seen: list[Any] = []
    fast = front.compile(stacked(), functions="blocks.1", transforms=lambda m: seen.append(m.clone()))
    fast(torch.randn(2, WIDTH))
    assert calls(seen[0]) == [("Block", "")]
    assert next(node.name for node in seen[0].graph if node.domain).startswith("blocks.1/")


def test_functions_under_torch_compile_and_in_a_dump(tmp_path: Path) -> None:
    model, x = stacked(), torch.randn(3, WIDTH)
    options = {"functions": [Block], "strict": True, "dump": tmp_path}
    close(torch.compile(model, backend=front.backend, options=options)(x), model(x))
    (written,) = tmp_path.rglob("exported.onnx")
    proto = onnx.load(written)
    assert [function.name for function in proto.functions] == ["Block", "Block"]
    assert [node.op_type for node in proto.graph.node if node.domain] == ["Block"] * 3


class Chooses(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.relu()
        return torch.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x - y, (x, y)), y


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.chooses = Chooses()

    def forward(self, x: Any) -> Any:
        first, second = self.chooses(x * 2)
        return first + 1, second


def test_control_flow_and_several_results_inside_of_a_function() -> None:
    seen: list[Any] = []
    fast = front.compile(Both(), functions=[Chooses], transforms=lambda m: seen.append(m.clone()))
    for x in (torch.ones(4), -torch.ones(4)):
        for got, want in zip(fast(x), Both()(x), strict=True):
            close(got, want)
    ((call,),) = [[node for node in seen[0].graph if node.op_type == "Chooses"]]
    assert len(call.outputs) == 2


def test_weights_that_change_reach_functions() -> None:
    model, x = stacked(), torch.randn(3, WIDTH)
    fast = front.compile(model, functions=[Block])
    close(fast(x), model(x))
    model.blocks[1].linear.weight.mul_(-1)
    close(fast(x), model(x))


def test_bert_with_its_layers_as_functions() -> None:
    model, seen = bert().requires_grad_(False), []
    fast = front.compile(model, functions="BertLayer", transforms=lambda m: seen.append(m.clone()))
    given = text()
    close(fast(**given)[0], model(**given)[0])
    assert ("BertLayer", "") in calls(seen[0])


def test_training_with_functions() -> None:
    losses: list[list[float]] = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = Stacked()
        run = torch.compile(model, backend=front.backend, options={"functions": [Block], "strict": True})
        run = run if compiled else model
        optimizer, x = torch.optim.SGD(model.parameters(), 0.01), torch.randn(4, WIDTH)
        losses.append([])
        for _ in range(4):
            loss = run(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_a_module_that_is_called_from_the_middle_is_refused() -> None:
    x = ir.Value(name="x")
    nodes: list[ir.Node] = []
    for name in ("first", "between", "last"):
        nodes.append(ir.Node("", "Relu", [nodes[-1].outputs[0] if nodes else x], name=name))
        nodes[-1].metadata_props["pkg.torch.onnx.name_scopes"] = f"['{name}']"
    graph = ir.Graph([x], nodes[-1].outputs, nodes=nodes, opset_imports={"": 20})
    stack = {"key": ("part", "lib.Part")}
    traced = [
        SimpleNamespace(name=name, meta={"nn_module_stack": stack if name != "between" else {}})
        for name in ("first", "between", "last")
    ]
    program = SimpleNamespace(graph=SimpleNamespace(nodes=traced))
    with pytest.raises(UnsupportedError, match=r"'part' \(lib.Part\) can't be a function: 'last' in it reads"):
        keep_functions(ir.Model(graph, ir_version=10), program, ["Part"])


def test_functions_that_make_no_sense() -> None:
    x = torch.randn(2, WIDTH)
    with pytest.raises(OptionError, match="no submodule of the class or path 'Encoder'"):
        front.compile(stacked(), functions=["Encoder"])(x)
    with pytest.raises(OptionError, match="no submodule of the class or path 'Conv2d'"):
        front.compile(stacked(), functions=[nn.Conv2d])(x)
    with pytest.raises(OptionError, match="functions must be classes of modules, their names or paths, not 3"):
        front.compile(stacked(), functions=[3])
    with pytest.raises(OptionError, match="functions= needs exporter='dynamo'"):
        front.compile(stacked(), functions=[Block], exporter="legacy")
