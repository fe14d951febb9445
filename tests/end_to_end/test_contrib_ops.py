"""ONNX Runtime's own ops: what is compiled from them gives what ONNX Runtime gives, in numpy and as built kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
from tests.end_to_end.test_onnx_node_tests import NodeTest, check_built
from tests.models.text import run_ort, text_model
from tests.tolerances import APPROXIMATE, CLOSE, NOTHING_SEEN

F32 = np.float32
Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(F32)


@dataclass(frozen=True, eq=False)
class Case:
    """Nodes and what they are fed. `rows` cuts an output down to what has a meaning."""

    name: str
    signature: str
    body: str
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    tolerance: float = CLOSE
    rows: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def model(self) -> onnx.ModelProto:
        return text_model(self.signature, self.body, opset=20, constants=self.constants)

    def meaningful(self, outputs: list[Any]) -> list[Any]:
        names = [value.name for value in self.model().graph.output]
        return [self.rows[name](x) if name in self.rows else x for name, x in zip(names, outputs, strict=True)]


def ms(name: str, attributes: str = "") -> str:
    return f"com.microsoft.{name}" + (f"<{attributes}>" if attributes else "")


# MultiHeadAttention: B=2, S=3 queries, L=5 keys, H=2 heads of 4 (values of 6).
QKV = "float[B,S,8] q, float[B,L,8] k, float[B,L,12] v"
QKV_FEEDS = {"q": normal(2, 3, 8), "k": normal(2, 5, 8, seed=1), "v": normal(2, 5, 12, seed=2)}
SELF = "float[B,S,8] q, float[B,S,8] k, float[B,S,8] v"
SELF_FEEDS = {"q": normal(2, 3, 8), "k": normal(2, 3, 8, seed=1), "v": normal(2, 3, 8, seed=2)}
PAST = "float[B,2,P,4] pk, float[B,2,P,4] pv"
PRESENT = "float[B,2,T,4] nk, float[B,2,T,4] nv"
Y = "=> (float[?,?,?] y"
HIDDEN = {"m": np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], np.int32)}


def past(length: int) -> dict[str, Array]:
    return {"pk": normal(2, 2, length, 4, seed=3), "pv": normal(2, 2, length, 4, seed=4)}


def mha(
    name: str, inputs: str, feeds: Mapping[str, Array], arguments: str, more: str = "num_heads = 2", **kw: Any
) -> Case:
    return Case(f"mha_{name}", f"({inputs}) {Y})", f"y = {ms('MultiHeadAttention', more)}({arguments})", feeds, **kw)


MHA = [
    mha("plain", QKV, QKV_FEEDS, "q, k, v"),
    mha("scale", QKV, QKV_FEEDS, "q, k, v", "num_heads = 2, scale = 0.3"),
    mha("bias", QKV, QKV_FEEDS, "q, k, v, c", constants={"c": normal(28)}),
    mha("lengths", QKV + ", int32[B] m", QKV_FEEDS | {"m": np.array([5, 2], np.int32)}, "q, k, v, , m"),
    mha("no_length", QKV + ", int32[B] m", QKV_FEEDS | {"m": np.array([0, 9], np.int32)}, "q, k, v, , m", tolerance=NOTHING_SEEN),
    mha("padding", QKV + ", int32[B,L] m", QKV_FEEDS | HIDDEN, "q, k, v, , m", tolerance=NOTHING_SEEN),
    mha(
        "filter", QKV + ", int32[B,L] m", QKV_FEEDS | HIDDEN, "q, k, v, , m",
        "num_heads = 2, mask_filter_value = -1.5"
    ),
    mha(
        "cumulated", QKV.replace("B,", "2,") + ", int32[8] m", QKV_FEEDS | {"m": np.array([4, 2, 0, 3, 6, 0, 4, 6], np.int32)},
        "q, k, v, , m",
    ),
    mha(
        "mask_3d", QKV + ", int32[B,S,L] m", QKV_FEEDS | {"m": (normal(2, 3, 5) > 0).astype(np.int32)},
        "q, k, v, , m", tolerance=NOTHING_SEEN,
    ),
    mha(
        "attention_bias", QKV + ", float[1,H,S,L] a, int32[B,L] m", QKV_FEEDS | HIDDEN | {"a": normal(1, 2, 3, 5)},
        "q, k, v, c, m, a", constants={"c": normal(28)}, tolerance=NOTHING_SEEN,
    ),
    mha("attention_bias_batch", QKV + ", float[B,1,S,L] a", QKV_FEEDS | {"a": normal(2, 1, 3, 5)}, "q, k, v, , , a"),
    mha("unidirectional", SELF, SELF_FEEDS, "q, k, v", "num_heads = 2, unidirectional = 1"),
    mha(
        "unidirectional_padding", SELF + ", int32[B,S] m", SELF_FEEDS | {"m": np.array([[0, 1, 1], [1, 1, 0]], np.int32)},
        "q, k, v, , m", "num_heads = 2, unidirectional = 1", tolerance=NOTHING_SEEN,
    ),
    mha(
        "cross", "float[B,S,8] q, float[B,2,L,4] k, float[B,2,L,4] v",
        {"q": normal(2, 3, 8), "k": normal(2, 2, 5, 4), "v": normal(2, 2, 5, 4, seed=1)}, "q, k, v, c",
        constants={"c": normal(24)},
    ),
    mha("one_key", QKV, {"q": normal(1, 1, 8), "k": normal(1, 1, 8), "v": normal(1, 1, 12)}, "q, k, v"),
    *(
        Case(
            f"mha_past_{length}{'_causal' if causal else ''}", f"({SELF}, {PAST}, int32[B,T] m) {Y}, {PRESENT})",
            f"y, nk, nv = {ms('MultiHeadAttention', f'num_heads = 2, unidirectional = {causal}')}(q, k, v, c, m, , pk, pv)",
            SELF_FEEDS | past(length) | {"m": (np.arange(length + 3) >= np.array([[0], [1]])).astype(np.int32)},
            {"c": normal(24)}, tolerance=NOTHING_SEEN if length == 0 else CLOSE,
        )
        for length in (0, 1, 7) for causal in (0, 1)
    ),
    Case(
        "mha_present", f"({SELF}) {Y}, {PRESENT})", f"y, nk, nv = {ms('MultiHeadAttention', 'num_heads = 2')}(q, k, v)", SELF_FEEDS
    ),
]  # fmt: skip

# Attention: what converter/unfuse does not turn into standard ops.
X = {"x": normal(2, 3, 8)}
PROJECTION = {"w": normal(8, 24, seed=5) * F32(0.5), "c": normal(24, seed=6)}


def att(
    name: str, inputs: str, feeds: Mapping[str, Array], arguments: str, more: str = "num_heads = 2", **kw: Any
) -> Case:
    return Case(
        f"attention_{name}", f"(float[2,S,8] x{inputs}) {Y}, float[?,?,?,?,?] now)", f"y, now = {ms('Attention', more)}({arguments})",
        X | feeds, PROJECTION, **kw,
    )  # fmt: skip


def packed_past(length: int) -> dict[str, Array]:
    return {"past": normal(2, 2, 2, length, 4)}


CAUSAL = "num_heads = 2, unidirectional = 1"
P = ", float[2,2,2,P,4] past"
ATTENTION = [
    att("past", P, packed_past(5), "x, w, c, , past"),
    att("past_causal", P, packed_past(5), "x, w, c, , past", CAUSAL),
    att("past_empty", P, packed_past(0), "x, w, c, , past", CAUSAL),
    att("past_one_query", P, packed_past(4) | {"x": normal(2, 1, 8)}, "x, w, c, , past", CAUSAL),
    att("present", "", {}, "x, w, c", CAUSAL),
    att("past_lengths", P + ", int32[2] m", packed_past(5) | {"m": np.array([8, 3], np.int32)}, "x, w, c, m, past"),
    att(
        "past_ends_and_starts", P + ", int32[4] m", packed_past(5) | {"m": np.array([8, 6, 1, 2], np.int32)},
        "x, w, c, m, past",
    ),
    att(
        "past_padding", P + ", int32[B,T] m", packed_past(5) | {"m": (np.arange(8) >= np.array([[0], [7]])).astype(np.int32)},
        "x, w, c, m, past", CAUSAL, tolerance=NOTHING_SEEN,
    ),
    att(
        "past_mask_3d", P + ", int32[B,S,T] m", packed_past(5) | {"m": (normal(2, 3, 8) > 0).astype(np.int32)},
        "x, w, c, m, past", CAUSAL, tolerance=NOTHING_SEEN,
    ),
]  # fmt: skip

# GroupQueryAttention: 4 query heads and 2 key heads of 16.
CAPACITY = 9
ANGLES = np.arange(12)[:, None] * (0.3 ** np.arange(8))[None]
TABLES = {"cos": np.cos(ANGLES).astype(F32), "sin": np.sin(ANGLES).astype(F32)}


def gqa(
    name: str, lengths: list[int], queries: int, kept: int | None, *, more: str = "", packed: bool = False,
    size: int = 16, extra: Mapping[int, tuple[str, Array]] | None = None,
) -> Case:  # fmt: skip
    """Sequences of these lengths, the new keys included, and a cache of `kept` rows (None: no past)."""
    batch = len(lengths)
    feeds: dict[str, Array] = {"total": np.zeros(max(lengths), bool), "last": np.array(lengths, np.int32) - 1}
    declared = ["bool[T] total"] + ([] if extra and 5 in extra else ["int32[B] last"])
    arguments = ["q", "", "", "", "", "last", "count", "cos", "sin", *("" for _ in range(7))]
    if packed:
        feeds["q"] = normal(batch, queries, 8 * size)
        declared.append(f"float[B,S,{8 * size}] q")
    else:
        wide, narrow = (batch, queries, 4 * size), (batch, queries, 2 * size)
        feeds |= {"q": normal(*wide), "k": normal(*narrow), "v": normal(*narrow, seed=1)}
        declared.append(f"float[B,S,{4 * size}] q, float[B,S,{2 * size}] k, float[B,S,{2 * size}] v")
        arguments[1:3] = "k", "v"
    if kept is not None:
        feeds |= {"pk": normal(batch, 2, kept, size), "pv": normal(batch, 2, kept, size, seed=1)}
        declared.append(f"float[B,2,P,{size}] pk, float[B,2,P,{size}] pv")
        arguments[3:5] = "pk", "pv"
    for index, (text, array) in (extra or {}).items():
        declared.append(text)
        feeds[text.split()[-1]] = array
        arguments[index] = text.split()[-1]
    attributes = f"num_heads = 4, kv_num_heads = 2{', ' + more if more else ''}"
    constants = TABLES if "do_rotary" in more else {}
    if not constants:
        arguments[7:9] = "", ""
    node = f"{ms('GroupQueryAttention', attributes)}({', '.join(arguments).rstrip(', ')})"

    def valid(x: Array) -> Array:
        return np.concatenate([x[b, :, :n].reshape(-1) for b, n in enumerate(lengths)])

    return Case(
        f"gqa_{name}", f"({', '.join(declared)}) {Y}, float[?,?,?,?] nk, float[?,?,?,?] nv)",
        f"n = Shape(total) count = Cast<to = 6>(n) y, nk, nv = {node}", feeds, constants, rows={"nk": valid, "nv": valid},
    )  # fmt: skip


ROTARY = "do_rotary = 1"
GQA = [
    gqa("prompt", [5, 5], 5, None),
    gqa("prompt_packed", [5, 5], 5, None, packed=True),
    gqa("prompt_padded", [5, 2], 5, None, more=ROTARY),
    gqa("prompt_empty_past", [5, 3], 5, 0, more=ROTARY),
    gqa("prompt_in_buffer", [5, 3], 5, CAPACITY, more=ROTARY),
    gqa("decode", [6, 6], 1, 5, more=ROTARY),
    gqa("decode_ragged", [6, 3], 1, 5, more=ROTARY),
    gqa("decode_packed", [6, 3], 1, 5, more=ROTARY, packed=True),
    gqa("decode_in_buffer", [6, 3], 1, CAPACITY, more=ROTARY),
    gqa("decode_full_buffer", [9, 4], 1, CAPACITY, more=ROTARY),
    gqa("chunk", [8], 3, 5, more=ROTARY),
    gqa("chunk_in_buffer", [8], 3, CAPACITY, more=ROTARY),
    gqa("interleaved", [6, 3], 1, 5, more=ROTARY + ", rotary_interleaved = 1"),
    gqa("partly_rotated", [6, 3], 1, 5, more=ROTARY, size=32),
    gqa("window", [8], 3, 5, more=ROTARY + ", local_window_size = 4"),
    gqa("window_of_one", [6, 3], 1, 5, more="local_window_size = 1"),
    gqa("window_prompt", [7, 4], 7, None, more="local_window_size = 3"),
    gqa("window_wide", [6, 3], 1, 5, more="local_window_size = 100"),
    gqa("softcap", [6, 3], 1, 5, more="softcap = 1.5, scale = 0.4"),
    gqa("attention_bias", [6, 3], 1, 5, extra={10: ("float[B,4,S,T] a", normal(2, 4, 1, 6))}),
    gqa("attention_bias_one", [8], 3, 5, more="softcap = 2.0", extra={10: ("float[1,1,S,T] a", normal(1, 1, 3, 8))}),
    gqa("position_ids", [6, 3], 1, 5, more=ROTARY, extra={9: ("int64[B,S] ids", np.array([[7], [1]]))}),
    gqa("position_ids_prompt", [3, 2], 3, None, more=ROTARY, extra={9: ("int64[B,S] ids", np.array([[4, 9, 9], [8, 8, 8]]))}),
    gqa("lengths_2d", [6, 3], 1, 5, extra={5: ("int32[B,1] last", np.array([[5], [2]], np.int32))}),
]  # fmt: skip

# Tables of 12 positions for heads of 16, or for 8 elements of them.
ROPE = {"cos": TABLES["cos"], "sin": TABLES["sin"]}
HALF = {name: np.ascontiguousarray(table[:, :4]) for name, table in ROPE.items()}
IDS = {"ids": np.array([[0, 5, 11], [3, 3, 1]])}


def rope(name: str, x: Array, shape: str, more: str, tables: Mapping[str, Array], ids: str = "int64[B,S] ids") -> Case:
    feeds = {"x": x, "ids": IDS["ids"] if "S" in ids else np.array([4]).reshape((1,) if "[1]" in ids else ())}
    body = f"y = {ms('RotaryEmbedding', more)}(x, ids, cos, sin)"
    return Case(f"rope_{name}", f"(float[{shape}] x, {ids}) => (float[{shape}] y)", body, feeds, tables)


ROPES = [
    rope("4d", normal(2, 3, 3, 16), "B,3,S,16", "", ROPE),
    rope("3d", normal(2, 3, 48), "B,S,48", "", ROPE),
    rope("heads", normal(2, 3, 48), "B,S,48", "num_heads = 3", ROPE),
    rope("part", normal(2, 3, 48), "B,S,48", "num_heads = 3, rotary_embedding_dim = 8", HALF),
    rope("interleaved", normal(2, 3, 3, 16), "B,3,S,16", "interleaved = 1", ROPE),
    rope("offset", normal(2, 3, 3, 16), "B,3,S,16", "", ROPE, "int64[1] ids"),
    rope("offset_scalar", normal(2, 3, 48), "B,S,48", "interleaved = 1", ROPE, "int64 ids"),
]

ROWS = {"g": np.linspace(0.5, 1.5, 9, dtype=F32), "e": normal(9)}
NORMS = [
    Case(
        "simplified_norm", "(float[B,S,9] x) => (float[B,S,9] y)", "y = SimplifiedLayerNormalization<axis = -1, epsilon = 0.01>(x, g)",
        {"x": normal(2, 3, 9)}, ROWS,
    ),
    *(
        Case(
            f"skip_{kind}{index}", "(float[B,S,9] x, float[B,S,9] skip) => (float[B,S,9] y, float[B,S,9] t)",
            f"y, a, b, t = {ms(kind, 'epsilon = 0.01')}({arguments})", {"x": normal(2, 3, 9), "skip": normal(2, 3, 9, seed=1)}, ROWS,
        )
        for kind, forms in (
            ("SkipSimplifiedLayerNormalization", ("x, skip, g", "x, skip, g, e")),
            ("SkipLayerNormalization", ("x, skip, g", "x, skip, g, , e")),
        )
        for index, arguments in enumerate(forms)
    ),
    Case("quick_gelu", "(float[N] x) => (float[N] y)", f"y = {ms('QuickGelu')}(x)", {"x": np.linspace(-30, 30, 67, dtype=F32)}),
    Case("quick_gelu_1", "(float[N] x) => (float[N] y)", f"y = {ms('QuickGelu', 'alpha = 1.0')}(x)", {"x": normal(5)}),
]  # fmt: skip


def quantized(name: str, n: int, k: int, bits: int, block: int, zeros: str = "none", bias: bool = False) -> Case:
    rng, blocks = np.random.default_rng([n, k, bits, block]), -(-k // block)
    constants: dict[str, Array] = {
        "w": rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.01, 0.1, (n, blocks)).astype(F32),
        "c": normal(n),
    }
    if zeros == "packed":
        constants["z"] = rng.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    elif zeros == "float":
        constants["z"] = rng.uniform(0, 2**bits, (n, blocks)).astype(F32)
    arguments = f"x, w, s, {'z' if 'z' in constants else ''}, , {'c' if bias else ''}".rstrip(", ")
    more = f"K = {k}, N = {n}, bits = {bits}, block_size = {block}, accuracy_level = 1"
    body = f"y = {ms('MatMulNBits', more)}({arguments})"
    used = {name: array for name, array in constants.items() if name in arguments.split(", ")}
    return Case(f"nbits_{name}", f"(float[B,S,{k}] x) => (float[B,S,{n}] y)", body, {"x": normal(2, 3, k)}, used, 3e-5)


QUANTIZED = [
    quantized("4", 7, 64, 4, 32),
    quantized("4_odd", 5, 71, 4, 16, "packed"),
    quantized("4_float_zero", 33, 96, 4, 32, "float", bias=True),
    quantized("4_wide_block", 3, 300, 4, 256, "packed", bias=True),
    quantized("8", 17, 64, 8, 16),
    quantized("8_packed", 17, 70, 8, 64, "packed"),
    quantized("2", 9, 128, 2, 32),
    quantized("2_packed", 9, 80, 2, 16, "packed"),
]

CASES = [*MHA, *ATTENTION, *GQA, *ROPES, *NORMS, *QUANTIZED]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_onnx_runtime(case: Case) -> None:
    for have, want in zip(
        case.meaningful(reference(case)), case.meaningful(run_ort(case.model(), case.feeds)), strict=True
    ):
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=case.tolerance, atol=case.tolerance)


def reference(case: Case) -> list[Any]:
    return list(ortisan.compile(case.model(), whole_graph=True, target="reference").run(dict(case.feeds)))


BUILT = {
    "attention_past_causal", "gqa_attention_bias", "gqa_chunk_in_buffer", "gqa_decode_ragged", "gqa_position_ids_prompt",
    "gqa_prompt_padded", "gqa_window", "mha_attention_bias", "mha_cross", "mha_past_7_causal", "nbits_4_odd", "quick_gelu",
    "rope_offset_scalar", "rope_part", "skip_SkipSimplifiedLayerNormalization1",
}  # fmt: skip


@pytest.mark.build
def test_a_sample_of_built_kernels() -> None:
    """One library, compared with the numpy reference, that is compared with ONNX Runtime above."""
    sample = [case for case in CASES if case.name in BUILT]
    assert len(sample) == len(BUILT)
    compiled = [ortisan.compile(case.model(), whole_graph=True, name="contrib") for case in sample]
    check_built(
        tuple(
            NodeTest(case.name, graph, dict(case.feeds), reference(case), max(case.tolerance, APPROXIMATE))
            for case, graph in zip(sample, compiled, strict=True)
        ),
        "contrib_ops",
    )


def test_packed_forms_mean_the_same() -> None:
    """ONNX Runtime has no CPU kernel for queries, keys and values in one tensor."""
    q, k, v = (normal(2, 3, 8, seed=seed) for seed in range(3))
    packed = np.stack([x.reshape(2, 3, 2, 4) for x in (q, k, v)], axis=3)
    want = run_ort(
        mha("separate", SELF, {}, "q, k, v, c", constants={"c": normal(24)}).model(), {"q": q, "k": k, "v": v}
    )
    case = mha("packed", "float[B,S,2,3,4] x", {"x": packed}, "x, , , c", constants={"c": normal(24)})
    np.testing.assert_allclose(reference(case)[0], want[0], rtol=CLOSE, atol=CLOSE)
    want = run_ort(mha("separate", SELF, {}, "q, k, v").model(), {"q": q, "k": k, "v": v})
    case = mha("packed_kv", "float[B,S,8] q, float[B,L,2,2,4] x", {"q": q, "x": packed[:, :, :, 1:]}, "q, x")
    np.testing.assert_allclose(reference(case)[0], want[0], rtol=CLOSE, atol=CLOSE)


def computed_total(case: Case) -> Case:
    """The same with a total_sequence_length that is data."""
    body = case.body.replace("n = Shape(total) count = Cast<to = 6>(n)", "count = Cast<to = 6>(total)")
    return replace(case, name="total", signature=case.signature.replace("bool[T] total", "int64[1] total"), body=body)


REFUSED = [
    (computed_total(gqa("total", [6], 1, 5)), "total_sequence_length is computed from data"),
    (gqa("sink", [6], 1, 5, extra={11: ("float[4] h", normal(4))}), "head_sink is not supported"),
    (gqa("smooth", [6], 1, 5, more="smooth_softmax = 1"), "smooth_softmax=1 is not supported"),
    (gqa("quantized", [6], 1, 5, more='k_quant_type = "PER_TENSOR"'), "k_quant_type=PER_TENSOR is not supported"),
    (gqa("no_window", [6], 1, 5, more="local_window_size = 0"), "hides every key"),
    (mha("heads", QKV, QKV_FEEDS, "q, k, v", "num_heads = 3"), "does not divide into 3 heads"),
    (mha("mask_4d", QKV + ", int32[B,1,S,L] m", {}, "q, k, v, , m"), "4 dims"),
    (mha("mask_unknown", QKV + ", int32[M] m", {}, "q, k, v, , m"), "one length per batch element"),
    (mha("one_past", SELF + ", float[B,2,P,4] pk", {}, "q, k, v, , , , pk"), "only one of past_key and past_value"),
    (mha("shared", f"{SELF}, {PAST}, int32[1] n", {}, "q, k, v, , , , pk, pv, n"), "shared with the present"),
    (att("shared", P, {}, "x, w, c, , past", "num_heads = 2, past_present_share_buffer = 1"), "shared with the present"),
    (att("rotary", P, {}, "x, w, c, , past", "num_heads = 2, do_rotary = 1"), "do_rotary is not supported"),
    (rope("scale", normal(2, 3, 48), "B,S,48", "scale = 2.0", ROPE), "scale is not supported"),
    (rope("packed", normal(2, 3, 48), "B,S,48", "is_packed_batching = 1", ROPE), "packed batch"),
    (replace(quantized("5", 7, 64, 4, 32), body="y = com.microsoft.MatMulNBits<K = 64, N = 7, bits = 5, block_size = 32>(x, w, s)"), "5 bits"),
    (replace(QUANTIZED[0], body=QUANTIZED[0].body.replace("x, w, s", "x, w, s, , g"), signature="(float[B,S,64] x, int32[64] g) => (float[B,S,7] y)"), "g_idx"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=lambda x: str(x) if isinstance(x, Case) else "")
def test_refused_with_a_reason(case: Case, reason: str) -> None:
    with pytest.raises(ortisan.UnsupportedError, match=reason):
        ortisan.compile(case.model(), whole_graph=True, target="reference")


def test_a_refused_node_stays_what_it_was() -> None:
    case = gqa("sink", [6], 1, 5, extra={11: ("float[4] h", normal(4))})
    compiled = ortisan.compile(case.model())
    assert [left.op_type for left in compiled.left_out if left.op_type == "GroupQueryAttention"]
    converted = ortisan.convert_graph(case.model(), compiled)
    assert "GroupQueryAttention" in [node.op_type for node in converted.graph.node]


def test_rotated_heads_are_not_put_together_and_split_again() -> None:
    heads = "num_heads = 3"
    body = f"r = {ms('RotaryEmbedding', heads)}(q, ids, cos, sin) y = {ms('MultiHeadAttention', heads)}(r, k, v)"
    signature = "(float[B,S,48] q, float[B,S,48] k, float[B,S,48] v, int64[B,S] ids) => (float[B,S,48] y)"
    feeds = {name: normal(2, 3, 48, seed=seed) for seed, name in enumerate("qkv")} | IDS
    case = Case("both", signature, body, feeds, ROPE)
    counts = ortisan.compile(case.model(), whole_graph=True, target="reference").op_counts()
    assert counts["permute"] == 4
    np.testing.assert_allclose(reference(case)[0], run_ort(case.model(), feeds)[0], rtol=CLOSE, atol=CLOSE)
