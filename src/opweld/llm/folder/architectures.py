"""What a config.json of Hugging Face says of a model: its configuration, with the defaults of transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from opweld.errors import ModelError, UnsupportedError
from opweld.llm import rope as rotary
from opweld.llm.config import Config, Experts, Rope
from opweld.llm.fields import MOST_FEATURES, MOST_LAYERS, Fields

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True)
class Family:
    """What transformers knows of a type of model.

    Attributes:
        defaults: of keys that a config.json lacks. A key that it has as null is null.
        gemma: norms add 1 to their weights, embeddings are scaled, scores by query_pre_attn_scalar.
        every: each `every`-th layer sees all keys, the others a window; 0: `sliding_window` is of all layers.
        windowed: there may be a window. optional_window: it counts only if use_sliding_window says so.
        experts: the key of the number of experts; empty where there are none.
        normalized: whether weights of chosen experts are divided by their sum; None: norm_topk_prob says so.
    """

    defaults: Mapping[str, object]
    gemma: bool = False
    every: int = 0
    windowed: bool = True
    optional_window: bool = False
    experts: str = ""
    normalized: bool | None = None


_COMMON: dict[str, object] = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"}
_QWEN = _COMMON | {"max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = _COMMON | {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
_GEMMA2 = _GEMMA | {"max_position_embeddings": 8192, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
# The text of Gemma 3 with pictures: its config.json has little more than the sizes that differ from these.
_GEMMA3 = _GEMMA | {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
}
_MIXTRAL = _COMMON | {"rms_norm_eps": 1e-5, "rope_theta": 1e6}

FAMILIES = {
    "llama": Family(_COMMON | {"max_position_embeddings": 2048}, windowed=False),
    "mistral": Family(_COMMON | {"sliding_window": 4096}),
    "mixtral": Family(_MIXTRAL, experts="num_local_experts", normalized=True),
    "qwen2": Family(_QWEN, optional_window=True),
    "qwen2_moe": Family(_QWEN, optional_window=True, experts="num_experts"),
    "qwen3": Family(_QWEN | {"head_dim": 128}, optional_window=True),
    "qwen3_moe": Family(_QWEN, optional_window=True, experts="num_experts"),
    "gemma2": Family(_GEMMA2, gemma=True, every=2),
    "gemma3_text": Family(_GEMMA3, gemma=True, every=6),
    "phi3": Family(_COMMON | {"rms_norm_eps": 1e-5}),
    "gpt2": Family({"tie_word_embeddings": True, "activation_function": "gelu_new"}, windowed=False),
}
"""By `model_type`."""


def read_config(fields: Fields, context: int | None = None) -> Config:
    """The configuration of a model.

    Args:
        fields: of its config.json.
        context: the most tokens that are wanted. LongRoPE has factors for the original context and for longer ones.
            transformers changes from one to the other while a text grows, with keys in the cache that were turned by
            the other; here the choice is made once: None, and what the original context has room for, means short.

    Raises:
        UnsupportedError: the type of the model, or something that it asks for, is none of opweld's.
        ModelError: a key is missing, or its value makes no sense.
    """
    kind = fields.text("model_type", "")
    if kind == "gemma3":  # with pictures: the part that reads and writes text
        fields = fields.inner("text_config")
        kind = "gemma3_text"
    if kind not in FAMILIES:
        mla = ", with its latent attention," if "kv_lora_rank" in fields else ""
        raise UnsupportedError(
            f"{fields.file}: the model_type {kind!r}{mla} is not supported; opweld reads {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    fields = Fields({**family.defaults, **fields.values}, fields.file)
    refuse(fields)
    return _gpt2(fields) if kind == "gpt2" else _llama(fields, kind, family, context)


def refuse(fields: Fields) -> None:
    """Raises UnsupportedError for features that would be computed wrong."""
    if fields.get("quantization_config") is not None:
        raise UnsupportedError(
            f"{fields.file}: weights quantized as quantization_config says are not supported; take the model as it was "
            "trained, or a GGUF file"
        )
    for key in ("use_bidirectional_attention", "add_cross_attention", "scale_attn_by_inverse_layer_idx"):
        if fields.flag(key):
            raise UnsupportedError(f"{fields.file}: {key} is not supported")


def _llama(fields: Fields, kind: str, family: Family, context: int | None) -> Config:
    layers = fields.integer("num_hidden_layers", most=MOST_LAYERS)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    size = fields.integer("head_dim", hidden // heads, most=MOST_FEATURES)
    windows = _windows(fields, family, kind, layers)
    longest = fields.integer("max_position_embeddings")
    whole, local, short = _ropes(fields, size, longest, context)
    return Config(
        architecture=kind,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_size=size,
        inner=fields.integer("intermediate_size"),
        context=short or longest,
        epsilon=fields.positive("rms_norm_eps"),
        ropes=tuple(whole if window is None or kind != "gemma3_text" else local for window in windows),
        windows=windows,
        scale=1 / math.sqrt(fields.positive("query_pre_attn_scalar") if family.gemma else size),
        norm_offset=1.0 if family.gemma else 0.0,
        activation=activation(fields, "hidden_activation" if family.gemma else "hidden_act"),
        embedding_scale=math.sqrt(hidden) if family.gemma else 1.0,
        tied=fields.flag("tie_word_embeddings"),
        score_cap=fields.cap("attn_logit_softcapping") if family.gemma else None,
        logit_cap=fields.cap("final_logit_softcapping") if family.gemma else None,
        experts=_experts(fields, family),
    )


def _gpt2(fields: Fields) -> Config:
    layers = fields.integer("n_layer", most=MOST_LAYERS)
    hidden, heads = fields.integer("n_embd"), fields.integer("n_head", most=fields.integer("n_embd"))
    scaled = fields.flag("scale_attn_weights", True)
    return Config(
        architecture="gpt2",
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        inner=fields.integer("n_inner", 4 * hidden),
        context=fields.integer("n_positions"),
        epsilon=fields.positive("layer_norm_epsilon", 1e-5),
        ropes=(None,) * layers,
        windows=(None,) * layers,
        scale=1 / math.sqrt(hidden // heads) if scaled else 1.0,
        norm="layer",
        activation=activation(fields, "activation_function"),
        gated=False,
        tied=fields.flag("tie_word_embeddings"),
    )


def activation(fields: Fields, key: str) -> str:
    """opweld's name of an activation. Raises UnsupportedError for those that it does not know."""
    name = fields.text(key)
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"{fields.file}: {key} is {name}; opweld knows {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _experts(fields: Fields, family: Family) -> Experts | None:
    if not family.experts:
        return None
    key = family.experts if family.experts in fields else "num_local_experts"
    count = fields.integer(key, most=MOST_LAYERS)
    inner = fields.integer("moe_intermediate_size", fields.integer("intermediate_size"))
    normalized = fields.flag("norm_topk_prob") if family.normalized is None else family.normalized
    return Experts(count, fields.integer("num_experts_per_tok", most=count), inner, normalized)


