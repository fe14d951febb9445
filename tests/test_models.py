"""The decoders that are made on the spot: what they compile to, and that they are right over a growing sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import ortisan
from ortisan.models import Gpt2Size, LlamaSize, gpt2, llama
from tests.models.text import Array, run_ort
from tests.tolerances import BLOCK

LAYERS, VOCABULARY = 2, 61
GPT2 = Gpt2Size(layers=LAYERS, hidden=24, heads=3, vocabulary=VOCABULARY, positions=16)
LLAMA = LlamaSize(layers=LAYERS, hidden=48, heads=6, kv_heads=2, intermediate=40, vocabulary=VOCABULARY)
MODELS = {"gpt2": ir.to_proto(gpt2(GPT2)), "llama": ir.to_proto(llama(LLAMA))}
CACHE = {"gpt2": (3, 8), "llama": (2, 8)}


def feeds_of(name: str, mask: Array, tokens: int, past: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """The last `tokens` of a sequence; `past` has the keys and values before them, random ones when it is None."""
    rng = np.random.default_rng(0)
    batch, total = mask.shape
    heads, width = CACHE[name]
    ids = rng.integers(0, VOCABULARY, (batch, 16))[:, :total]
    places = np.maximum(mask.cumsum(1) - 1, 0)
    shape = (batch, heads, total - tokens, width)
    names = [f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    past = past or {name: rng.standard_normal(shape, dtype=np.float32) for name in names}
    new = slice(total - tokens, None)
    return {"input_ids": ids[:, new], "attention_mask": mask, "position_ids": places[:, new], **past}


def hide(batch: int, total: int, *, left: int = 0) -> Array:
    """A mask that hides the first keys of each row but the first."""
    mask = np.ones((batch, total), np.int64)
    mask[1:, :left] = 0
    return mask


@pytest.mark.parametrize("name", MODELS)
def test_decoders_are_valid_and_compile_to_one_graph(name: str) -> None:
    onnx.checker.check_model(MODELS[name], full_check=True)
    compiled = ortisan.compile(MODELS[name], target="reference")
    counts = Counter(compiled.op_counts())
    assert len(compiled.graphs) == 1
    assert not compiled.left_out
    assert counts["attention"] == LAYERS
    assert not counts["softmax"]
    if name == "llama":
        assert (counts["rms_norm"], counts["rotary"]) == (2 * LAYERS + 1, 2 * LAYERS)
    else:
        assert (counts["layernorm"], counts["elementwise.fastgelu"]) == (2 * LAYERS + 1, LAYERS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "mask, tokens",
    [(hide(1, 1), 1), (hide(1, 9), 1), (hide(3, 7), 7), (hide(2, 9, left=3), 4), (hide(3, 8, left=1), 1)],
)
def test_the_reference_computes_what_onnx_runtime_does(name: str, mask: Array, tokens: int) -> None:
    feeds = feeds_of(name, mask, tokens)
    have, want = ortisan.compile(MODELS[name], target="reference").run(feeds), run_ort(MODELS[name], feeds)
    assert want[0].shape == (*feeds["input_ids"].shape, VOCABULARY)
    for one, other in zip(have, want, strict=True):
        np.testing.assert_allclose(one, other, atol=BLOCK, rtol=0)
        assert 0.3 < other.std() < 3


@pytest.mark.parametrize("name", MODELS)
def test_steps_give_what_the_whole_prompt_gives(name: str) -> None:
    mask = hide(2, 8, left=2)
    heads, width = CACHE[name]
    names = [value.name for value in MODELS[name].graph.input if value.name.startswith("past")]
    empty = {past: np.zeros((2, heads, 0, width), np.float32) for past in names}
    logits, *cache = run_ort(MODELS[name], feeds_of(name, mask, 8, empty))
    past, found, done = empty, [], 0
    for tokens in (5, 1, 2):
        done += tokens
        step, *presents = run_ort(MODELS[name], feeds_of(name, mask[:, :done], tokens, past))
        past = dict(zip(names, presents, strict=True))
        found.append(step)
    np.testing.assert_allclose(np.concatenate(found, axis=1)[0], logits[0], atol=BLOCK, rtol=0)
    np.testing.assert_allclose(np.concatenate(found, axis=1)[1, 2:], logits[1, 2:], atol=BLOCK, rtol=0)
    for have, want in zip(presents, cache, strict=True):
        np.testing.assert_allclose(have[0], want[0], atol=BLOCK, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_a_key_that_is_hidden_or_later_changes_nothing(name: str) -> None:
    feeds = feeds_of(name, hide(2, 9, left=3), 4)
    want = run_ort(MODELS[name], feeds)[0]
    changed = {key: value.copy() for key, value in feeds.items()}
    changed["input_ids"][:, -1] = (changed["input_ids"][:, -1] + 1) % VOCABULARY
    for key in feeds:
        if key.startswith("past"):
            changed[key][1, :, :3] += 1
    have = run_ort(MODELS[name], changed)[0]
    np.testing.assert_allclose(have[:, :-1], want[:, :-1], atol=BLOCK, rtol=0)
    assert np.abs(have[:, -1] - want[:, -1]).max() > 0.1


def test_models_are_drawn_from_the_seed() -> None:
    first, other = ir.to_proto(gpt2(GPT2, seed=1)), ir.to_proto(gpt2(GPT2, seed=2))
    assert first.SerializeToString() == ir.to_proto(gpt2(GPT2, seed=1)).SerializeToString()
    assert first.graph.node == other.graph.node
    assert first.graph.initializer != other.graph.initializer
