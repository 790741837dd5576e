"""Configurations of transformers with small sizes, by the names that its models give their sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.architectures.catalogue import VOCABULARY

_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What says how many layers there are."""

_SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(
        ("entity_vocab_size", "encoder_hash_byte_group_vocab", "unpadded_vocab_size", "ngram_vocab_size_base"),
        VOCABULARY,
    ),
    **dict.fromkeys(("pronunciation_vocab_size", "shape_vocab_size", "t2u_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "word_embed_proj_dim", "embedding_size", "emb_dim"), 32),
    **dict.fromkeys(("hidden_size_global", "out_hidden_size", "output_dim", "backbone_hidden_size", "hidden_dim"), 32),
    **dict.fromkeys(("projector_input_dim", "projector_output_dim", "prediction_head_size"), 32),
    **dict.fromkeys(_COUNTS, 1),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "depth"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "moe_topk", "top_k_experts"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner"), 48),
    **dict.fromkeys(("dim_ff", "feed_forward_size", "mlp_dim", "ffn_hidden_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("dense_intermediate_size", "t2u_encoder_ffn_dim", "t2u_decoder_ffn_dim"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"), 24),
    **dict.fromkeys(("moe_shared_expert_intermediate_size",), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 40),
    **dict.fromkeys(("max_encoder_position_embeddings", "max_decoder_position_embeddings"), 40),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim", "d_head", "dim_head", "swa_head_dim", "global_head_dim"), 8),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim", "o_lora_rank"), 8),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank", "adapter_rank", "attention_head_size"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "mamba_head_dim", "mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size", "keep_window_size", "index_topk", "sliding_window"), 4),
    **dict.fromkeys(("local_attn_chunk_length", "lsh_attn_chunk_length", "prompt_length", "attention_window"), 4),
    **dict.fromkeys(("attention_chunk_size", "num_centroids"), 4),
    **dict.fromkeys(("index_head_dim", "rel_extent", "prompt_mid_dim", "entity_emb_size", "embedding_rank"), 16),
    "index_n_heads": 16,  # a score is a sum over heads of what is above 0: of few heads, many are 0, equally good
    **dict.fromkeys(("first_k_dense_replace", "n_group", "topk_group"), 1),
    "num_kv_shared_layers": 0,
    "zero_expert_num": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "use_cache": False,
}

_KINDS = ("layer_types", "layers_block_type", "mlp_layer_types")
"""What says of each layer what it is."""

_OWN: dict[str, dict[str, Any]] = {
    "axk2": {"index_topk": 40},
    "bamba": {"num_hidden_layers": 2, "attn_layer_indices": [1]},
    "dbrx": {"ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}},
    "esmc": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 64},
    "funnel": {"block_sizes": [1, 1, 1]},
    "hy_v4": {"index_topk": 40},
    "jamba": {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "jetmoe": {"pad_token_id": None},
    "mamba2": {"head_dim": 16, "n_groups": 2, "state_size": 8},
    "musicgen_decoder": {"num_codebooks": 1},
    "musicgen_melody_decoder": {"num_codebooks": 1},
    "neomme": {"head_dim": 16},
    "reformer": {"attn_layers": ["local", "lsh"], "axial_pos_embds": False, "num_buckets": 2, "is_decoder": True},
    "zaya": {"num_experts_per_tok": 1},
}
"""Options of a type of model whose sizes have to agree with others. A row of zeros for padding has equal scores for
all experts, of which PyTorch chooses any; so have keys of AXK2 and HYV4 that no head finds, unless all are taken."""


def small(plain: Any) -> dict[str, Any]:
    """Options that make a configuration like this one small, with those within it, and a layer of each kind."""
    names = {own.name for own in dataclasses.fields(plain)} | set(plain.attribute_map) | set(vars(plain))
    found = {name: value for name, value in _SMALL.items() if name in names}
    if "kv_lora_rank" in names:  # every head has keys of its own, made of few numbers
        found["num_key_value_heads"] = found["num_attention_heads"]
    kinds = _layers({name: getattr(plain, name) for name in _KINDS if name in vars(plain)})
    count = max(2 if "first_k_dense_replace" in names else 1, *map(len, kinds.values()), 1)
    found |= {name: own + own[-1:] * (count - len(own)) for name, own in kinds.items()}
    found |= dict.fromkeys([name for name in _COUNTS if name in found], count)
    for name, value in vars(plain).items():
        if hasattr(value, "attribute_map") and hasattr(value, "model_type"):
            found[name] = {"model_type": value.model_type, **small(value)}
    return found | _OWN.get(plain.model_type, {})


def _layers(said: dict[str, Any]) -> dict[str, list[str]]:
    """One of each kind."""
    return {name: list(dict.fromkeys(own)) for name, own in said.items() if own}
