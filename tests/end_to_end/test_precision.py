"""precision="bf16" and "weights-bf16", from a float32 model to a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import ortisan
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.models import BertSize, bert
from tests.codegen.test_disassembly import functions, objdump_of, run
from tests.models.mlp import mlp
from tests.models.text import run_ort

SIZE = BertSize(layers=2, hidden=96, heads=3, intermediate=160, vocabulary=60, positions=40)
NARROW: list[Any] = ["bf16", "weights-bf16", "weights-int8"]
ERRORS = {"bf16": 2e-2, "weights-bf16": 2e-2, "weights-int8": 5e-2}
"""By the largest output of a narrow model with random weights. Both factors of weights-int8 are rounded."""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ortisan.Artifact]:
    folder = tmp_path_factory.mktemp("precision")
    model = bert(SIZE)
    return {
        precision: ortisan.build(model, folder / precision, precision=precision, keep="all", tune="off", name="bert")
        for precision in ("keep", *NARROW)
    }


@pytest.mark.build
@pytest.mark.parametrize("precision", NARROW)
def test_results_stay_near_float32(precision: str, artifacts: dict[str, ortisan.Artifact]) -> None:
    model = ir.to_proto(bert(SIZE))
    session = ortisan.load(artifacts[precision].folder)
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (3, 7), (2, 40)):
        ids = rng.integers(0, SIZE.vocabulary, (batch, length))
        mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
        for have, want in zip(session.run(None, feeds), run_ort(model, feeds), strict=True):
            assert have.dtype == np.float32
            assert 0 < np.abs(have - want).max() <= ERRORS[precision] * np.abs(want).max()


@pytest.mark.build
def test_the_manifest_says_what_outputs_are_rounded_to_and_weights_take_half_the_bytes(
    artifacts: dict[str, ortisan.Artifact],
) -> None:
    def weight_bytes(precision: str) -> int:
        return sum(op["weight_bytes"] for op in artifacts[precision].manifest["ops"])

    for precision in NARROW:
        manifest = artifacts[precision].manifest
        assert manifest["options"]["precision"] == precision
        assert set(manifest["rounded"].values()) == {"bfloat16"}
        assert weight_bytes(precision) < 0.6 * weight_bytes("keep")
    assert artifacts["keep"].manifest["rounded"] == {}


@pytest.mark.build
def test_products_are_one_instruction_where_the_cpu_has_it(artifacts: dict[str, ortisan.Artifact]) -> None:
    if "avx512_bf16" not in find_isa("native").features:
        pytest.skip("this CPU does not multiply bfloat16")

    def multiplying(precision: str) -> set[str]:
        listing = run([objdump_of(find_compiler()), "-dC", "--no-show-raw-insn", str(artifacts[precision].library)])
        return {name for name, code in functions(listing).items() if any("vdpbf16ps" in text for _, text in code)}

    assert any("TileAvx512Bf16::multiply<8l, 2l>" in name for name in multiplying("bf16"))
    assert multiplying("keep") == multiplying("weights-bf16") == multiplying("weights-int8") == set()


@pytest.mark.build
def test_a_library_for_a_cpu_without_the_instruction_gives_the_same(tmp_path: Path) -> None:
    """bfloat16 is converted and multiplied as float32, which rounds alike but for the order of sums."""
    if find_isa("native").machine != "x86_64":
        pytest.skip("this machine is no x86-64")
    x = np.random.default_rng(1).standard_normal((5, 16), np.float32)
    results = []
    for target in ("cpu", "cpu:x86-64-v2"):
        folder = tmp_path / target.replace(":", "_")
        ortisan.build(mlp(), folder, target=target, precision="bf16", keep="all", tune="off")
        session = ortisan.load(folder)
        results.append(session.run(None, {session.get_inputs()[0].name: x})[0])
    np.testing.assert_allclose(*results, rtol=2e-2, atol=2e-2 * np.abs(results[0]).max())


def test_a_precision_of_other_targets_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ortisan.OptionError) as caught:
        ortisan.build(mlp(), tmp_path / "out", target="cpu:x86-64-v3", precision="fp16")
    assert (
        str(caught.value)
        == "precision='fp16' is not for cpu:x86-64-v3, which takes keep, bf16, weights-bf16, weights-int8"
    )
    assert not (tmp_path / "out").exists()
