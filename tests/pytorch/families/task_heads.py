"""Every task head of transformers on the architectures of tests/architectures, and the other language models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from tests.architectures.architecture import Architecture
from tests.architectures.catalogue import CATALOGUE, SEQUENCES, VOCABULARY, ids, mask
from tests.pytorch.families.family import Family, Inputs

_LANGUAGE = ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM")
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size",), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "word_embed_proj_dim", "embedding_size", "emb_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 40),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "sliding_window": 4,
    "n_group": 1,
    "topk_group": 1,
    "use_cache": False,
}

_OWN: dict[str, dict[str, Any]] = {
    "mamba2": {"head_dim": 16, "n_groups": 2, "state_size": 8, "chunk_size": 4},
    "jetmoe": {"pad_token_id": None},
}
"""Options of a type of model whose usual sizes have to agree with others. A row of zeros for padding has equal scores
for all experts, of which PyTorch chooses any."""


def families() -> Iterator[Family]:
    """A family is a class of transformers: those of the catalogue, then others whose configuration can be made small
    by the usual names of its sizes."""
    heads = _heads()
    seen: set[str] = set()
    for entry in CATALOGUE:
        if not entry.config:
            continue
        kind = _class(entry.config).model_type
        for head in dict.fromkeys((entry.module, *heads.get(kind, ()))):
            if head in seen or entry.name.endswith("-cached"):
                continue
            seen.add(head)

            def make(head: str = head, entry: Architecture = entry) -> tuple[torch.nn.Module, list[Inputs]]:
                return _made(head, entry)

            yield Family("transformers", head, make)
    for kind, head in _others():
        if head in seen:
            continue
        seen.add(head)

        def small(head: str = head, kind: str = kind) -> tuple[torch.nn.Module, list[Inputs]]:
            return _made(head, _small(kind, head))

        yield Family("transformers", head, small)


def _class(name: str) -> Any:
    import transformers

    return getattr(transformers, name)


def _mappings() -> dict[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto

    end = "_MAPPING_NAMES"
    tables = {name.removesuffix(end): own for name, own in vars(modeling_auto).items() if name.endswith(end)}
    return {name: dict(own) for name, own in tables.items() if name.startswith("MODEL_")}


def _heads() -> dict[str, list[str]]:
    """The classes of each type of model."""
    found: dict[str, list[str]] = {}
    for mapping in _mappings().values():
        for kind, names in mapping.items():
            found.setdefault(kind, []).extend([names] if isinstance(names, str) else names)
    return found


def _others() -> Iterator[tuple[str, str]]:
    """(type of model, class) of language models."""
    mappings = _mappings()
    for task in _LANGUAGE:
        for kind, names in mappings[f"MODEL_FOR_{task}"].items():
            yield from ((kind, name) for name in ([names] if isinstance(names, str) else names))


def _small(kind: str, head: str) -> Architecture:
    """A configuration of which the usual sizes are small."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    configuration: Any = CONFIG_MAPPING[kind]
    plain = configuration()
    options = {name: value for name, value in _SMALL.items() if hasattr(plain, name)} | _OWN.get(kind, {})
    encoder = (ids("decoder_input_ids"),) if getattr(plain, "is_encoder_decoder", False) else ()
    return Architecture(head, head, configuration.__name__, options, (ids(), mask(), *encoder), SEQUENCES[:2])


def _made(head: str, entry: Architecture) -> tuple[torch.nn.Module, list[Inputs]]:
    configuration = _class(entry.config)(**entry.options)
    configuration.return_dict = True
    with torch.device("meta"):
        size = sum(p.numel() for p in _class(head)(configuration).parameters())
    if size > 20_000_000:
        raise ValueError(f"{size} parameters: its configuration is not small")
    module = _class(head)(configuration).eval()
    takes = inspect.signature(module.forward).parameters
    found: list[Inputs] = []
    for sizes in (entry.sizes[0], entry.sizes[-1]):
        fed: Inputs = {name: torch.from_numpy(array) for name, array in entry.feeds(sizes).items() if name in takes}
        if "MultipleChoice" in head:
            fed = {name: torch.stack([own, own], 1) for name, own in fed.items()}
        found.append({**fed, **{name: value for name, value in entry.fixed.items() if name in takes}})
    return module, found
