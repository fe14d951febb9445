"""The life of an op: one stem in the registry, the CPU target, the tests and the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from ortisan.codegen.ait.calls import ROWS
from ortisan.codegen.ait.compose import COMPOSITIONS
from ortisan.codegen.ait.rules import RULES
from ortisan.codegen.cpu.kernels import EMITTERS
from ortisan.codegen.cpu.source import _HEADERS
from ortisan.codegen.render import TEMPLATES
from ortisan.registry.document import op_classes, render_document
from ortisan.registry.graph import Op
from ortisan.registry.ops import Conv2d, Pool2d
from ortisan.registry.scalars import SCALARS

NOT_ON_CPUS = {Conv2d, Pool2d}
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_has_a_kernel_a_test_and_a_meaning(op: type[Op]) -> None:
    assert op.view or op in EMITTERS or op in NOT_ON_CPUS
    assert (ROOT / "tests" / "ops" / f"test_{op.stem}.py").exists()
    assert op.__doc__
    assert op.reference is not Op.reference
    assert op.infer is not Op.infer


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_says_what_it_is_in_aitemplate(op: type[Op]) -> None:
    assert (op.ait is not None) == (op in RULES or op in COMPOSITIONS)
    assert op not in RULES or op in ROWS, "what AITemplate has needs a call"


def test_every_scalar_has_a_cpp_function() -> None:
    headers = "\n".join(path.read_text() for path in (TEMPLATES / "cpu").glob("*.h"))
    missing = [row.cpp for row in SCALARS.values() if f" {row.cpp}(" not in headers]
    assert not missing


def test_every_template_is_used() -> None:
    kernels = {path.name.removesuffix(".cpp.j2") for path in (TEMPLATES / "cpu").glob("*.cpp.j2")}
    assert kernels - {"graph", "graphs"} == set(_HEADERS)


def test_the_list_of_ops_is_current() -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == render_document(), "run `make docs`"
