"""Writes docs/ops.md: `python tools/list_ops.py docs/ops.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ortisan.codegen.cpu.kernels import KERNELS
from ortisan.registry.document import render_document

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_document(KERNELS), encoding="utf-8")
