"""The import law: imports between the layers point one way, and serving needs none of the compiler."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ortisan.codegen.backend import BACKENDS

PACKAGE = Path(__file__).parent.parent / "ortisan"
BOTTOM = {"errors", "_version"}
ALLOWED = {
    "registry": {"registry"},
    "converter": {"converter", "registry"},
    "codegen": {"codegen", "registry"},
    "emulator": {"emulator", "codegen"},
    "runtime": {"runtime"},
    "checks": {"checks", "runtime", "converter", "registry"},
    "models": {"models", "registry"},
    "pipeline": {"pipeline", "checks", "runtime", "converter", "codegen", "emulator", "registry"},
    "cli": {"cli", "pipeline", "checks", "runtime", "converter", "codegen", "emulator", "registry", "models"},
}
"""Layer -> the layers that it may import, besides the errors and the version."""
ROOT_FILES = {"__init__.py", "__main__.py", "_version.py", "errors.py", "py.typed"}
FRONT = PACKAGE / "torch"
HEAVY = {"torch", "transformers", "openvino", "aitemplate"}
COMPILER = {"onnx", "onnx_ir", "onnxscript", "onnx_shape_inference", "sympy", "jinja2", "pybind11", "rich", "typer"}


def imports(path: Path, *, typing: bool = False) -> set[str]:
    """Full names of the modules that a file imports; with `typing` those for type checkers only, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(inner) for node in ast.walk(tree) if _is_for_types(node) and not typing for inner in ast.walk(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_the_root_holds_folders_and_the_front_door() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} == ROOT_FILES
    layers = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert layers == {*ALLOWED, "templates", "torch"}


@pytest.mark.parametrize("layer", ALLOWED)
def test_layers_import_only_what_is_below(layer: str) -> None:
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "ortisan" and layer != "cli":
                assert len(parts) > 1, f"{path} imports the public API"
            if parts[0] == "ortisan" and len(parts) > 1:
                assert parts[1] in ALLOWED[layer] | BOTTOM, f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize("backend", ["cpu", "ait", "reference"])
def test_backends_do_not_know_each_other(backend: str) -> None:
    others = {"cpu", "ait", "reference"} - {backend}
    for path in (PACKAGE / "codegen" / backend).rglob("*.py"):
        known = [
            name for name in imports(path) for other in others if f"{name}.".startswith(f"ortisan.codegen.{other}.")
        ]
        assert not known, f"{path.relative_to(PACKAGE)} imports {known}"


def test_nothing_outside_of_a_backend_asks_which_one_it_is() -> None:
    kinds = "|".join(BACKENDS)
    asks = re.compile(
        rf"""(target|kind).*["']({kinds})[:"']|["']({kinds})[:"'].*(target|kind)|is_gpu|GraphPlan|AitModel|AitPlan"""
    )
    allowed = {"codegen/backend.py", "pipeline/options.py"}  # the table of backends, and the default target
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(PACKAGE / "codegen" / "cpu")
        and not path.is_relative_to(PACKAGE / "codegen" / "ait")
        and not path.is_relative_to(PACKAGE / "codegen" / "reference")
        and path.relative_to(PACKAGE).as_posix() not in allowed
        for line in _code(path)
        if asks.search(line)
    ]
    assert not found


def _code(path: Path) -> list[str]:
    """The lines of a file without docstrings and comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return [line.partition("  # ")[0] for line in lines if not line.lstrip().startswith("#")]


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


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_ortisan_imports_neither_torch_nor_the_compiler() -> None:
    loaded = run("import sys, ortisan; print(*sys.modules)").split()
    assert not {"torch", "numpy", "onnxruntime", "ortisan.torch", *COMPILER} & set(loaded)


def test_serving_imports_numpy_and_onnxruntime_and_not_the_compiler() -> None:
    loaded = set(run("import sys, ortisan; ortisan.load; print(*sys.modules)").split())
    assert not COMPILER & loaded
    assert not {
        name for name in loaded if name.startswith("ortisan.") and name.split(".")[1] not in ("runtime", *BOTTOM)
    }


def test_the_public_api_is_listed_and_there() -> None:
    code = "import ortisan; assert set(ortisan.__all__) <= set(dir(ortisan)); print([getattr(ortisan, n) for n in ortisan.__all__])"
    assert "function build" in run(code)


def without(package: str, code: str) -> str:
    """What code prints where a package is not installed."""
    return run(f"""
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import ortisan
try:
    {code}
except ortisan.OrtisanError as error:
    print(error)
""")


def test_without_torch_the_front_says_what_to_install() -> None:
    assert "pip install 'ortisan[torch]'" in without("torch", "ortisan.torch")


@pytest.mark.parametrize("package", ["onnx_ir", "onnx", "sympy", "jinja2"])
def test_without_the_compilers_packages_compile_says_what_to_install(package: str) -> None:
    said = without(package, "ortisan.compile('model.onnx')")
    assert package in said
    assert "pip install 'ortisan[compile]'" in said


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_line_says_what_to_install(package: str) -> None:
    said = without(package, "from ortisan.cli import main; sys.stderr = sys.stdout; main()")
    assert "pip install 'ortisan[compile]'" in said


def test_without_onnxruntime_load_says_what_to_install() -> None:
    assert "pip install ortisan[cpu]" in without("onnxruntime", "ortisan.load('somewhere')")


def test_only_two_places_start_processes() -> None:
    """In the worker, which imports nothing of ours, AITemplate starts some, and what stands in for its own way does."""
    users = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "subprocess" in imports(path)}
    assert users - {"codegen/ait/worker/profiling.py"} == {"codegen/tools/toolchain.py", "checks/isolated.py"}


def test_only_the_worker_imports_aitemplate_and_it_needs_nothing_of_ours() -> None:
    for path in WORKER.rglob("*.py"):
        for name in imports(path):
            outside = name.startswith("ortisan.") and not name.startswith("ortisan.codegen.ait.worker.")
            assert not outside, f"{path.relative_to(PACKAGE)} imports {name}"


def test_files_and_functions_are_short() -> None:
    for path in [path for path in PACKAGE.rglob("*.*") if path.suffix in (".py", ".h", ".cpp", ".cu", ".j2")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= 60, f"{path.relative_to(PACKAGE)}: {node.name} has {length} lines"
