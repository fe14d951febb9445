"""The PyTorch front end: a torch.compile backend, a module wrapper, and tools to inspect what they do.

`import ortisan` never imports torch; this package does, and raises an error that says what to install if it is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ortisan.errors import ToolchainError

if importlib.util.find_spec("torch") is None:
    raise ToolchainError("ortisan.torch needs PyTorch, which is not installed; pip install 'ortisan[torch]'")

if TYPE_CHECKING:
    from ortisan.torch.building import build
    from ortisan.torch.custom import map_op, unmap_op
    from ortisan.torch.dynamo import ortisan as backend
    from ortisan.torch.explaining import Explanation, explain
    from ortisan.torch.intercepting import Call, intercept
    from ortisan.torch.module import CacheInfo, OrtisanModule, compile
    from ortisan.torch.ops import RegisteredOp, register_op, registered_ops

_HOMES = {
    "backend": ("dynamo", "ortisan"),
    "build": ("building", "build"),
    "Call": ("intercepting", "Call"),
    "CacheInfo": ("module", "CacheInfo"),
    "Explanation": ("explaining", "Explanation"),
    "OrtisanModule": ("module", "OrtisanModule"),
    "compile": ("module", "compile"),
    "explain": ("explaining", "explain"),
    "intercept": ("intercepting", "intercept"),
    "map_op": ("custom", "map_op"),
    "RegisteredOp": ("ops", "RegisteredOp"),
    "register_op": ("ops", "register_op"),
    "registered_ops": ("ops", "registered_ops"),
    "unmap_op": ("custom", "unmap_op"),
}

__all__ = [
    "CacheInfo",
    "Call",
    "Explanation",
    "OrtisanModule",
    "RegisteredOp",
    "backend",
    "build",
    "compile",
    "explain",
    "intercept",
    "map_op",
    "register_op",
    "registered_ops",
    "unmap_op",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ortisan.torch' has no attribute '{name}'")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(f"ortisan.torch.{module}"), attribute)
