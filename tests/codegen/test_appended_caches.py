"""present = Concat(past, new): which caches attention reads where they were given, and that the results are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.kernels.cache import appended_caches
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import BLOCK, CLOSE

PAST = "float[B,4,P,16] pk, float[B,4,P,16] pv"
SIGNATURE = f"(float[B,8,S,16] q, float[B,4,S,16] k, float[B,4,S,16] v, {PAST})"
JOIN = "jk = Concat<axis=2>(pk, k) jv = Concat<axis=2>(pv, v)"
ATTEND = "y = Attention(q, jk, jv)"
OUT = "float[B,8,S,16] y, float[B,4,T,16] jk, float[B,4,T,16] jv"


def model(body: str, signature: str = SIGNATURE, outputs: str = OUT) -> onnx.ModelProto:
    return text_model(f"{signature} => ({outputs})", body, opset=23, ir_version=10)


def appended(given: onnx.ModelProto) -> int:
    plan = ortisan.compile(given, whole_graph=True).plans[0]
    return len(appended_caches(plan.graph, plan.views))


CACHES = {
    "outputs too": (model(f"{JOIN} {ATTEND}"), 2),
    "read only": (model(f"{JOIN} {ATTEND}", outputs="float[B,8,S,16] y"), 2),
    "read twice": (model(f"{JOIN} a = Attention(q, jk, jv) y = Attention(a, jk, jv)"), 2),
    "packed past": (
        model(
            "s0 = Constant<value_int=0>() s1 = Constant<value_int=1>() pk = Gather<axis=0>(p, s0) "
            f"pv = Gather<axis=0>(p, s1) {JOIN} {ATTEND}",
            SIGNATURE.replace(PAST, "float[2,B,4,P,16] p"),
        ),
        2,
    ),
    "something else reads the keys": (model(f"{JOIN} {ATTEND} n = Neg(jk)", outputs=f"{OUT}, float[B,4,T,16] n"), 1),
    "computed past": (model(f"pk = Relu(pk0) {JOIN} {ATTEND}", SIGNATURE.replace(" pk,", " pk0,")), 1),
    "past behind the new": (model(f"jk = Concat<axis=2>(k, pk) jv = Concat<axis=2>(pv, v) {ATTEND}"), 2),
    "joined along another axis": (
        model(
            f"jk = Concat<axis=1>(pk, k) jv = Concat<axis=1>(pv, v) {ATTEND}",
            SIGNATURE.replace(",P,", ",S,"),
            "float[B,8,S,16] y",
        ),
        0,
    ),
    "three parts": (model(f"jk = Concat<axis=2>(pk, k, k) jv = Concat<axis=2>(pv, v, v) {ATTEND}"), 0),
}  # fmt: skip


@pytest.mark.parametrize(("given", "count"), CACHES.values(), ids=CACHES)
def test_appended_caches(given: onnx.ModelProto, count: int) -> None:
    assert appended(given) == count


@pytest.mark.build
def test_results(tmp_path: Path) -> None:
    """Few queries and many, no past and one that is copied around the caches, any number of threads."""
    for index, (given, _) in enumerate(CACHES.values()):
        ortisan.build(given, tmp_path / f"{index}", name=f"appended_{index}", keep="all", verify=False)
    for queries, past in [(1, 0), (1, 1), (1, 65), (2, 1500), (4, 513), (5, 513), (40, 1100)]:
        for index, (given, _) in enumerate(CACHES.values()):
            feeds = random_feeds(given, B=2, S=queries, P=past)
            expected = run_ort(given, feeds)
            results = []
            for threads in (1, 3):
                options = ort.SessionOptions()
                options.intra_op_num_threads = threads
                results.append(ortisan.load(tmp_path / f"{index}", options).run(None, feeds))
            for right, one, other in zip(expected, *results, strict=True):
                np.testing.assert_allclose(one, right, rtol=BLOCK, atol=CLOSE)
                assert one.tobytes() == other.tobytes()
