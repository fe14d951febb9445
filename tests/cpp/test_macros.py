"""Macros of the templates end where their file ends."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ortisan.codegen.render import TEMPLATES

KERNEL_MACROS = TEMPLATES / "cpu" / "base" / "macros.h"
THEIR_END = TEMPLATES / "cpu" / "base" / "end_macros.h"


def named(directive: str, texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in re.findall(rf"^#{directive} (\w+)", text, re.MULTILINE)}


def test_every_file_undefines_what_it_defines() -> None:
    files = [path for path in TEMPLATES.rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".j2")]
    assert len(files) > 80
    for path in files:
        if path not in (KERNEL_MACROS, THEIR_END):
            text = [path.read_text(encoding="utf-8")]
            assert named("define", text) == named("undef", text), path


def test_what_kernels_share_ends_with_their_file() -> None:
    defined, ended = named("define", [KERNEL_MACROS.read_text()]), named("undef", [THEIR_END.read_text()])
    assert defined == ended != set()
    for template in ("cpu/base/graphs.cpp.j2", "cpu/tune/products.cpp"):
        assert (TEMPLATES / template).read_text().endswith('#include "end_macros.h"\n')
