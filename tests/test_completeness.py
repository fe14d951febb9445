"""The life of an op: one stem and one family in the registry, the CPU target, the tests and the documentation."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from ortisan.codegen.ait.ops import AIT_OPS
from ortisan.codegen.cpu.call import call_of
from ortisan.codegen.cpu.folders import KERNEL_FOLDERS, LIBRARY_FOLDERS, TIMER_FOLDERS
from ortisan.codegen.cpu.isa import ISAS
from ortisan.codegen.cpu.kernels import KERNELS
from ortisan.codegen.render import TEMPLATES
from ortisan.registry.document import family, op_classes, render_document
from ortisan.registry.entries import entries
from ortisan.registry.graph import Op
from ortisan.registry.scalars import SCALARS
from ortisan.registry.snippets import DOMAIN as SNIPPETS

ROOT = Path(__file__).parent.parent
FAMILIES = {path.stem for path in (ROOT / "ortisan" / "registry" / "ops").glob("*.py")} - {"__init__"}


def _modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir() if path.name[0] not in "._"}


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_has_a_kernel_a_test_and_a_meaning(op: type[Op]) -> None:
    assert (KERNELS[op].emit is None) == op.view
    assert (ROOT / "tests" / "ops" / f"test_{op.stem}.py").exists()
    assert op.__doc__
    assert op.reference is not Op.reference
    assert op.infer is not Op.infer


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_every_op_says_what_it_is_in_aitemplate(op: type[Op]) -> None:
    assert (op.ait is not None) == (op in AIT_OPS)
    if op in AIT_OPS:
        row = AIT_OPS[op]
        assert row.op is op
        assert (row.rule is None) == (row.call is None), "what AITemplate has needs a rule and a call"
        assert row.call or row.compose or row.ours, "a row says what becomes of the op"
        assert ("ours" in (op.ait or "").split("; ")) == (row.ours is not None)


MADE_BY_BUILDER = {"Cast": "cast", "Elementwise": "elementwise", "Permute": "permute", "Reshape": "reshape"}
"""Ops that entries make by a method of the builder."""


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_offers_its_ops_and_nothing_else(family: str) -> None:
    module = import_module(f"ortisan.registry.ops.{family}")
    ops = {name for name, c in vars(module).items() if isinstance(c, type) and issubclass(c, Op) and c is not Op}
    assert set(module.__all__) == {name for name in ops if vars(module)[name].__module__ == module.__name__}


def test_families_have_one_name_everywhere() -> None:
    assert _modules(ROOT / "ortisan" / "registry" / "lower") == FAMILIES
    assert _modules(ROOT / "ortisan" / "codegen" / "ait" / "ops") == FAMILIES
    for entry in entries():
        if entry.domain != SNIPPETS:
            assert family(entry.lower.__module__) in FAMILIES, f"{entry.op_type} is lowered outside of the families"


@pytest.mark.parametrize("op", [c for c in op_classes() if c.__name__ != "Move"], ids=lambda c: c.stem)
def test_an_op_is_lowered_to_and_given_to_aitemplate_in_its_own_family(op: type[Op]) -> None:
    name = family(op.__module__)
    if op in AIT_OPS:
        assert AIT_OPS[op] in import_module(f"ortisan.codegen.ait.ops.{name}").OPS
    lower = ROOT / "ortisan" / "registry" / "lower"
    sources = [lower / f"{name}.py"] if (lower / f"{name}.py").exists() else (lower / name).glob("*.py")
    calls = {
        call.func for path in sources for call in ast.walk(ast.parse(path.read_text())) if isinstance(call, ast.Call)
    }
    called = {f.id if isinstance(f, ast.Name) else f.attr for f in calls if isinstance(f, (ast.Name, ast.Attribute))}
    assert {op.__name__, MADE_BY_BUILDER.get(op.__name__)} & called, f"no entry of lower/{name} makes it"


def test_cpu_kernels_have_the_families_of_the_ops() -> None:
    assert _modules(ROOT / "ortisan" / "codegen" / "cpu" / "kernels") == FAMILIES


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_kernel_is_in_the_family_of_its_op(family: str) -> None:
    rows = import_module(f"ortisan.codegen.cpu.kernels.{family}").KERNELS
    assert {row.op.__module__ for row in rows} == {f"ortisan.registry.ops.{family}"}
    assert len({row.op for row in rows}) == len(rows), "an op has two rows"
    assert all(KERNELS[row.op] is row for row in rows)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_templates_of_a_family_are_in_the_folder_of_its_name(family: str) -> None:
    rows = import_module(f"ortisan.codegen.cpu.kernels.{family}").KERNELS
    used = {template.path for row in rows for template in row.templates} - {call_of().path}
    assert {path.rpartition("/")[0] for path in used} <= {f"cpu/{family}"}


def test_every_folder_of_kernels_is_a_family_or_shared_by_all() -> None:
    folders = {path.name for path in (TEMPLATES / "cpu").iterdir()}
    assert folders == {"base", "math", "tune", "glue", *FAMILIES}
    assert set(KERNEL_FOLDERS) == {f"cpu/{name}" for name in folders - {"tune", "glue"}}


@pytest.mark.parametrize("folders", [LIBRARY_FOLDERS, TIMER_FOLDERS])
def test_files_of_one_source_folder_have_different_names(folders: tuple[str, ...]) -> None:
    names = [path.name for folder in folders for path in (TEMPLATES / folder).iterdir() if path.suffix != ".j2"]
    assert len(set(names)) == len(names)


def test_every_scalar_has_a_cpp_function() -> None:
    headers = "\n".join(path.read_text() for path in (TEMPLATES / "cpu").rglob("*.h"))
    defined = set(re.findall(r"^(?:ORTISAN_BOTH )?inline [\w<>:, ]+ (\w+)\(", headers, re.MULTILINE))
    assert {row.cpp for row in SCALARS.values()} <= defined


def test_every_template_is_used_and_includes_headers_that_exist() -> None:
    files = {path.relative_to(TEMPLATES).as_posix() for path in (TEMPLATES / "cpu").rglob("*.cpp.j2")}
    used = {template for row in KERNELS.values() for template in row.templates}
    frames = {f"cpu/base/{name}.cpp.j2" for name in ("graph", "graphs", "instance", "kernels")}
    assert files - frames == {template.path for template in used}
    assert all((TEMPLATES / "cpu" / f"{template.instance}.j2").is_file() for template in used if template.instance)
    headers = {path.name for path in TEMPLATES.rglob("*.h")}
    assert {header for template in used for header in template.headers} <= headers


def test_the_list_of_ops_is_current() -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == render_document(KERNELS), "run `make docs`"


def test_the_list_of_ops_says_what_runs_on_cpus() -> None:
    rows = {line.split(" | ")[0].strip("| "): line for line in render_document(KERNELS).splitlines() if " | " in line}
    assert " | kernel | " in rows["gemm"]
    assert " | view | " in rows["reshape"]
    on_cpus = {
        cells[1]: cells[-1].strip(" |")
        for line in render_document(KERNELS).splitlines()
        if len(cells := line.split(" | ")) == 5
    }
    assert {name for name, cpu in on_cpus.items() if cpu == "no"} == set()
    assert on_cpus["GlobalAveragePool"] == "yes"


def test_the_library_can_look_up_every_feature_of_every_instruction_set() -> None:
    """A feature that cpu_features.h does not know counts as missing on every CPU."""
    known = set(re.findall(r'\{"(\w+)"', (TEMPLATES / "cpu" / "glue" / "cpu_features.h").read_text()))
    assert {feature for isa in ISAS.values() for feature in isa.features} <= known
