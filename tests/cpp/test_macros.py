"""Macros of the templates end where their file ends."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ortisan.codegen.render import TEMPLATES

SHARED = {
    TEMPLATES / "cpu/base/macros.h": TEMPLATES / "cpu/base/end_macros.h",
    TEMPLATES / "emulator/elements.h": TEMPLATES / "emulator/end_elements.h",
}
"""Macros for several files, and where they end: included last by each file that includes the others."""


def named(directive: str, texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(rf"^#{directive} (\w+)", text, re.MULTILINE)}


def test_every_file_undefines_what_it_defines() -> None:
    files = [path for path in TEMPLATES.rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".j2")]
    assert len(files) > 80
    for path in files:
        if path not in {*SHARED, *SHARED.values()}:
            text = [path.read_text(encoding="utf-8")]
            assert named("define", text) <= named("undef", text), path


def test_shared_macros_end_with_the_file_that_uses_them() -> None:
    for begin, end in SHARED.items():
        assert named("define", [begin.read_text()]) == named("undef", [end.read_text()]) != set()
    for template in ("cpu/base/graphs.cpp.j2", "cpu/tune/products.cpp"):
        assert (TEMPLATES / template).read_text().endswith('#include "end_macros.h"\n')
    for handlers in (TEMPLATES / "emulator").glob("*.cpp"):
        text = handlers.read_text()
        assert ('#include "elements.h"' in text) == text.endswith('#include "end_elements.h"\n'), handlers
