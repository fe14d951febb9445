"""Imports the Python module of a built library from its file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from ortisan.errors import ToolchainError


def import_binding(path: Path | None) -> ModuleType:
    """The module in this file. pybind11 gives the module it made before when the full name is the same, whatever the
    file, so the name has that of the folder in it.
    """
    if path is None:
        raise ToolchainError("the library was built without its Python module")
    name = f"ortisan_{path.parent.name}.{path.name.partition('.')[0]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolchainError(f"'{path}' can't be imported as a Python module")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ToolchainError(f"'{path}' can't be imported: {error}") from error
    return module
