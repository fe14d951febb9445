"""A decoder as ONNX Runtime's model builder writes them: grouped queries, 4-bit weights, caches that grow or are shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from tests.models.text import text_model
from tests.tolerances import WIDE

LAYERS, HIDDEN, HEADS, GROUPS, SIZE, WORDS, CAPACITY = 2, 48, 4, 2, 16, 23, 11
F32 = np.float32
Array = np.ndarray[Any, Any]
Run = Callable[[dict[str, Array]], list[Array]]

_LAYER = """
    n{i} = {norm}
    qkv{i} = com.microsoft.MatMulNBits<K = 48, N = 128, bits = 4, block_size = 16, accuracy_level = 1>(n{i}, qkv_w, qkv_s, qkv_z)
    a{i}, new_k{i}, new_v{i} = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>
        (qkv{i}, , , past_k{i}, past_v{i}, last, total, cos, sin)
    o{i} = MatMul(a{i}, out_w)
    m{i}, u{i}, w{i}, s{i} = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.00001>(h{i}, o{i}, scale)
    up{i} = MatMul(m{i}, up_w)
    g{i} = com.microsoft.QuickGelu<alpha = 1.0>(up{i})
    f{i} = MatMul(g{i}, down_w)
    h{j} = Add(s{i}, f{i})
"""


def decoder() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    angles = np.arange(CAPACITY)[:, None] * (0.5 ** np.arange(SIZE // 2))[None]
    constants = {
        "words": rng.normal(size=(WORDS, HIDDEN)), "scale": rng.uniform(0.5, 1.5, HIDDEN), "cos": np.cos(angles), "sin": np.sin(angles),
        "qkv_s": rng.uniform(0.01, 0.05, (128, 3)), "out_w": rng.normal(size=(64, HIDDEN)) * 0.2,
        "up_w": rng.normal(size=(HIDDEN, 32)) * 0.2, "down_w": rng.normal(size=(32, HIDDEN)) * 0.2, "head_w": rng.normal(size=(HIDDEN, WORDS)),
    }  # fmt: skip
    arrays: dict[str, Array] = {name: array.astype(F32) for name, array in constants.items()}
    arrays |= {
        "qkv_w": rng.integers(0, 256, (128, 3, 8), dtype=np.uint8), "qkv_z": rng.integers(0, 256, (128, 2), dtype=np.uint8),
        "axis": np.array([1]), "one": np.array(1), "index": np.array(1),
    }  # fmt: skip
    caches = [f"{kind}{i}" for i in range(LAYERS) for kind in ("k", "v")]
    pasts = ", ".join(f"float[B,{GROUPS},P,{SIZE}] past_{name}" for name in caches)
    presents = ", ".join(f"float[B,{GROUPS},?,{SIZE}] new_{name}" for name in caches)
    norm = "SimplifiedLayerNormalization<axis = -1, epsilon = 0.00001>"
    body = "h0 = Gather(words, ids) count = ReduceSum<keepdims = 0>(mask, axis) before = Sub(count, one) last = Cast<to = 6>(before)"
    body += " shape = Shape(mask) length = Gather(shape, index) total = Cast<to = 6>(length)"
    body += "".join(_LAYER.format(i=i, j=i + 1, norm=f"{norm}(h{i}, scale)") for i in range(LAYERS))
    body += f" last_norm = {norm}(h{LAYERS}, scale) logits = MatMul(last_norm, head_w)"
    signature = f"(int64[B,S] ids, int64[B,T] mask, {pasts}) => (float[B,S,{WORDS}] logits, {presents})"
    return text_model(signature, body, opset=20, constants=arrays)


def generate(run: Run, prompt: Array, lengths: list[int], capacity: int | None, steps: int = 3) -> list[Array]:
    """Logits of each step. The caches have `capacity` rows from the start, or grow; short prompts are padded on the right."""
    names = [f"{kind}{i}" for i in range(LAYERS) for kind in ("k", "v")]
    caches = {name: np.zeros((len(lengths), GROUPS, capacity or 0, SIZE), F32) for name in names}
    ids, counts, found = prompt, np.array(lengths), []
    for step in range(steps):
        total = int(counts.max())
        mask = (np.arange(total) < counts[:, None]).astype(np.int64)
        feeds = {"ids": ids, "mask": mask, **{f"past_{name}": cache for name, cache in caches.items()}}
        logits, *presents = run(feeds)
        rows = counts - 1 if step == 0 else np.zeros_like(counts)
        found.append(logits[np.arange(len(counts)), rows])
        caches = dict(zip(names, presents, strict=True))
        ids, counts = found[-1].argmax(axis=-1)[:, None], counts + 1
    return found


PROMPTS = {
    "one": (np.array([[3, 1, 4, 1, 5]]), [5]),
    "ragged": (np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]), [5, 3]),
    "word": (np.array([[7], [8]]), [1, 1]),
}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return decoder()


def test_layers_share_their_mask_and_their_angles(model: onnx.ModelProto) -> None:
    counts = Counter(ortisan.compile(model, whole_graph=True, target="reference").op_counts())
    assert counts["attention"] == LAYERS
    assert counts["cache_write"] == counts["rotary"] == 2 * LAYERS
    # Causality and lengths of the mask; the word table, cosines, sines.
    assert counts["elementwise.le"] == counts["elementwise.lt"] == 1
    assert counts["index_select"] == 3


@pytest.mark.parametrize("capacity", [None, CAPACITY], ids=["growing", "fixed"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_reference_generates_what_onnx_runtime_does(
    prompt: str, capacity: int | None, model: onnx.ModelProto
) -> None:
    compiled = ortisan.compile(model, whole_graph=True, target="reference")
    stock = ort.InferenceSession(model.SerializeToString())
    want = generate(lambda feeds: stock.run(None, feeds), *PROMPTS[prompt], capacity)
    have = generate(lambda feeds: list(compiled.run(feeds)), *PROMPTS[prompt], capacity)
    np.testing.assert_allclose(have, want, rtol=WIDE, atol=WIDE)


@pytest.mark.build
def test_built_with_caches_that_grow_and_that_are_shared(model: onnx.ModelProto, tmp_path: Path) -> None:
    artifact = ortisan.build(model, tmp_path / "decoder", keep="all", verify=False, tune="off")
    session, stock = ortisan.load(artifact.folder), ort.InferenceSession(model.SerializeToString())

    def in_place(feeds: dict[str, Array]) -> list[Array]:
        """The presents are written where the pasts are."""
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        held = {name: ort.OrtValue.ortvalue_from_numpy(a) for name, a in feeds.items() if name.startswith("past_")}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_", "new_"), value)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        return [binding.get_outputs()[-1].numpy(), *(value.numpy().copy() for value in held.values())]

    for prompt in PROMPTS.values():
        want = generate(lambda feeds: stock.run(None, feeds), *prompt, CAPACITY)
        for run, capacity in (
            (lambda feeds: session.run(None, feeds), None),
            (lambda feeds: session.run(None, feeds), CAPACITY),
            (in_place, CAPACITY),
        ):
            np.testing.assert_allclose(generate(run, *prompt, capacity), want, rtol=WIDE, atol=WIDE)