def _windows(fields: Fields, family: Family, kind: str, layers: int) -> tuple[int | None, ...]:
    """The window of each layer: as layer_types says, or as transformers makes them up."""
    if not family.windowed or not fields.get("sliding_window"):
        return (None,) * layers
    if family.optional_window and not fields.flag("use_sliding_window"):
        return (None,) * layers
    window = fields.integer("sliding_window")
    if "layer_types" in fields:
        types = fields.texts("layer_types")
        unknown = set(types) - {"full_attention", "sliding_attention"}
        if unknown or len(types) != layers:
            raise UnsupportedError(
                f"{fields.file}: layer_types has {len(types)} layers of {layers}, and {unknown or ''}"
            )
        return tuple(window if one == "sliding_attention" else None for one in types)
    if family.every:
        every = fields.integer("sliding_window_pattern", family.every)
        return tuple(window if (n + 1) % every else None for n in range(layers))
    if kind in ("qwen2", "qwen3"):
        first = fields.integer("max_window_layers", least=0)
        return tuple(window if n >= first else None for n in range(layers))
    if kind == "qwen2_moe":
        last = fields.integer("max_window_layers", least=0)
        return tuple(window if n < last and (n + 1) % 2 else None for n in range(layers))
    return (window,) * layers


def _ropes(fields: Fields, size: int, longest: int, context: int | None) -> tuple[Rope, Rope, int | None]:
    """Rotary embeddings of layers that see all keys, and of those that see a window (of Gemma 3), and the context of
    LongRoPE's short factors, where these are taken.

    transformers 5 writes rope_parameters, perhaps one for each type of layer; before, rope_theta and rope_scaling."""
    given = fields.inner("rope_parameters")
    if "full_attention" in given or "sliding_attention" in given:
        whole, local = given.inner("full_attention"), given.inner("sliding_attention")
    else:
        whole = given if given.values else fields.inner("rope_scaling")
        local = Fields({"rope_theta": fields.get("rope_local_base_freq")}, fields.file)
    plain, short = _rope(whole, fields, size, longest, context)
    turned, _ = _rope(local, Fields({"rope_theta": 10000.0}, fields.file), size, longest, context)
    return plain, turned, short


