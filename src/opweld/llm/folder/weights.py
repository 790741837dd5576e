"""Tensors of transformers under opweld's names: each is read when it is called for.

Tensors that are several weights are taken apart by rows: queries, keys and values of Phi-3 and GPT-2, gate and up of
Phi-3 and of experts that are stacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from opweld.errors import UnsupportedError
from opweld.llm.completeness import Stored, complete
from opweld.llm.config import Config
from opweld.llm.folder.safetensors import FileTensor
from opweld.llm.weights import Blocked, Weight, Weights

_LLAMA = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "output",
    "self_attn.q_norm": "query_norm",
    "self_attn.k_norm": "key_norm",
    "post_attention_layernorm": "feed_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
    "mlp.gate": "router",
    "block_sparse_moe.gate": "router",
    "mlp.shared_expert_gate": "shared_router",
    "mlp.shared_expert.gate_proj": "shared.gate",
    "mlp.shared_expert.up_proj": "shared.up",
    "mlp.shared_expert.down_proj": "shared.down",
}
_GEMMA = _LLAMA | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "feed_norm",
    "post_feedforward_layernorm": "post_feed_norm",
}
_GPT2 = {
    "ln_1": "attention_norm",
    "attn.c_proj": "output",
    "ln_2": "feed_norm",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}
_WHOLE = {
    "embed_tokens": "embedding",
    "norm": "norm",
    "lm_head": "head",
    "wte": "embedding",
    "wpe": "positions",
    "ln_f": "norm",
}
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)")
_EXPERT_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.(.+)")
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "transformer.")
_IGNORED = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(bias|masked_bias)$|(^|\.)(vision_tower|multi_modal_projector)\.")
"""Tables that are computed, masks, and what sees pictures."""


@dataclass(frozen=True)
class _Part:
    """Part of a tensor: of a stack the one with that index, transposed if need be, and of that some rows."""

    tensor: FileTensor
    shape: tuple[int, ...]
    stack: int | None = None
    transposed: bool = False
    first: int = 0

    def __call__(self) -> Weight:
        found = self.tensor.read()
        if isinstance(found, Blocked):
            return found.rows(self.first, self.shape[0])
        found = found if self.stack is None else found[self.stack]
        found = found.T if self.transposed else found
        return np.ascontiguousarray(found[self.first : self.first + self.shape[0]]).reshape(self.shape)


def read_weights(tensors: Mapping[str, FileTensor], config: Config, file: str) -> Weights:
    """The weights of a model.

    Raises:
        ModelError: a tensor is missing, or of another shape than the configuration says.
        UnsupportedError: there are tensors that the architecture does not have.
    """
    stored: dict[str, Stored] = {}
    for tensor in tensors.values():
        known = _IGNORED.search(tensor.name) is not None
        for name, part in _parts(config, tensor):
            known = True
            if name != "head" or not config.tied:
                stored[name] = Stored(tensor.name, part.shape, part)
        if not known:
            raise UnsupportedError(f"{file}: {config.architecture} has no tensor {tensor.name} that opweld knows")
    return complete(config, stored, file)


def _parts(config: Config, tensor: FileTensor) -> Iterator[tuple[str, _Part]]:
    """The weights in a tensor: their names and where they are."""
    name = next((tensor.name.removeprefix(p) for p in _PREFIXES if tensor.name.startswith(p)), tensor.name)
    stem, _, kind = name.rpartition(".")
    if kind not in ("weight", "bias"):
        stem, kind = name, "weight"
    end = "" if kind == "weight" else ".bias"
    if stem in _WHOLE:
        yield _WHOLE[stem] + end, _Part(tensor, tensor.shape)
    match = _LAYER.fullmatch(stem)
    if match is None or int(match[1]) >= config.layers:
        return
    layer, source = f"layers.{int(match[1])}.", match[2]
    if config.architecture == "gpt2":
        yield from _of_gpt2(config, tensor, layer, source, end)
        return
    names, size = _GEMMA if config.architecture.startswith("gemma") else _LLAMA, config.head_size
    if source == "self_attn.qkv_proj":
        rows = {"query": config.heads * size, "key": config.kv_heads * size, "value": config.kv_heads * size}
        yield from _divided(tensor, layer, rows, end, tensor.shape)
    elif source == "mlp.gate_up_proj":
        yield from _divided(tensor, layer, {"gate": config.inner, "up": config.inner}, end, tensor.shape)
    elif expert := _EXPERT.fullmatch(source):
        yield f"{layer}experts.{int(expert[1])}.{_EXPERT_PARTS[expert[2]]}{end}", _Part(tensor, tensor.shape)
    elif source == "mlp.experts.gate_up_proj" and len(tensor.shape) == 3 and config.experts is not None:
        rows = {"gate": config.experts.inner, "up": config.experts.inner}
        for e in range(tensor.shape[0]):
            yield from _divided(tensor, f"{layer}experts.{e}.", rows, end, tensor.shape[1:], e)
    elif source == "mlp.experts.down_proj" and len(tensor.shape) == 3:
        for e in range(tensor.shape[0]):
            yield f"{layer}experts.{e}.down{end}", _Part(tensor, tensor.shape[1:], e)
    elif source in names:
        yield layer + names[source] + end, _Part(tensor, tensor.shape)


def _of_gpt2(config: Config, tensor: FileTensor, layer: str, source: str, end: str) -> Iterator[tuple[str, _Part]]:
    """Weights of GPT-2, whose matrices are [in, out]."""
    matrix = len(tensor.shape) == 2
    shape = tuple(reversed(tensor.shape))
    if source == "attn.c_attn":
        rows = {"query": config.hidden, "key": config.hidden, "value": config.hidden}
        yield from _divided(tensor, layer, rows, end, shape, transposed=matrix)
    elif source in _GPT2:
        yield layer + _GPT2[source] + end, _Part(tensor, shape, transposed=matrix)


def _divided(
    tensor: FileTensor,
    layer: str,
    rows: Mapping[str, int],
    end: str,
    shape: tuple[int, ...],
    stack: int | None = None,
    transposed: bool = False,
) -> Iterator[tuple[str, _Part]]:
    """Weights that lie one after the other in a tensor; of the tensor's own shape, so that it is told, where they do
    not fill it."""
    first, fits = 0, shape[:1] == (sum(rows.values()),)
    for name, count in rows.items():
        part = (count, *shape[1:]) if fits else shape
        yield layer + name + end, _Part(tensor, part, stack, transposed, first if fits else 0)
        first += count
