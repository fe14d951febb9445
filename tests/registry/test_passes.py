"""Op-graph passes: one runner that rewrites, verifies and prints, and the passes that serve any target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import ortisan
from ortisan.models import BertSize, bert
from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, Node, TensorType, Value
from ortisan.registry.ops import Conv2d, Elementwise, Permute, Size
from ortisan.registry.passes.channels_last import channels_last
from ortisan.registry.passes.fold_affine import fold_affine
from ortisan.registry.passes.narrow import narrow
from ortisan.registry.passes.rewrite import PASSES, Rule, run_pass
from ortisan.registry.verify import IllegalGraph, verify_graph
from tests.ops.arrays import values
from tests.tolerances import APPROXIMATE

CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def image_graph(*after: tuple[str, Value], shared: bool = False, filters: int = 6) -> Graph:
    """A convolution of x[b,4,5,5], and what is done with its result, as ONNX has it: the channels first."""
    b = Builder("image")
    x = b.input("x", TensorType(DType.FLOAT32, (symbol("b"), 4, 5, 5)))
    b.origin = "conv"
    w = b.constant(values(filters, 3, 3, 4), "w")
    y = first = b.permute(b.add(Conv2d(), b.permute(x, CHANNELS_LAST), w), CHANNELS_FIRST)
    for index, (func, constant) in enumerate(after):
        b.origin = f"after_{index}"
        y = b.elementwise(func, y, constant)
    return b.finish([y, first] if shared else [y], bounds={"b": (1, 4)})


def per_channel(*numbers: float) -> Value:
    return Builder("").constant(np.array(numbers, np.float32).reshape(-1, 1, 1), "numbers")


FACTORS, TERMS = per_channel(*range(1, 7)), per_channel(*range(-3, 3))


def same(graph: Graph, changed: Graph) -> None:
    x = values(2, 4, 5, 5, seed=3)
    for have, want in zip(evaluate_graph(changed, [x]), evaluate_graph(graph, [x]), strict=True):
        np.testing.assert_allclose(have, want, rtol=APPROXIMATE, atol=APPROXIMATE)


def kinds(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_permutes_move_behind_elementwise_nodes() -> None:
    graph = image_graph(("MUL", FACTORS), ("ADD", TERMS))
    changed = channels_last(graph)
    assert kinds(changed) == ["permute", "conv2d", "elementwise.mul", "elementwise.add", "permute"]
    same(graph, changed)


def test_factors_and_terms_per_channel_join_the_convolution() -> None:
    graph = image_graph(("MUL", FACTORS), ("ADD", TERMS))
    folded = fold_affine(channels_last(graph))
    assert kinds(folded) == ["permute", "conv2d", "permute"]
    conv = folded.nodes[1]
    assert conv.op == Conv2d(bias=True)
    assert conv.origin == "conv", "a target's refusal is about the convolution"
    same(graph, folded)


def test_a_convolution_that_is_read_elsewhere_is_not_computed_twice() -> None:
    graph = image_graph(("MUL", FACTORS), shared=True)
    folded = fold_affine(channels_last(graph))
    assert [node.op for node in folded.nodes if node.op.name == "conv2d"] == [Conv2d()]
    same(graph, folded)


@pytest.mark.parametrize("constant", [np.float32(2), values(6, 3, 3)], ids=["one number", "one per element"])
def test_other_constants_are_not_folded(constant: np.ndarray) -> None:
    graph = image_graph(("MUL", Builder("").constant(np.asarray(constant), "c")))
    assert "elementwise.mul" in kinds(fold_affine(channels_last(graph)))


def test_a_number_is_no_channel_even_where_there_is_one() -> None:
    graph = image_graph(("MUL", Builder("").constant(np.float32(2).reshape(()), "two")), filters=1)
    same(graph, fold_affine(channels_last(graph)))


def test_dims_that_are_an_output_pass_through_float16() -> None:
    b = Builder("dims")
    b.origin = "shape"
    b.input("x", TensorType(DType.FLOAT32, (symbol("b"), 3)))
    graph = b.finish([b.add(Size((symbol("b"),)))])
    half = narrow(graph)
    verify_graph(half)
    assert evaluate_graph(half, [values(5, 3)])[0].tolist() == [5]


class _Loses(Rule):
    """Stands for an op by a value that nothing makes."""

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        return [Value("lost", node.output.type)] if isinstance(node.op, Permute) else None


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    with pytest.raises(IllegalGraph, match="image after channels_last: output lost is never defined"):
        run_pass("channels_last", image_graph(), _Loses())


class _Nothing(Rule):
    pass


def test_a_rule_without_changes_keeps_everything() -> None:
    graph = image_graph(("MUL", FACTORS))
    again = run_pass("channels_last", graph, _Nothing())
    assert str(again) == str(graph)
    assert (again.guards, again.bounds, again.output_names) == (graph.guards, graph.bounds, graph.output_names)


def test_a_pass_without_a_name_in_the_table_is_a_bug() -> None:
    with pytest.raises(KeyError, match="PASSES"):
        run_pass("nameless", image_graph(), _Nothing())


@pytest.mark.parametrize("asked", ["after:fold_affine", "before:narrow, after:fold_affine"])
def test_graphs_are_printed_when_asked_for(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTISAN_PRINT", asked)
    folded = fold_affine(channels_last(image_graph(("MUL", FACTORS), ("ADD", TERMS))))
    printed = capsys.readouterr()
    assert printed.err == f"# after fold_affine: image, 5 -> 3 nodes\n{folded}\n\n"
    assert not printed.out


@pytest.mark.parametrize("every", ["after:*,before:*", "after:all,before:all"])
def test_every_pass_is_printed_when_asked_for(
    every: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTISAN_PRINT", every)
    narrow(channels_last(image_graph(("MUL", FACTORS))))
    heads = [line for line in capsys.readouterr().err.splitlines() if line.startswith("#")]
    assert heads == [
        "# before channels_last: image, 4 nodes",
        "# after channels_last: image, 4 -> 4 nodes",
        "# before narrow: image, 4 nodes",
        "# after narrow: image, 4 -> 6 nodes",
    ]


def test_nothing_is_printed_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    channels_last(image_graph(("MUL", FACTORS)))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_what_models_are_lowered_to_is_printed_for_every_target(
    target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTISAN_PRINT", "after:lower")
    compiled = ortisan.compile(bert(BertSize(1, 16, 2, 32, 20, 8)), target=target, name="bert")
    graph = compiled.graphs[0]
    assert capsys.readouterr().err == f"# after lower: bert_0, {len(graph.nodes)} nodes\n{graph}\n\n"


@pytest.mark.parametrize("asked", ["after:layout", "channels_last", "before:lower"])
def test_an_unknown_pass_is_refused_with_the_known_ones(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTISAN_PRINT", asked)
    with pytest.raises(ortisan.OptionError, match=f"'{asked}' names no op graph.*{', '.join(PASSES)}"):
        ortisan.compile(bert(BertSize(1, 16, 2, 32, 20, 8)), target="reference")


def test_elementwise_ops_of_other_functions_are_left() -> None:
    graph = image_graph(("SUB", TERMS))
    changed = fold_affine(channels_last(graph))
    assert any(isinstance(node.op, Elementwise) for node in changed.nodes)
    same(graph, changed)


def test_the_documentation_lists_every_pass() -> None:
    text = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")
    missing = [name for name, meaning in PASSES.items() if f"| `{name}` | {meaning} |" not in text]
    assert not missing
