"""Fixtures of the build and of the glue: a build cache for the run, and the library `tiny` built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ortisan.codegen.cpu.build import Built
from ortisan.codegen.tools.binding import import_binding
from tests.codegen.tiny_library import build_tiny


@pytest.fixture(scope="session", autouse=True)
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A build cache for this run of the tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTISAN_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tiny(build_cache: Path) -> Built:
    """The library, with its Python binding."""
    return build_tiny(bindings=True)


@pytest.fixture(scope="session")
def binding(tiny: Built) -> ModuleType:
    """The Python binding of tiny, imported."""
    return import_binding(tiny.binding)
