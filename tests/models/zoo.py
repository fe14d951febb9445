"""Small transformers of many kinds, as modules of torch. Needs torch and transformers.

Every model has 2 layers of width 64 and random weights: wider than a trained model's, biases not zero, norm weights
away from 1, so that an error in any of them shows. Batch, length and past length are dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LAYERS, HIDDEN, HEADS, VOCABULARY, POSITIONS = 2, 64, 4, 97, 64
IMAGE, PATCH, MELS = 32, 8, 8


@dataclass(frozen=True)
class Sizes:
    """What the dynamic dims are in one run."""

    batch: int = 2
    length: int = 7
    past: int = 0
    encoded: int = 5

    @property
    def total(self) -> int:
        return self.past + self.length


@dataclass(frozen=True)
class Input:
    """An input's name, its dims (a number, or a dim of `Sizes`) and what fills it: ids, mask, positions or values."""

    name: str
    dims: tuple[int | str, ...]
    kind: str


@dataclass(frozen=True)
class Family:
    """One architecture: what to build, what goes in, and how many attentions it has."""

    build: Callable[[str], Any]
    """Makes the torch module with the given attention implementation; it takes the inputs in order."""
    inputs: tuple[Input, ...]
    attentions: int = LAYERS
    outputs: int = 1
    has_past: bool = False
    legacy: bool = True
    """Whether the older exporter can export it."""
    implementations: tuple[str, ...] = ("sdpa", "eager")
    stays: frozenset[str] = field(default=frozenset())
    """Op types that may stay in ONNX Runtime."""


IDS = Input("input_ids", ("batch", "length"), "ids")
MASK = Input("attention_mask", ("batch", "total"), "mask")
POSITION = Input("position_ids", ("batch", "length"), "positions")


def _pasts(heads: int, size: int) -> tuple[Input, ...]:
    return tuple(
        Input(f"past_key_values.{layer}.{part}", ("batch", heads, "past", size), "values")
        for layer in range(LAYERS)
        for part in ("key", "value")
    )


def _encoder(kind: str, **config: Any) -> Callable[[str], Any]:
    def build(attention: str) -> Any:
        import torch

        class Encoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = _make(kind, attention, config)

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.model(input_ids, attention_mask=attention_mask)[0]

        return Encoder()

    return build


def _decoder(kind: str, *, positions: bool, past: bool, **config: Any) -> Callable[[str], Any]:
    """A language model: logits, and with `past` the keys and values of every layer, old and new."""

    def build(attention: str) -> Any:
        import torch
        from transformers import DynamicCache

        class Decoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = _make(kind, attention, config)

            def forward(self, input_ids: Any, attention_mask: Any, *rest: Any) -> Any:
                more = {"position_ids": rest[0]} if positions else {}
                if not past:
                    return self.model(input_ids, attention_mask=attention_mask, use_cache=False, **more).logits
                tensors = rest[positions:]
                cache = DynamicCache()
                for layer in range(LAYERS):
                    cache.update(tensors[2 * layer], tensors[2 * layer + 1], layer)
                result = self.model(
                    input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True, **more
                )
                presents = [t for layer in result.past_key_values.layers for t in (layer.keys, layer.values)]
                return (result.logits, *presents)

        return Decoder()

    return build


def _t5_decoder(attention: str) -> Any:
    import torch

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _make("T5Model", attention, _T5).decoder

        def forward(self, input_ids: Any, attention_mask: Any, encoded: Any, encoded_mask: Any) -> Any:
            return self.model(
                input_ids,
                attention_mask=attention_mask,
                encoder_hidden_states=encoded,
                encoder_attention_mask=encoded_mask,
                use_cache=False,
            )[0]

    return Decoder()


