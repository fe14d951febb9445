"""Writes docs/torch-ops.md: `python tools/list_torch_ops.py docs/torch-ops.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from ortisan.torch.document import render_torch_ops

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_torch_ops(), encoding="utf-8")
