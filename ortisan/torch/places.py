"""Says where in the caller's code a graph, or an op of it, comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import fx

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_ROOT = re.compile(r"^(L\['\w*'\]|self|inner)\.?")
_TORCH = str(Path(torch.__file__).parent)


def place_of(nodes: Iterable[fx.Node], reason: str) -> str:
    """The line and the module of the op that the reason names, else the line where the graph starts; or nothing."""
    calls = [node for node in nodes if node.op == "call_function"]
    meant = [node for node in calls if _name(node) and _name(node) in reason]
    for node in (*meant, *calls):
        line = _line(node.meta.get("stack_trace") or "")
        if line:
            module = _module(node) if node in meant else ""
            return f"at {line}{module}"
    return ""


def _name(node: fx.Node) -> str:
    """The op without its overload: "aten.bernoulli"."""
    parts = str(node.target).split(".")
    return ".".join(parts[:2]) if len(parts) > 1 else ""


def _line(trace: str) -> str:
    """The innermost line of a trace that is not torch's own."""
    frames = [frame for frame in _FRAME.finditer(trace) if not frame["file"].startswith(_TORCH)]
    return f"{Path(frames[-1]['file']).name}:{frames[-1]['line']}" if frames else ""


def _module(node: fx.Node) -> str:
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else kind.__name__
    path = _ROOT.sub("", path)
    return f" in '{path}' ({name.rpartition('.')[2]})" if path else f" in {name.rpartition('.')[2]}"
