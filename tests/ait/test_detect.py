"""The real AITemplate is told from what is not it; each lack is one sentence that says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ortisan.codegen.ait import detect
from ortisan.codegen.ait.adapter import AitSettings, run_worker
from ortisan.codegen.ait.detect import CHECKOUT, PYTHON, check_import, find_aitemplate
from ortisan.errors import ToolchainError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a checkout of AITemplate looks like from outside."""
    package = tmp_path / "python" / "aitemplate"
    (package / "compiler").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "_libinfo.py").write_text('__version__ = "0.3.dev0"\n')
    (package / "compiler" / "__init__.py").touch()
    (package / "compiler" / "compiler.py").write_text(
        "def compile_model(tensor, target, workdir, test_name):\n    pass\n"
    )
    header = tmp_path / "3rdparty" / "cutlass" / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    header.touch()
    return tmp_path


def test_a_checkout_is_found(checkout: Path) -> None:
    install = find_aitemplate({CHECKOUT: str(checkout)})
    assert install.root == checkout
    assert install.cutlass == checkout / "3rdparty" / "cutlass"
    assert (install.python, install.version, install.commit) == (sys.executable, "0.3.dev0", "")


def test_another_folder_is_not_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no checkout of AITemplate: it has no python/aitemplate"):
        find_aitemplate({CHECKOUT: str(tmp_path)})


def test_without_cutlass_the_submodule_is_named(checkout: Path) -> None:
    (checkout / "3rdparty" / "cutlass" / "include" / "cutlass" / "cutlass.h").unlink()
    with pytest.raises(ToolchainError, match="git submodule update --init 3rdparty/cutlass"):
        find_aitemplate({CHECKOUT: str(checkout)})


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_locations", lambda python: ())
    with pytest.raises(
        ToolchainError, match=r"AITemplate was not found: .* PyPI's package of that name is another one"
    ):
        find_aitemplate({})


def test_the_package_on_pypi_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_locations", lambda python: (str(tmp_path),))
    with pytest.raises(ToolchainError, match="is not AITemplate but another package of that name"):
        find_aitemplate({})


def test_a_python_that_is_not_there(checkout: Path) -> None:
    with pytest.raises(ToolchainError, match=f"{PYTHON} is 'no-such-python', but there is no such program"):
        find_aitemplate({CHECKOUT: str(checkout), PYTHON: "no-such-python"})


def test_a_package_that_does_not_import(checkout: Path) -> None:
    (checkout / "python" / "aitemplate" / "__init__.py").write_text("import no_such_torch\n")
    with pytest.raises(ToolchainError, match=r"can't be imported by .*No module named 'no_such_torch'"):
        check_import(find_aitemplate({CHECKOUT: str(checkout)}))


def test_a_worker_that_can_not_import_says_so(checkout: Path, tmp_path: Path) -> None:
    (checkout / "python" / "aitemplate" / "__init__.py").write_text("import no_such_torch\n")
    (tmp_path / "job").mkdir()
    with pytest.raises(ToolchainError, match="No module named 'no_such_torch'"):
        run_worker(
            find_aitemplate({CHECKOUT: str(checkout)}), AitSettings("80"), [{"mode": "construct"}], tmp_path / "job"
        )


@pytest.mark.aitemplate
def test_the_real_one() -> None:
    install = find_aitemplate()
    check_import(install)
    assert install.version
