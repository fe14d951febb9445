"""Small models of transformers with random weights, one for each architecture of the sweep."""

from __future__ import annotations

from typing import Any

import torch

_SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": 61, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_ctx": 64, "n_inner": 48, "vocab_size": 61}
_SEQ2SEQ = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 61, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 61, "pad_token_id": 0,
       "decoder_start_token_id": 0}  # fmt: skip
_IMAGE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
          "image_size": 32, "patch_size": 8}  # fmt: skip
_MOE = {**_SMALL, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SOUND = {**_SMALL, "conv_dim": (16, 16), "conv_stride": (4, 4), "conv_kernel": (8, 8), "num_feat_extract_layers": 2,
          "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip

TEXT = {
    "Bert": _SMALL, "Roberta": _SMALL, "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 61},
    "Albert": {**_SMALL, "embedding_size": 16}, "Electra": {**_SMALL, "embedding_size": 16}, "Camembert": _SMALL,
    "XLMRoberta": _SMALL, "MPNet": _SMALL, "ModernBert": _SMALL, "Deberta": _SMALL, "DebertaV2": _SMALL,
    "RoFormer": {**_SMALL, "embedding_size": 32}, "ConvBert": {**_SMALL, "embedding_size": 32}, "SqueezeBert": {**_SMALL, "embedding_size": 32},
    "MobileBert": {**_SMALL, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "Ernie": _SMALL, "Nystromformer": {**_SMALL, "num_landmarks": 4, "segment_means_seq_len": 4}, "FNet": _SMALL, "Funnel": {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1], "vocab_size": 61},
    "XLNet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": 61}, "LayoutLM": _SMALL, "Splinter": _SMALL,
    "Yoso": _SMALL, "RemBert": {**_SMALL, "input_embedding_size": 16, "output_embedding_size": 16}, "MegatronBert": _SMALL,
}  # fmt: skip
DECODERS = {
    "GPT2": _GPT, "GPTNeo": {**_SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "GPTNeoX": _SMALL, "GPTJ": {**_GPT, "rotary_dim": 4}, "CodeGen": {**_GPT, "rotary_dim": 4}, "OPT": {**_SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 61}, "Llama": _SMALL, "Mistral": {**_SMALL, "sliding_window": 4},
    "Qwen2": _SMALL, "Qwen3": _SMALL, "Phi": {**_SMALL, "num_key_value_heads": 4}, "Phi3": _SMALL, "Gemma": _SMALL, "Gemma2": {**_SMALL, "sliding_window": 4},
    "Gemma3Text": {**_SMALL, "sliding_window": 4}, "StableLm": _SMALL, "Starcoder2": _SMALL, "Falcon": {name: value for name, value in _SMALL.items() if name != "head_dim"}, "Mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 61, "max_seq_len": 64},
    "Cohere": _SMALL, "Olmo": _SMALL, "Olmo2": _SMALL, "Granite": _SMALL, "Glm": _SMALL, "Nemotron": _SMALL, "Persimmon": _SMALL,
    "Mamba": {**_SMALL, "state_size": 4}, "Mixtral": _MOE, "Qwen2Moe": {**_MOE, "shared_expert_intermediate_size": 16}, "GPTBigCode": _GPT,
    "SmolLM3": _SMALL, "Helium": _SMALL, "XGLM": {**_SEQ2SEQ, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48}, "BioGpt": _SMALL,
}  # fmt: skip
PAIRS = {
    "T5": _T5, "MT5": _T5, "Bart": _SEQ2SEQ, "MBart": _SEQ2SEQ, "Pegasus": _SEQ2SEQ, "Marian": _SEQ2SEQ, "M2M100": _SEQ2SEQ,
    "Blenderbot": _SEQ2SEQ, "LED": {**_SEQ2SEQ, "attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
}  # fmt: skip
IMAGES = {
    "ViT": _IMAGE, "DeiT": _IMAGE, "Beit": _IMAGE, "Dinov2": _IMAGE, "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, "Swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 32, "patch_size": 4},
    "Segformer": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "num_attention_heads": [1, 2], "sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2]},
    "MobileViT": {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32], "num_attention_heads": 2, "image_size": 32},
    "PoolFormer": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}, "RegNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
    "EfficientNet": {"hidden_dim": 320, "width_coefficient": 0.25, "depth_coefficient": 0.1, "image_size": 32}, "MobileNetV2": {"depth_multiplier": 0.25, "image_size": 32},
}  # fmt: skip
SOUNDS = {
    "Wav2Vec2": _SOUND,
    "Hubert": _SOUND,
    "WavLM": _SOUND,
    "SEW": {**_SOUND, "squeeze_factor": 2},
    "Data2VecAudio": _SOUND,
}

ALL = {
    **{name: ("text", config) for name, config in TEXT.items()},
    **{name: ("decoder", config) for name, config in DECODERS.items()},
    **{name: ("pair", config) for name, config in PAIRS.items()},
    **{name: ("image", config) for name, config in IMAGES.items()},
    **{name: ("sound", config) for name, config in SOUNDS.items()},
}


def make_model(name: str) -> Any:
    """The model with wide random weights, or None where this release of transformers has none of that name."""
    import transformers

    kind = getattr(transformers, f"{name}Model", None)
    config = getattr(transformers, f"{name}Config", None)
    if kind is None or config is None:
        return None
    torch.manual_seed(0)
    model = kind(config(**ALL[name][1])).eval()
    with torch.no_grad():
        for each in model.parameters():
            if each.ndim > 1:
                each.normal_(0, _deviation(each))
    _measure(model, name)
    return model


def _measure(model: Any, name: str) -> None:
    """Gives batch norms the statistics of a batch and weights around 1, without which deep nets fade away."""
    norms = [part for part in model.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    if norms:
        before = [part.momentum for part in norms]
        for part in norms:
            part.train().momentum = 1.0
        with torch.no_grad():
            for part in norms:
                part.weight.uniform_(0.5, 1.5)
            model(**make_inputs(name, 4, 16))
        for part, momentum in zip(norms, before, strict=True):
            part.eval().momentum = momentum


def _deviation(weight: torch.Tensor) -> float:
    """Wide for matrices; for filters what keeps images at their size through many layers."""
    return 0.2 if weight.ndim == 2 else float((2.0 / weight[0].numel()) ** 0.5)


def make_inputs(name: str, batch: int, length: int) -> dict[str, Any]:
    road = ALL[name][0]
    torch.manual_seed(batch * 100 + length)
    if road == "image":
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    if road == "sound":
        return {"input_values": torch.randn(batch, 64 * length)}
    ids = torch.randint(3, 61, (batch, length))
    inputs = {"input_ids": ids}
    if name != "Mamba":
        inputs["attention_mask"] = torch.ones_like(ids)
    if road == "pair":
        inputs["decoder_input_ids"] = torch.randint(3, 61, (batch, length // 2))
    if road in ("decoder", "pair"):
        inputs["use_cache"] = False  # type: ignore[assignment]
    return inputs
