"""The import law: imports between the layers point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ortisan"
ALLOWED = {
    "registry": {"registry", "errors"},
    "converter": {"converter", "registry", "errors"},
    "codegen": {"codegen", "registry", "errors"},
    "runtime": {"runtime", "registry", "converter", "errors", "_version"},
}
FRONT = PACKAGE / "torch"
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
        heavy = HEAVY - {"torch", "transformers"} if FRONT in path.parents else HEAVY
        assert not {name.split(".")[0] for name in imports(path)} & heavy, path


def test_nothing_imports_the_torch_front() -> None:
    for path in PACKAGE.rglob("*.py"):
        if FRONT not in path.parents:
            assert not [name for name in imports(path) if f"{name}.".startswith("ortisan.torch.")], path


def test_importing_ortisan_imports_no_torch() -> None:
    code = (
        "import sys, ortisan, ortisan.cli; assert 'torch' not in sys.modules; assert 'ortisan.torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_front_says_what_to_install() -> None:
    code = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
sys.modules["torch"] = None
import ortisan
try:
    ortisan.torch
except ortisan.OrtisanError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'ortisan[torch]'" in printed


def test_only_the_toolchain_starts_processes() -> None:
    users = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "subprocess" in imports(path)}
    assert users == {"codegen/toolchain.py"}


def test_only_the_worker_imports_aitemplate_and_it_needs_nothing_of_ours() -> None:
    for path in WORKER.rglob("*.py"):
        for name in imports(path):
            outside = name.startswith("ortisan.") and not name.startswith("ortisan.codegen.ait.worker.")
            assert not outside, f"{path.relative_to(PACKAGE)} imports {name}"
