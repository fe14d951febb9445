"""The GPUs that AITemplate generates for."""

from __future__ import annotations

from ortisan.errors import OptionError
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node
from ortisan.registry.ops import Bmm, Conv2d, Gemm

_KNOWN = ("75", "80", "90")
_LIKE = {"86": "80", "87": "80", "89": "80"}
"""Architectures that run the code of another."""
_NEWER = ("100", "101", "103", "120", "121")
_ROCM = ("gfx908", "gfx90a")
NO_ROCM = "ONNX Runtime has no ROCm provider since 1.23, and MIGraphX takes no custom ops"


def find_architectures(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The architectures of `cuda:80,90`, without doubles and in order, and notes on what was taken for what."""
    names = [name.strip().removeprefix("sm_") for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("target 'cuda' needs an architecture: cuda:80 for A100, A10, RTX 30 and 40, cuda:90 for H100")
    for name in names:
        if name in _NEWER:
            raise OptionError(
                f"AITemplate does not know sm_{name}; build for cuda:90, whose PTX such a GPU compiles when it loads it"
            )
        if name not in _KNOWN and name not in _LIKE:
            raise OptionError(f"there is no target 'cuda:{name}'; AITemplate knows {', '.join(_KNOWN)}")
    notes = tuple(f"sm_{name} runs the code of sm_{_LIKE[name]}" for name in names if name in _LIKE)
    found = {int(_LIKE.get(name, name)) for name in names}
    return tuple(map(str, sorted(found))), notes


def find_rocm(text: str) -> str:
    if text not in _ROCM:
        raise OptionError(f"there is no target 'rocm:{text}'; AITemplate knows {' and '.join(_ROCM)}")
    return text


def why_not_on(architecture: str, node: Node) -> str | None:
    """Why AITemplate has no kernel of a node for an architecture that it generates other code for."""
    if architecture != "75" or not isinstance(node.op, (Bmm, Conv2d, Gemm)):
        return None
    dtype = node.inputs[0].dtype
    if dtype is not DType.FLOAT16:
        return f"for sm_75 AITemplate multiplies float16 only, not {dtype.value}; use precision='fp16', or cuda:80"
    if isinstance(node.op, Conv2d) and node.op.group > 1:
        return "for sm_75 AITemplate has no depthwise convolution; build for cuda:80"
    return None
