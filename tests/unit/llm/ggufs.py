"""Writes small GGUF files of every architecture, with the package `gguf` of llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

HIDDEN, INNER, HEADS, KV_HEADS, SIZE, LAYERS, EXPERTS, EXPERT_INNER = 64, 96, 4, 2, 32, 2, 4, 32
VOCABULARY = 300


@dataclass
class Made:
    """A file that is to be written: metadata without the architecture's prefix, tensors."""

    architecture: str
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def write(
        self,
        path: Path,
        kinds: Mapping[str, gguf.GGMLQuantizationType] | None = None,
        vocabulary: Callable[[gguf.GGUFWriter], None] | None = None,
    ) -> Path:
        """kinds: the type of each tensor that is not to be float32."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            name = f"{self.architecture}.{key}"
            if isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            elif isinstance(value, list):
                writer.add_array(name, value)
            else:
                writer.add_string(name, value)
        (vocabulary or write_vocabulary)(writer)
        for name, value in self.tensors.items():
            kind = (kinds or {}).get(name, gguf.GGMLQuantizationType.F32)
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def write_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Byte-level BPE: a token for each byte, one merge, an end."""
    from opweld.llm.pieces import byte_characters

    tokens = [*byte_characters(), "Ġt", "<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["Ġ t"])
    writer.add_eos_token_id(len(tokens) - 1)


def head_size(architecture: str) -> int:
    """Features of a head; llama.cpp wants those of all heads together to be those of the model for some."""
    return HIDDEN // HEADS if architecture in ("gpt2", "qwen2", "qwen2moe", "phi3") else SIZE


def made(architecture: str) -> Made:
    """A model of that architecture with random weights, as llama.cpp's converter would write it."""
    random = np.random.default_rng(1)
    found = Made(architecture)
    moe = architecture.endswith("moe") or architecture == "mixtral"
    size = head_size(architecture)
    if architecture == "mixtral":
        found.architecture = "llama"
    found.metadata = {
        "context_length": 128,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS if architecture == "gpt2" else KV_HEADS,
        "attention.layer_norm_epsilon" if architecture == "gpt2" else "attention.layer_norm_rms_epsilon": 1e-5,
    }
    kv = HEADS if architecture == "gpt2" else KV_HEADS
    if architecture != "gpt2":
        found.metadata |= {"attention.key_length": size, "attention.value_length": size, "rope.freq_base": 5000.0}
    if moe:
        found.metadata |= {"expert_count": EXPERTS, "expert_used_count": 2}
        if architecture != "mixtral":
            found.metadata["expert_feed_forward_length"] = EXPERT_INNER
    if architecture.startswith("gemma"):
        found.metadata |= {"attention.sliding_window": 16}
    if architecture == "gemma2":
        found.metadata |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if architecture == "gemma3":
        found.metadata |= {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}

    def add(name: str, *shape: int) -> None:
        found.tensors[name] = random.standard_normal(shape).astype(np.float32)

    add("token_embd.weight", VOCABULARY, HIDDEN)
    add("output_norm.weight", HIDDEN)
    if not architecture.startswith("gemma") and architecture != "gpt2":
        add("output.weight", VOCABULARY, HIDDEN)
    if architecture == "gpt2":
        add("position_embd.weight", 128, HIDDEN)
        add("output_norm.bias", HIDDEN)
    for n in range(LAYERS):
        layer = f"blk.{n}."
        add(layer + "attn_norm.weight", HIDDEN)
        add(layer + "ffn_norm.weight", HIDDEN)
        add(layer + "attn_output.weight", HIDDEN, HEADS * size)
        if architecture in ("phi3", "gpt2"):
            add(layer + "attn_qkv.weight", (HEADS + 2 * kv) * size, HIDDEN)
        else:
            for part, count in (("q", HEADS), ("k", kv), ("v", kv)):
                add(f"{layer}attn_{part}.weight", count * size, HIDDEN)
                if architecture.startswith("qwen2"):
                    add(f"{layer}attn_{part}.bias", count * size)
        if architecture.startswith("qwen3") or architecture == "gemma3":
            add(layer + "attn_q_norm.weight", size)
            add(layer + "attn_k_norm.weight", size)
        if architecture.startswith("gemma"):
            add(layer + "post_attention_norm.weight", HIDDEN)
            add(layer + "post_ffw_norm.weight", HIDDEN)
        if moe:
            inner = INNER if architecture == "mixtral" else EXPERT_INNER
            add(layer + "ffn_gate_inp.weight", EXPERTS, HIDDEN)
            add(layer + "ffn_gate_exps.weight", EXPERTS, inner, HIDDEN)
            add(layer + "ffn_up_exps.weight", EXPERTS, inner, HIDDEN)
            add(layer + "ffn_down_exps.weight", EXPERTS, HIDDEN, inner)
            if architecture == "qwen2moe":
                add(layer + "ffn_gate_inp_shexp.weight", HIDDEN)
                add(layer + "ffn_gate_shexp.weight", 48, HIDDEN)
                add(layer + "ffn_up_shexp.weight", 48, HIDDEN)
                add(layer + "ffn_down_shexp.weight", HIDDEN, 48)
            continue
        if architecture == "phi3":
            add(layer + "ffn_up.weight", 2 * INNER, HIDDEN)
        else:
            add(layer + "ffn_up.weight", INNER, HIDDEN)
            if architecture != "gpt2":
                add(layer + "ffn_gate.weight", INNER, HIDDEN)
        add(layer + "ffn_down.weight", HIDDEN, INNER)
        if architecture == "gpt2":
            for name in ("attn_norm", "ffn_norm", "attn_output", "ffn_down"):
                add(f"{layer}{name}.bias", HIDDEN)
            add(layer + "attn_qkv.bias", 3 * HIDDEN)
            add(layer + "ffn_up.bias", INNER)
    return found
