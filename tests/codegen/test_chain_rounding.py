"""Values of 16 bits inside a chain are computed in float32, but a discontinuous step sees them as they would be stored."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ortisan
from ortisan.codegen.tools.binding import import_binding
from tests.models.text import text_model

DISCONTINUOUS = {
    "n": ("int32", lambda s: s.astype(np.int32), "Cast<to = 6>(s)"),
    "b": ("bool", lambda s: s == 1, "Equal(s, one)"),
    "f": ("T", np.floor, "Floor(s)"),
    "c": ("T", np.ceil, "Ceil(s)"),
    "r": ("T", np.rint, "Round(s)"),
    "g": ("T", np.sign, "Sign(s)"),
}


@pytest.mark.build
@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_a_discontinuous_function_sees_stored_values(name: str, dtype: type, tmp_path: Path) -> None:
    outputs = ", ".join(f"{kind if kind != 'T' else name}[N] {out}" for out, (kind, _, _) in DISCONTINUOUS.items())
    body = "s = Add(x, z) " + " ".join(f"{out} = {node}" for out, (_, _, node) in DISCONTINUOUS.items())
    model = text_model(
        f"({name}[N] x, {name}[N] z) => ({outputs})",
        body,
        opset=22,
        ir_version=10,
        constants={"one": np.ones((), dtype)},
    )
    compiled = ortisan.compile(model, whole_graph=True, name=f"discontinuous_{name}")
    assert len(compiled.plans[0].groups) == 1
    library = ortisan.generate(compiled, tmp_path / name, bindings=True)
    module = import_binding(library.binding)
    pairs = [(1, -(2.0**-12)), (2, -(2.0**-12)), (-1, 2.0**-12), (3, 2.0**-12), (2.0**-25, 2.0**-25), (1, 2.0**-7)]
    x, z = np.array(pairs * 9).astype(dtype).T.copy()
    stored = (x.astype(np.float32) + z.astype(np.float32)).astype(dtype).astype(np.float32)
    results = module.Graph(0).run([x, z])
    for (out, (_, right, _)), found in zip(DISCONTINUOUS.items(), results, strict=True):
        actual = found.view(dtype) if found.dtype == np.uint16 else found
        np.testing.assert_array_equal(actual.astype(np.float32), right(stored).astype(np.float32), err_msg=out)
