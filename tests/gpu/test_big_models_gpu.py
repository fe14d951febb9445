"""BERT, GPT-2 with past and a ResNet block: nvcc compiles them, ONNX Runtime takes them, the stand-in runtime runs them.

Two layers of narrow models; and those of the full size, of which nvcc's time and the library's size are printed (-s).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from ortisan.codegen.ait.model import AitInstall
from ortisan.models import BertSize, Gpt2Size, bert, gpt2, resnet
from tests.ait.gpu_models import gpu_models
from tests.gpu.twin import Bounds, open_twin
from tests.models.diffusion import diffusion
from tests.models.zoo import FAMILIES, Sizes

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build, pytest.mark.slow]

BERT_DIMS: Bounds = {"batch": (1, 8), "sequence": (1, 128)}
GPT2_DIMS: Bounds = {"batch": (1, 8), "sequence": (1, 64), "past_sequence": (0, 64), "total_sequence": (1, 128)}
NARROW_BERT = BertSize(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=256, positions=128)
NARROW_GPT2 = Gpt2Size(layers=2, hidden=64, heads=4, vocabulary=256, positions=128)


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
    twin = open_twin(bert(size), dims, install, folder)
    session = twin.session
    width = (size or BertSize()).hidden
    for batch, sequence in ((1, 1), (8, 128), (3, 77)):
        first = session.run(None, bert_feeds(batch, sequence))[0]
        assert first.shape == (batch, sequence, width)
    assert twin.stand_in.refusals == (0, "")
    with pytest.raises(Exception, match=r"outside its declared range 1\.\.8"):
        session.run(None, bert_feeds(9, 3))


def check_gpt2(size: Gpt2Size | None, dims: Bounds, install: AitInstall, folder: Path) -> None:
    twin = open_twin(gpt2(size), dims, install, folder)
    session = twin.session
    for batch, sequence, past in ((1, 1, 0), (1, 1, 64), (8, 64, 0), (2, 5, 17), (3, 7, 11), (1, 64, 64)):
        results = session.run(None, gpt2_feeds(session, batch, sequence, past))
        assert results[0].shape[:2] == (batch, sequence)
        assert all(present.shape[2] == past + sequence for present in results[1:])
    assert twin.stand_in.refusals == (0, "")
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
    session = open_twin(resnet.model, resnet.dims, ait_install, tmp_path).session
    for feeds in resnet.cases.values():
        assert session.run(None, feeds)[0].shape == (len(feeds["image"]), 10)


def test_a_narrow_resnet_50(ait_install: AitInstall, tmp_path: Path) -> None:
    twin = open_twin(resnet(50, image=32, width=8, classes=10), {"batch": (1, 4)}, ait_install, tmp_path)
    for batch in (1, 3):
        images = np.zeros((batch, 3, 32, 32), np.float32)
        assert twin.session.run(None, {"pixel_values": images})[0].shape == (batch, 10)
    assert twin.stand_in.refusals == (0, "")


def test_a_block_of_a_diffusion_model(ait_install: AitInstall, tmp_path: Path) -> None:
    twin = open_twin(diffusion(), {"batch": (1, 2), "tokens": (1, 16)}, ait_install, tmp_path)
    for batch, tokens in ((1, 7), (2, 16)):
        shapes = {"sample": (4, 8, 8), "time": (32,), "text": (tokens, 24)}
        feeds = {name: np.ones((batch, *shape), np.float32) for name, shape in shapes.items()}
        assert twin.session.run(None, feeds)[0].shape == (batch, 4, 8, 8)
    assert twin.stand_in.refusals == (0, "")


def test_two_layers_of_gpt2_with_caches_in_place(ait_install: AitInstall, tmp_path: Path) -> None:
    """ONNX Runtime writes the caches."""
    dims: Bounds = {"batch": (1, 8), "sequence": (1, 16), "cache_capacity": 64, "total_sequence": (1, 64)}
    twin = open_twin(gpt2(NARROW_GPT2), dims, ait_install, tmp_path, cache="in-place")
    for batch, sequence, past in ((1, 16, 0), (2, 1, 63), (3, 5, 17)):
        feeds = gpt2_feeds(twin.session, batch, sequence, 64)
        feeds["attention_mask"] = np.ones((batch, past + sequence), np.int64)
        feeds["position_ids"] = np.tile(np.arange(past, past + sequence), (batch, 1))
        assert twin.session.run(None, feeds)[0].shape[:2] == (batch, sequence)
    assert twin.stand_in.refusals == (0, "")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["t5 encoder", "t5 decoder", "vit", "electra"])
def test_two_layers_of_other_transformers(name: str, ait_install: AitInstall, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.models.zoo_exports import export, make_feeds

    form = {"exporter": "legacy", "opset": 17, "attention": FAMILIES[name].implementations[-1]}
    dims: Bounds = {"batch": (1, 4), "length": (1, 16), "encoded": (1, 16)}
    model = export(name, **form)
    known = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    twin = open_twin(model, {key: dims[key] for key in dims if key in known}, ait_install, tmp_path)
    for sizes in (Sizes(), Sizes(batch=1)):
        assert all(len(result) == sizes.batch for result in twin.session.run(None, make_feeds(FAMILIES[name], sizes)))
    assert twin.stand_in.refusals == (0, "")
