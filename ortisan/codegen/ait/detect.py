"""Finds the real AITemplate, as the user's settings say where it is.

ORTISAN_AITEMPLATE is the path of a checkout; without it, `aitemplate` is looked for among the packages of the Python
that ORTISAN_AITEMPLATE_PYTHON names, or of this one. The package of that name on PyPI is another one.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from ortisan.codegen.ait.model import AitInstall
from ortisan.codegen.tools.toolchain import ask_tool
from ortisan.errors import ToolchainError

CHECKOUT = "ORTISAN_AITEMPLATE"
PYTHON = "ORTISAN_AITEMPLATE_PYTHON"

_HOW = (
    "clone github.com/facebookincubator/AITemplate with its submodule 3rdparty/cutlass and set "
    f"{CHECKOUT} to the checkout"
)
_LOCATE = """
import importlib.util, json
spec = importlib.util.find_spec("aitemplate")
print(json.dumps([str(p) for p in spec.submodule_search_locations or []] if spec else []))
"""
_IMPORT = """
import os
os.environ["AIT_BUILD_DOCS"] = "1"
import aitemplate.compiler
"""


def find_aitemplate(environ: Mapping[str, str] | None = None) -> AitInstall:
    """The AITemplate to use; a `ToolchainError` says what is wrong when there is none. Nothing is imported yet."""
    environ = os.environ if environ is None else environ
    python = _python(environ)
    checkout = environ.get(CHECKOUT, "").strip()
    if checkout:
        root = Path(checkout).expanduser().resolve()
        package = root / "python" / "aitemplate"
        if not package.is_dir():
            raise ToolchainError(
                f"${CHECKOUT} is '{checkout}', which is no checkout of AITemplate: it has no python/aitemplate; {_HOW}."
            )
        cutlass = root / "3rdparty" / "cutlass"
    else:
        root, package = None, _installed(python)
        cutlass = package / "3rdparty" / "cutlass"
    _check_real(package)
    _check_cutlass(cutlass)
    return AitInstall(python, root, cutlass, _commit(root), _version(package))


def check_import(install: AitInstall) -> None:
    """Raises `ToolchainError` with what Python says when AITemplate can't be imported."""
    code, said = ask_tool([install.python, "-c", _IMPORT], _environment(install))
    if code != 0:
        last = said.strip().splitlines()[-1] if said.strip() else f"exit code {code}"
        raise ToolchainError(
            f"AITemplate can't be imported by {install.python}: {last}; it needs numpy, sympy, jinja2 and torch "
            f"(the CPU build will do). Set {PYTHON} to a Python that has them."
        )


def import_paths(install: AitInstall) -> list[str]:
    """What goes before the other import paths of the Python that runs AITemplate."""
    return [str(install.root / "python")] if install.root is not None else []


def _environment(install: AitInstall) -> dict[str, str]:
    paths = import_paths(install)
    return {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}


def _python(environ: Mapping[str, str]) -> str:
    chosen = environ.get(PYTHON, "").strip()
    if not chosen:
        return sys.executable
    found = shutil.which(chosen, path=environ.get("PATH", os.defpath))
    if found is None:
        raise ToolchainError(f"${PYTHON} is '{chosen}', but there is no such program; unset it or set it to a Python.")
    return found


@functools.cache
def _locations(python: str) -> tuple[str, ...]:
    code, said = ask_tool([python, "-c", _LOCATE], {})
    return tuple(json.loads(said.strip().splitlines()[-1])) if code == 0 and said.strip() else ()


def _installed(python: str) -> Path:
    folders = _locations(python)
    if not folders:
        raise ToolchainError(
            f"AITemplate was not found: ${CHECKOUT} is not set and {python} has no package 'aitemplate'; {_HOW}. "
            "PyPI's package of that name is another one."
        )
    return Path(folders[0])


def _check_real(package: Path) -> None:
    """The real one defines compile_model in aitemplate/compiler/compiler.py."""
    source = package / "compiler" / "compiler.py"
    if not source.is_file() or "def compile_model(" not in source.read_text(encoding="utf-8", errors="replace"):
        raise ToolchainError(
            f"the 'aitemplate' in '{package}' is not AITemplate but another package of that name, which PyPI has; "
            f"uninstall it, {_HOW}."
        )


def _check_cutlass(cutlass: Path) -> None:
    if not (cutlass / "include" / "cutlass" / "cutlass.h").is_file():
        raise ToolchainError(
            f"AITemplate's CUTLASS is not in '{cutlass}'; 'git submodule update --init 3rdparty/cutlass' in the "
            "checkout of AITemplate brings it."
        )


def _commit(root: Path | None) -> str:
    """The checkout's commit, or an empty string."""
    if root is None:
        return ""
    code, said = ask_tool(["git", "-C", str(root), "rev-parse", "HEAD"], {})
    return said.strip() if code == 0 else ""


def _version(package: Path) -> str:
    source = package / "_libinfo.py"
    lines = source.read_text(encoding="utf-8", errors="replace").splitlines() if source.is_file() else []
    found = [line.partition("=")[2].strip().strip("\"'") for line in lines if line.startswith("__version__")]
    return found[0] if found else "unknown"
