"""How AITemplate's sources multiply: CUTLASS says it in the type of every product and convolution."""

from __future__ import annotations

import re
from collections.abc import Mapping

THREE_TIMES_TF32, PLAIN = "OpMultiplyAddFastF32", "OpMultiplyAdd"
"""Three products of TF32 for one of float32; and the elements as they are, which for float32 is TF32."""

_TYPE = re.compile(r"cutlass::(?:gemm::device::\w+|conv::kernel::Default\w+)<[^;]*>(?:::Kernel)?;")


def arithmetic(files: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Source -> the operations of the products and convolutions in it; "" for one that leaves it to CUTLASS."""
    found: dict[str, set[str]] = {}
    for name, content in files.items():
        if name.startswith(("gemm_", "bmm_", "conv2d_")):
            types = _TYPE.findall(content.decode())
            assert types, name
            found[name] = {"".join(re.findall(r"arch::(OpMultiplyAdd\w*)", text)) for text in types}
    return found
