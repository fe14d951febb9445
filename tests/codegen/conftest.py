"""The library `tiny`, built once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ortisan.codegen.cpu.build import Built
from ortisan.codegen.tools.binding import import_binding
from tests.codegen.tiny_library import build_tiny


@pytest.fixture(scope="session")
def tiny(build_cache: Path) -> Built:
    """The library, with its Python binding."""
    return build_tiny(bindings=True)


@pytest.fixture(scope="session")
def binding(tiny: Built) -> ModuleType:
    """The Python binding of tiny, imported."""
    return import_binding(tiny.binding)
