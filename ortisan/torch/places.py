"""Says where in the caller's code a graph, or an op of it, comes from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_ROOT = re.compile(r"^(L\['\w*'\]|self|inner)\.?")
_TORCH = str(Path(torch.__file__).parent)


def place_of(nodes: Iterable[fx.Node], error: Exception) -> str:
    """The line and the module of what the error is about, else the line where the graph starts; or nothing."""
    reason, names = str(error), getattr(error, "nodes", ())
    calls = [node for node in nodes if node.op == "call_function"]
    meant = [node for node in calls if node.name in names or (_name(node) and _name(node) in reason)]
    for node in (*meant, *calls):
        line = _line(node.meta.get("stack_trace") or "")
        if line:
            module = _module(node) if node in meant else ""
            return f"at {line}{module}"
    return ""


def place_of_onnx(node: ir.Node) -> str:
    """The same of a node that torch.onnx has made."""
    line = _line(node.metadata_props.get("pkg.torch.onnx.stack_trace", ""))
    paths, kinds = (
        ast.literal_eval(node.metadata_props.get(f"pkg.torch.onnx.{key}", "[]"))
        for key in ("name_scopes", "class_hierarchy")
    )
    module = _named(paths[-2], kinds[-2]) if len(paths) == len(kinds) and len(paths) > 1 else ""
    return f"at {line}{module}" if line else ""


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
    return _named(path, kind if isinstance(kind, str) else kind.__name__)


def _named(path: str, name: str) -> str:
    path = _ROOT.sub("", path)
    return f" in '{path}' ({name.rpartition('.')[2]})" if path else f" in {name.rpartition('.')[2]}"
