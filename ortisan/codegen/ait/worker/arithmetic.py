"""The arithmetic of products and convolutions: decided before a tile is chosen or timed, and checked in the sources.

CUTLASS has kernels for float32 that multiply in bfloat16, float16, TF32, three times TF32 or float32. Left to itself
AITemplate takes the fastest, or the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aitemplate.backend.cuda.gemm_universal import common_bias_broadcast

_NARROW = ("multiply_add_fast_bf16", "multiply_add_fast_f16")
_OPERATION = re.compile(r"cutlass::arch::OpMultiplyAdd\w*")
_END_OF_BROADCAST = re.compile(r"(GemmUniversalWithBroadcast<[^;]*\S)(\s*>;)")
_PRODUCTS = ("bmm_", "conv2d_", "gemm_")


def allowed(operators: Mapping[Any, Mapping[str, list[Any]]], *, tf32: bool) -> dict[Any, dict[str, list[Any]]]:
    """CUTLASS's kernels without those whose arithmetic was not asked for: kind -> name -> operations."""
    return {
        kind: {name: found for name, found in named.items() if all(_is_allowed(op, tf32) for op in found)}
        for kind, named in operators.items()
    }


def _is_allowed(operation: Any, tf32: bool) -> bool:
    """float32 is multiplied as three products of TF32 or as it is, with `tf32` as TF32; other types as they are."""
    math = operation.tile_description.math_instruction
    if math.math_operation.name in _NARROW:
        return False
    if not hasattr(operation, "A") or operation.A.element.name != "f32":
        return True
    plain_tf32 = math.element_a.name == "tf32" and math.math_operation.name == "multiply_add"
    return bool(plain_tf32 == tf32)


def keep_operations() -> None:
    """Lets products that add or multiply a tensor keep their operation: AITemplate drops it, and CUTLASS takes TF32."""
    convert = common_bias_broadcast.gemm_bias_broadcast_instance

    def convert_and_keep(op_def: str, *args: Any, **kwargs: Any) -> str:
        (operation,) = set(_OPERATION.findall(op_def))
        return _END_OF_BROADCAST.sub(rf"\1,\n        {operation}\2", convert(op_def, *args, **kwargs))

    common_bias_broadcast.gemm_bias_broadcast_instance = convert_and_keep


def check_sources(folder: Path, *, tf32: bool) -> None:
    """Raises `RuntimeError` when a source multiplies otherwise than it was asked to."""
    for source in sorted(folder.glob("*.cu")):
        if source.name.startswith(_PRODUCTS) and (reason := _why_wrong(source.read_text(encoding="utf-8"), tf32)):
            raise RuntimeError(f"{source.name} {reason}")


def _why_wrong(text: str, tf32: bool) -> str | None:
    found = sorted({name.rpartition("::")[2] for name in _OPERATION.findall(text)})
    narrow = "cutlass::half_t" in text or "cutlass::bfloat16_t" in text
    wanted = "OpMultiplyAdd" if narrow or tf32 or "OpClassSimt" in text else "OpMultiplyAddFastF32"
    return None if found == [wanted] else f"multiplies by {' and '.join(found) or 'a default'}, not by {wanted}"
