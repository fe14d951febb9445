"""BERT, GPT-2 with past and a ResNet block: nvcc compiles them, ONNX Runtime takes them, the stand-in runtime runs them.

Two layers of narrow models; and those of the full size, of which nvcc's time and the library's size are printed (-s).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.ait.model import AitInstall
from ortisan.converter.save import save_with_external_data
from ortisan.models import BertSize, Gpt2Size, bert, gpt2
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.generate import render_sources
from tests.ait.gpu_models import gpu_models
from tests.gpu.tiny_gpu import build_both, open_stand_in

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build, pytest.mark.slow]

Bounds = Mapping[str, "int | tuple[int, int]"]
BERT_DIMS: Bounds = {"batch": (1, 8), "sequence": (1, 128)}
GPT2_DIMS: Bounds = {"batch": (1, 8), "sequence": (1, 64), "past_sequence": (0, 64), "total_sequence": (1, 128)}
NARROW_BERT = BertSize(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=256, positions=128)
NARROW_GPT2 = Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=256, positions=128)


def open_twin(model: ir.Model, dims: Bounds, install: AitInstall, folder: Path) -> ort.InferenceSession:
    """A CPU session of the compiled model over the stand-in runtime; the real library is registered on the way."""
    compiled = ortisan.compile(model, target="cuda:80", dims=dims)
    products, steps, seconds = build_both(render_sources(compiled), compiled.name, install)
    library = products / f"lib{compiled.name}.so"
    share = compiled.flops_share()
    print(
        f"{compiled.name}: {len(steps) - 1} steps in {seconds:.0f} s, {library.stat().st_size / 1e6:.1f} MB, {share:.2%}"
    )
    assert share > 0.95
    ort.SessionOptions().register_custom_ops_library(str(library))
    open_stand_in(products)
    save_with_external_data(substitute_ops(compiled), folder, compiled.name)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.register_custom_ops_library(str(products / f"lib{compiled.name}_stand_in.so"))
    return ort.InferenceSession(str(folder / f"{compiled.name}.onnx"), options, providers=["CPUExecutionProvider"])


def bert_feeds(batch: int, sequence: int) -> dict[str, np.ndarray]:
    ids = np.ones((batch, sequence), np.int64)
    return {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids * 0}


def gpt2_feeds(session: ort.InferenceSession, batch: int, sequence: int, past: int) -> dict[str, np.ndarray]:
    feeds = {"input_ids": np.ones((batch, sequence), np.int64)}
    feeds["attention_mask"] = np.ones((batch, past + sequence), np.int64)
    feeds["position_ids"] = np.tile(np.arange(past, past + sequence), (batch, 1))
    for value in session.get_inputs():
        if value.name.startswith("past_key_values"):
            feeds[value.name] = np.zeros((batch, value.shape[1], past, value.shape[3]), np.float32)
    return feeds


def check_bert(size: BertSize | None, dims: Bounds, install: AitInstall, folder: Path) -> None:
    session = open_twin(bert(size), dims, install, folder)
    width = (size or BertSize()).hidden
    for batch, sequence in ((1, 1), (8, 128), (3, 77)):
        first = session.run(None, bert_feeds(batch, sequence))[0]
        assert first.shape == (batch, sequence, width)
    with pytest.raises(Exception, match=r"outside its declared range 1\.\.8"):
        session.run(None, bert_feeds(9, 3))


def check_gpt2(size: Gpt2Size | None, dims: Bounds, install: AitInstall, folder: Path) -> None:
    session = open_twin(gpt2(size), dims, install, folder)
    for batch, sequence, past in ((1, 1, 0), (1, 1, 64), (8, 64, 0), (2, 5, 17), (3, 7, 11), (1, 64, 64)):
        results = session.run(None, gpt2_feeds(session, batch, sequence, past))
        assert results[0].shape[:2] == (batch, sequence)
        assert all(present.shape[2] == past + sequence for present in results[1:])
    with pytest.raises(Exception, match=r"outside its declared range"):
        session.run(None, gpt2_feeds(session, 1, 1, 65))


def test_two_layers_of_bert(ait_install: AitInstall, tmp_path: Path) -> None:
    check_bert(NARROW_BERT, BERT_DIMS, ait_install, tmp_path)


def test_two_layers_of_gpt2(ait_install: AitInstall, tmp_path: Path) -> None:
    check_gpt2(NARROW_GPT2, GPT2_DIMS, ait_install, tmp_path)


def test_bert_base(ait_install: AitInstall, tmp_path: Path) -> None:
    check_bert(None, BERT_DIMS, ait_install, tmp_path)


def test_gpt2_small(ait_install: AitInstall, tmp_path: Path) -> None:
    check_gpt2(None, GPT2_DIMS, ait_install, tmp_path)


def test_a_resnet_block(ait_install: AitInstall, tmp_path: Path) -> None:
    """Convolutions, pools, a residual and a classifier."""
    resnet = next(each for each in gpu_models() if each.name == "resnet")
    session = open_twin(resnet.model, resnet.dims, ait_install, tmp_path)
    for feeds in resnet.cases.values():
        assert session.run(None, feeds)[0].shape == (len(feeds["image"]), 10)