def _bart(attention: str) -> Any:
    import torch

    class Bart(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _make("BartModel", attention, _BART)

        def forward(self, encoder_ids: Any, encoder_mask: Any, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(
                encoder_ids,
                attention_mask=encoder_mask,
                decoder_input_ids=input_ids,
                decoder_attention_mask=attention_mask,
                use_cache=False,
            )[0]

    return Bart()


def _values(kind: str, pick: Callable[[Any], Any] | None = None, **config: Any) -> Callable[[str], Any]:
    """A model of one tensor of floats."""

    def build(attention: str) -> Any:
        import torch

        class Values(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                model = _make(kind, attention, config)
                self.model = pick(model) if pick else model

            def forward(self, x: Any) -> Any:
                return self.model(x)[0]

        return Values()

    return build


def _clip_text(attention: str) -> Any:
    import torch

    class Text(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _make("CLIPTextModel", attention, {**_TEXT, "eos_token_id": 1})

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            result = self.model(input_ids, attention_mask=attention_mask)
            return result.last_hidden_state, result.pooler_output

    return Text()


_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "max_position_embeddings": POSITIONS,
}
_LLAMA = {**_TEXT, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": POSITIONS,
}
_VISION = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "image_size": IMAGE,
    "patch_size": PATCH,
}
_PIXELS = Input("x", ("batch", 3, IMAGE, IMAGE), "values")
_CONVOLUTION = frozenset({"Conv"})


def _lm(
    kind: str,
    *,
    positions: bool = True,
    heads: int | None = None,
    size: int = 16,
    implementations: tuple[str, ...] = ("sdpa", "eager"),
    **config: Any,
) -> Family:
    """A decoder over a whole sequence, or after a past when `heads` says how many key heads the past has."""
    past = heads is not None
    inputs = (IDS, MASK, *((POSITION,) if positions else ()), *(_pasts(heads, size) if heads else ()))
    return Family(
        _decoder(kind, positions=positions, past=past, **config),
        inputs,
        outputs=1 + 2 * LAYERS * past,
        has_past=past,
        implementations=implementations,
    )


FAMILIES: Mapping[str, Family] = {
    "bert": Family(_encoder("BertModel", **_TEXT), (IDS, MASK)),
    "roberta": Family(_encoder("RobertaModel", **{**_TEXT, "max_position_embeddings": POSITIONS + 2}), (IDS, MASK)),
    "distilbert": Family(
        _encoder(
            "DistilBertModel",
            vocab_size=VOCABULARY,
            dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=96,
            max_position_embeddings=POSITIONS,
        ),
        (IDS, MASK),
    ),
    "electra": Family(_encoder("ElectraModel", embedding_size=32, **_TEXT), (IDS, MASK)),
    "albert": Family(_encoder("AlbertModel", embedding_size=32, **_TEXT), (IDS, MASK)),
    "mpnet": Family(
        _encoder("MPNetModel", **{**_TEXT, "max_position_embeddings": POSITIONS + 2}),
        (IDS, MASK),
        implementations=("eager",),
    ),
    "deberta": Family(
        _encoder(
            "DebertaV2Model",
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            position_buckets=8,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            **_TEXT,
        ),
        (IDS, MASK),
        implementations=("eager",),
    ),
    "gpt2": _lm("GPT2LMHeadModel", **_GPT2),
    "gpt2 past": _lm("GPT2LMHeadModel", heads=HEADS, **_GPT2),
    "opt": _lm("OPTForCausalLM", positions=False, ffn_dim=96, word_embed_proj_dim=HIDDEN, **_TEXT),
    "gpt-neox": _lm("GPTNeoXForCausalLM", rotary_pct=0.5, **_TEXT),
    "llama": _lm("LlamaForCausalLM", **_LLAMA),
    "llama past": _lm("LlamaForCausalLM", heads=2, **_LLAMA),
    "qwen2": _lm("Qwen2ForCausalLM", **_LLAMA),
    "qwen3 past": _lm("Qwen3ForCausalLM", heads=2, head_dim=16, **_LLAMA),
    "mistral": _lm("MistralForCausalLM", sliding_window=4, **_LLAMA),
    "mistral past": _lm("MistralForCausalLM", heads=2, sliding_window=4, **_LLAMA),
    "phi": _lm("PhiForCausalLM", partial_rotary_factor=0.5, **_TEXT),
    "gemma2": _lm(
        "Gemma2ForCausalLM",
        implementations=("eager",),
        head_dim=16,
        sliding_window=4,
        query_pre_attn_scalar=16,
        **_LLAMA,
    ),
    "bloom": _lm(
        "BloomForCausalLM",
        implementations=("eager",),
        positions=False,
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
    ),
    "t5 encoder": Family(lambda attention: _encoded(_make("T5EncoderModel", attention, _T5)), (IDS, MASK)),
    "t5 decoder": Family(
        _t5_decoder,
        (
            IDS,
            MASK,
            Input("encoded", ("batch", "encoded", HIDDEN), "values"),
            Input("encoded_mask", ("batch", "encoded"), "mask"),
        ),
        attentions=2 * LAYERS,
    ),
    "bart": Family(
        _bart,
        (
            Input("encoder_ids", ("batch", "encoded"), "ids"),
            Input("encoder_mask", ("batch", "encoded"), "mask"),
            IDS,
            MASK,
        ),
        attentions=3 * LAYERS,
    ),
    "whisper encoder": Family(
        _values(
            "WhisperModel",
            lambda model: model.encoder,
            d_model=HIDDEN,
            encoder_layers=LAYERS,
            decoder_layers=1,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=96,
            decoder_ffn_dim=96,
            num_mel_bins=MELS,
            max_source_positions=20,
            vocab_size=VOCABULARY,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        (Input("x", ("batch", MELS, 40), "values"),),
        stays=_CONVOLUTION,
    ),
    "vit": Family(_values("ViTModel", **_VISION), (_PIXELS,), stays=_CONVOLUTION),
    "clip vision": Family(_values("CLIPVisionModel", **_VISION), (_PIXELS,), stays=_CONVOLUTION),
    "clip text": Family(_clip_text, (IDS, MASK), outputs=2, stays=frozenset({"ArgMax"})),
}


def _encoded(model: Any) -> Any:
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids, attention_mask=attention_mask)[0]

    return Encoder()


def _make(kind: str, attention: str, config: Mapping[str, Any]) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    model_class = getattr(transformers, kind)
    settings = {"attn_implementation": attention, "pad_token_id": 0, **config}
    model = model_class(model_class.config_class(**settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() or "ln_" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.1 if parameter.ndim == 1 else 0.15)
    return model