def _rope(given: Fields, fields: Fields, size: int, longest: int, context: int | None) -> tuple[Rope, int | None]:
    theta = given.positive("rope_theta", fields.number("rope_theta", 10000.0))
    part = given.positive("partial_rotary_factor", fields.positive("partial_rotary_factor", 1.0))
    rotated = int(size * part)
    if rotated < 2 or rotated % 2 or rotated > size:
        raise ModelError(f"{given.file}: {rotated} features of a head's {size} are turned; it should be an even number")
    kind, plain = given.text("rope_type", given.text("type", "default")), rotary.frequencies(theta, rotated)
    if "short_factor" in given:  # Phi-3's first files call it su, and yarn
        kind = "longrope"
    if kind in ("default", "dynamic"):  # dynamic: as it is up to max_position_embeddings, and no further
        return Rope(plain), None
    if kind == "linear":
        return Rope(plain / given.positive("factor")), None
    original = fields.integer(
        "original_max_position_embeddings", given.integer("original_max_position_embeddings", longest)
    )
    if kind == "llama3":
        low, high = given.positive("low_freq_factor"), given.positive("high_freq_factor")
        if not low < high:
            raise ModelError(
                f"{given.file}: low_freq_factor should be below high_freq_factor, {low} is not below {high}"
            )
        return Rope(rotary.llama3(plain, given.positive("factor"), low, high, original)), None
    factor = given.positive("factor", longest / original)
    if kind == "yarn":
        fast, slow = given.positive("beta_fast", 32), given.positive("beta_slow", 1)
        turned = rotary.yarn(theta, rotated, factor, original, fast, slow, given.flag("truncate", True))
        scale = rotary.yarn_scale(factor)
        if given.get("mscale") and given.get("mscale_all_dim"):
            scale = rotary.yarn_scale(factor, given.positive("mscale"))
            scale /= rotary.yarn_scale(factor, given.positive("mscale_all_dim"))
        return Rope(turned, given.positive("attention_factor", scale)), None
    if kind == "longrope":
        wide = context is not None and context > original
        key = "long_factor" if wide else "short_factor"
        turned = rotary.divided(plain, given.numbers(key), f"{given.file}, {key}")
        scale = given.positive("attention_factor", rotary.longrope_scale(factor, original))
        return Rope(turned, scale), None if wide else min(original, longest)
    raise UnsupportedError(
        f"{given.file}: rope_type is {kind}; opweld knows default, linear, dynamic, yarn, llama3 and longrope"
    )
