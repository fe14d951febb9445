"""What is known of an op or of a scalar function on CPUs stands in its row, and nowhere else."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import ortisan
import ortisan.codegen.cpu
from ortisan.codegen.cpu.kernels import KERNELS, kernel_of
from ortisan.codegen.render import TEMPLATES
from ortisan.errors import UnsupportedError
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, TensorType, Value
from ortisan.registry.ops import Pool2d, Softmax
from ortisan.registry.scalars import SCALARS
from tests.models.text import text_model

OUTSIDE_KERNELS = [
    path for path in Path(ortisan.codegen.cpu.__file__).parent.rglob("*.py") if "kernels" not in path.parent.parts
]


def test_only_kernels_know_the_classes_of_ops() -> None:
    """Everything else asks the rows, so an op is known in one place. There is no exception."""
    assert len(OUTSIDE_KERNELS) > 10
    assert [path.name for path in OUTSIDE_KERNELS if "registry.ops" in path.read_text()] == []


def test_fast_paths_are_declared_where_there_are_any() -> None:
    headers = "\n".join(path.read_text() for path in (TEMPLATES / "cpu").rglob("*.h"))
    tests = set(re.findall(r"^(?:ORTISAN_BOTH )?inline uint32_t leaves_(\w+)\(", headers, re.MULTILINE))
    assert {row.cpp for row in SCALARS.values() if row.fast_path} == tests - {"cast"}


def test_what_a_scalar_function_costs_is_said_in_its_row_only() -> None:
    """Not in sets of names, which would keep names that have no row."""
    named = {row.cpp for row in SCALARS.values() if row.expensive or row.fast_path}
    for path in OUTSIDE_KERNELS:
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not named & {node.value for node in nodes if isinstance(node, ast.Constant)}, path.name


@pytest.mark.parametrize("cpp", sorted({row.cpp for row in SCALARS.values()}))
def test_rows_of_one_cpp_function_agree_on_its_cost(cpp: str) -> None:
    assert len({(row.expensive, row.fast_path) for row in SCALARS.values() if row.cpp == cpp}) == 1


def test_an_op_without_a_row_is_refused_by_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KERNELS, Pool2d)
    image = Value("x", TensorType(DType.FLOAT32, (1, 4, 4, 2)))
    node = Node(Pool2d("max", (2, 2), (2, 2)), (image,), (image,), "the pool")
    with pytest.raises(UnsupportedError, match=r"'the pool': there is no CPU kernel for pool2d"):
        kernel_of(node)


def test_a_row_names_the_templates_of_its_emitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, Softmax, replace(KERNELS[Softmax], templates=()))
    with pytest.raises(ortisan.InternalError, match="the row of softmax does not name the template 'base/call'"):
        ortisan.compile(text_model("(float[B,4] x) => (float[B,4] y)", "y = Softmax(x)"), whole_graph=True)
