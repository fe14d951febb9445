"""The import law: imports between the layers point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ortisan"
ALLOWED = {
    "registry": {"registry", "errors"},
    "converter": {"converter", "registry", "errors"},
    "codegen": {"codegen", "registry", "errors"},
    "runtime": {"runtime", "registry", "converter", "errors", "_version"},
}
HEAVY = {"torch", "transformers", "openvino", "aitemplate"}


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("layer", ALLOWED)
def test_layers_import_only_what_is_below(layer: str) -> None:
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "ortisan":
                assert len(parts) > 1, f"{path} imports the facade"
                assert parts[1] in ALLOWED[layer], f"{path.relative_to(PACKAGE)} imports {name}"


def test_the_registry_reads_no_onnx() -> None:
    for path in (PACKAGE / "registry").rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & {"onnx", "onnx_ir", "onnxscript", "onnxruntime"}, (
            path
        )


WORKER = PACKAGE / "codegen" / "ait" / "worker"


def test_extras_are_never_needed_by_the_core() -> None:
    for path in PACKAGE.rglob("*.py"):
        if WORKER in path.parents:
            continue
        assert not {name.split(".")[0] for name in imports(path)} & HEAVY, path


def test_only_the_toolchain_starts_processes() -> None:
    users = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "subprocess" in imports(path)}
    assert users == {"codegen/toolchain.py"}


def test_only_the_worker_imports_aitemplate_and_it_needs_nothing_of_ours() -> None:
    for path in WORKER.rglob("*.py"):
        for name in imports(path):
            outside = name.startswith("ortisan.") and not name.startswith("ortisan.codegen.ait.worker.")
            assert not outside, f"{path.relative_to(PACKAGE)} imports {name}"
