"""One session, many threads: bit-equal results, and silence from the sanitizers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import ortisan
from ortisan.codegen.cpu.build import build_library
from ortisan.models import BertSize, bert
from ortisan.pipeline.generate import render_sources
from tests.sanitized import run_sanitized, run_threads

SIZE = BertSize(layers=2, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)


def feeds(batch: int = 3, seq: int = 11) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, 20, (batch, seq))
    mask = np.ones_like(ids)
    mask[1:, seq // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}


@pytest.fixture(scope="module")
def compiled() -> ortisan.Compilation:
    return ortisan.compile(bert(SIZE), name="small_bert", whole_graph=True)


@pytest.mark.build
def test_8_threads_200_runs_each_are_bit_equal(tmp_path: Path) -> None:
    ortisan.build(ir.to_proto(bert(SIZE)), tmp_path / "bert", keep="all", verify=False)
    session = ortisan.load(tmp_path / "bert")
    expected = session.run(None, feeds())

    def run(_: int) -> bool:
        return all(
            all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds()), expected, strict=True))
            for _ in range(200)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


@pytest.mark.build
def test_results_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    import onnxruntime as ort

    ortisan.build(bert(SIZE), tmp_path / "bert", keep="all", verify=False)
    results = []
    for threads in (1, 2, 3, 7):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        results.append(ortisan.load(tmp_path / "bert", options).run(None, feeds()))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = ort.InferenceSession({model!r}, options)
def feeds(batch, seq):
    ids = np.arange(batch * seq).reshape(batch, seq) % 20
    return {{"input_ids": ids, "attention_mask": (ids % 3 > 0).astype(np.int64), "token_type_ids": ids % 2}}
for size in ((1, 1), (2, 7), (3, 16), (0, 4)):
    session.run(None, feeds(*size))
want = session.run(None, feeds(3, 11))
with ThreadPoolExecutor(8) as pool:
    for have in pool.map(lambda _: session.run(None, feeds(3, 11)), range(64)):
        assert all(np.array_equal(a, b) for a, b in zip(have, want))
for wrong in (feeds(1, 17), {{**feeds(1, 3), "input_ids": np.full((1, 3), 99)}}):
    try:
        session.run(None, wrong)
        raise SystemExit("no error")
    except Exception as error:
        print(error)
print("finished")
"""


@pytest.mark.build
@pytest.mark.sanitize
def test_bert_under_address_and_undefined_sanitizers(compiled: ortisan.Compilation, tmp_path: Path) -> None:
    assert compiled.target.isa is not None
    built = build_library(
        render_sources(compiled), name=compiled.name, isa=compiled.target.isa, sanitize="address,undefined"
    )
    converted = ortisan.convert_graph(bert(SIZE), compiled)
    (tmp_path / "bert.onnx").write_bytes(converted.SerializeToString())
    script = SCRIPT.format(model=str(tmp_path / "bert.onnx"))
    assert "finished" in run_sanitized(script, "address,undefined", built.library)


@pytest.mark.build
@pytest.mark.sanitize
def test_bert_under_the_thread_sanitizer(compiled: ortisan.Compilation, tmp_path: Path) -> None:
    said = run_threads(render_sources(compiled), tmp_path, sizes={"batch": 2, "sequence": 5})
    assert said
