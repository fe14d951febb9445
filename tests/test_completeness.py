"""The life of an op: one stem and one family in the registry, the CPU target, the tests and the documentation."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from ortisan.codegen.ait.calls import ROWS
from ortisan.codegen.ait.compose import COMPOSITIONS
from ortisan.codegen.ait.rules import RULES
from ortisan.codegen.cpu.kernels import KERNELS
from ortisan.codegen.cpu.packing import panel_width
from ortisan.codegen.render import TEMPLATES
from ortisan.registry.document import op_classes, render_document
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Op
from ortisan.registry.ops import Conv2d, Pool2d
from ortisan.registry.scalars import SCALARS

NOT_ON_CPUS = {Conv2d, Pool2d}
ROOT = Path(__file__).parent.parent
OUTSIDE_KERNELS = [
    path for path in (ROOT / "ortisan" / "codegen" / "cpu").rglob("*.py") if path.parent.name != "kernels"
]
FAMILIES = frozenset(
    {
        "attention",
        "cache",
        "elementwise",
        "gather",
        "generate",
        "images",
        "move",
        "products",
        "reduce",
        "rotary",
        "rows",
    }
)
FOLDERS = {"registry.ops": FAMILIES, "codegen.cpu.kernels": FAMILIES - {"images"}}
"""The packages that have one module per family, and the families of each."""


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_has_a_kernel_a_test_and_a_meaning(op: type[Op]) -> None:
    assert (op in KERNELS) == (op not in NOT_ON_CPUS)
    assert op in NOT_ON_CPUS or (KERNELS[op].emit is None) == op.view
    assert (ROOT / "tests" / "ops" / f"test_{op.stem}.py").exists()
    assert op.__doc__
    assert op.reference is not Op.reference
    assert op.infer is not Op.infer


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_says_what_it_is_in_aitemplate(op: type[Op]) -> None:
    assert (op.ait is not None) == (op in RULES or op in COMPOSITIONS)
    assert op not in RULES or op in ROWS, "what AITemplate has needs a call"


@pytest.mark.parametrize("package", FOLDERS)
def test_families_have_one_name(package: str) -> None:
    modules = {path.stem for path in (ROOT / "ortisan").joinpath(*package.split(".")).iterdir()}
    assert modules - {"__init__", "__pycache__"} == FOLDERS[package]


@pytest.mark.parametrize("family", sorted(FOLDERS["codegen.cpu.kernels"]))
def test_a_kernel_is_in_the_family_of_its_op(family: str) -> None:
    rows = import_module(f"ortisan.codegen.cpu.kernels.{family}").KERNELS
    assert {row.op.__module__ for row in rows} == {f"ortisan.registry.ops.{family}"}
    assert len({row.op for row in rows}) == len(rows), "an op has two rows"
    assert all(KERNELS[row.op] is row for row in rows)


def test_only_kernels_know_the_classes_of_ops() -> None:
    """Everything else asks the rows, so an op is known in one place. There is no exception."""
    assert len(OUTSIDE_KERNELS) > 10
    assert [path.name for path in OUTSIDE_KERNELS if "registry.ops" in path.read_text()] == []


def _headers() -> str:
    return "\n".join(path.read_text() for path in sorted((TEMPLATES / "cpu").rglob("*.h")))


def test_every_scalar_has_a_cpp_function() -> None:
    defined = set(re.findall(r"^inline [\w<>:, ]+ (\w+)\(", _headers(), re.MULTILINE))
    assert {row.cpp for row in SCALARS.values()} <= defined


def test_fast_paths_are_declared_where_there_are_any() -> None:
    tests = set(re.findall(r"^inline uint32_t leaves_(\w+)\(", _headers(), re.MULTILINE))
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


def test_every_template_is_used_and_includes_headers_that_exist() -> None:
    files = {path.relative_to(TEMPLATES).as_posix() for path in (TEMPLATES / "cpu").rglob("*.cpp.j2")}
    used = {template for row in KERNELS.values() for template in row.templates}
    assert files - {"cpu/graph.cpp.j2", "cpu/graphs.cpp.j2"} == {template.path for template in used}
    headers = {path.name for path in TEMPLATES.rglob("*.h")}
    assert {header for template in used for header in template.headers} <= headers


def test_the_list_of_ops_is_current() -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == render_document(), "run `make docs`"


def test_panels_are_as_wide_in_python_as_in_cpp() -> None:
    text = (TEMPLATES / "cpu" / "tile.h").read_text()
    assert "panel_width = std::is_same_v<T, double> ? 8 : 16" in text
    assert [panel_width(d) for d in (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.INT32)] == [8, 16, 16, 16]
