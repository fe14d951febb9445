"""Checks ops over images: their numpy reference against ONNX Runtime."""

from __future__ import annotations

import onnxruntime as ort

import ortisan
from tests.ops.harness import Case, run_session
from tests.tolerances import assert_close


def check_reference(case: Case) -> None:
    compiled = ortisan.compile(case.model(), whole_graph=True, target="reference")
    want = run_session(ort.InferenceSession(case.model().SerializeToString()), case.feeds())
    for have, expected in zip(compiled.run(case.feeds()), want, strict=True):
        assert_close(have, expected, case.name, case.tolerance)
