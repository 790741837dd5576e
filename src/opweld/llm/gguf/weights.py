"""Tensors of a GGUF file under opweld's names: each is read when it is called for.

Tensors that are several weights are taken apart by rows, before they are unpacked: queries, keys and values in one,
gate and up in one, all experts of a layer in one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from opweld.errors import UnsupportedError
from opweld.llm.completeness import Stored, complete
from opweld.llm.config import Config
from opweld.llm.gguf.blocks import FORMATS, unpacked
from opweld.llm.gguf.header import Header, Tensor
from opweld.llm.weights import Weight, Weights

_WHOLE = {"embedding": "token_embd", "positions": "position_embd", "norm": "output_norm", "head": "output"}
_LAYER = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "query_norm": "attn_q_norm",
    "key_norm": "attn_k_norm",
    "post_attention_norm": "post_attention_norm",
    "feed_norm": "ffn_norm",
    "post_feed_norm": "post_ffw_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "router": "ffn_gate_inp",
    "shared_router": "ffn_gate_inp_shexp",
    "shared.gate": "ffn_gate_shexp",
    "shared.up": "ffn_up_shexp",
    "shared.down": "ffn_down_shexp",
}
_IGNORED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_IGNORED_ENDS = ("attn_rot_embd.weight",)


@dataclass(frozen=True)
class _Rows:
    """Rows of a tensor, seen as a matrix, or elements of a vector."""

    header: Header
    tensor: Tensor
    first: int
    shape: tuple[int, ...]

    def __call__(self) -> Weight:
        form = FORMATS[self.tensor.kind]
        row = 1 if len(self.tensor.shape) == 1 else self.tensor.shape[-1]
        start = self.tensor.start + self.first * row // form.elements * form.bytes
        size = math.prod(self.shape) // form.elements * form.bytes
        return unpacked(form, self.header.bytes[start : start + size], self.shape)


def read_weights(header: Header, config: Config) -> Weights:
    """The weights of a model.

    Raises:
        ModelError: a tensor is missing, or of another shape than the configuration says.
        UnsupportedError: there are tensors that the architecture does not have.
    """
    stored: dict[str, Stored] = {}
    used: set[str] = set()
    for tensor in header.tensors.values():
        for name, first, shape in _parts(config, tensor):
            used.add(tensor.name)
            stored[name] = Stored(tensor.name, shape, _Rows(header, tensor, first, shape))
    for name in header.tensors:
        if name not in used and name not in _IGNORED and not name.endswith(_IGNORED_ENDS):
            raise UnsupportedError(f"{header.file}: {config.architecture} has no tensor {name} that opweld knows")
    return complete(config, stored, header.file)


def _parts(config: Config, tensor: Tensor) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """The weights in a tensor: their names, first rows and shapes."""
    stem, _, kind = tensor.name.rpartition(".")
    if kind not in ("weight", "bias"):
        return
    end, shape = ("" if kind == "weight" else ".bias"), tensor.shape
    for name, source in _WHOLE.items():
        if stem == source:
            yield name + end, 0, shape
    pieces = stem.split(".")
    if len(pieces) < 3 or pieces[0] != "blk" or not pieces[1].isdecimal() or not int(pieces[1]) < config.layers:
        return
    layer, source = f"layers.{int(pieces[1])}.", ".".join(pieces[2:])
    if source == "attn_qkv":
        size = config.head_size
        rows = {"query": config.heads * size, "key": config.kv_heads * size, "value": config.kv_heads * size}
        yield from _divided(layer, rows, end, shape)
    elif source == "ffn_up" and config.architecture == "phi3":
        yield from _divided(layer, {"gate": config.inner, "up": config.inner}, end, shape)
    elif source.endswith("_exps") and len(shape) == 3:
        name = {"ffn_gate_exps": "gate", "ffn_up_exps": "up", "ffn_down_exps": "down"}.get(source)
        if name is not None:
            for e in range(shape[0]):
                yield f"{layer}experts.{e}.{name}{end}", e * shape[1], shape[1:]
    elif len(pieces) == 4 and pieces[3].isdecimal() and pieces[2] in ("ffn_gate", "ffn_up", "ffn_down"):
        yield f"{layer}experts.{int(pieces[3])}.{pieces[2].removeprefix('ffn_')}{end}", 0, shape
    elif source == "ffn_gate_inp_shexp" and len(shape) == 1:
        yield layer + "shared_router", 0, (1, *shape)
    else:
        for name, known in _LAYER.items():
            if source == known:
                yield layer + name + end, 0, shape


def _divided(
    layer: str, rows: dict[str, int], end: str, shape: tuple[int, ...]
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Weights that lie one after the other in a tensor; of the tensor's own shape, so that it is told, where they do
    not fill it."""
    first, fits = 0, sum(rows.values()) == shape[0]
    for name, count in rows.items():
        yield layer + name + end, first if fits else 0, (count, *shape[1:]) if fits else shape
        first += count
