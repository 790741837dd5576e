"""Attention in PyTorch's words, and compiled programs of it for calls in eager mode."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from opweld.compile import Model, compile
from opweld.frontend.torch.convention import Layout
from opweld.frontend.torch.dtypes import as_array


class Operands(NamedTuple):
    """The tensors of an attention.

    Attributes:
        query: [batch, heads, queries, size].
        key, value: [batch, key heads, keys, size]; heads are a multiple of theirs.
        mask: [batch or 1, heads or 1, queries, keys]: booleans, True where a key is read, or what is added to scores.
        bias: added to scores, of the same sizes. sinks: [heads], a score of each head that reads no value.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    sinks: torch.Tensor | None = None


def attention(
    operands: Operands, scale: float, causal: bool, softcap: float | None = None, dropout: float = 0.0
) -> torch.Tensor:
    """What attention is, [batch, queries, heads, size]: softmax(cap(scale q k^T) + bias + mask) v.

    Args:
        causal: whether query i reads keys 0 to i alone. softcap: cap(x) is softcap tanh(x / softcap).
    """
    query, key, value, mask, bias, sinks = operands
    groups = query.shape[1] // key.shape[1]
    whole = softcap is None and sinks is None
    if causal and not (whole and bias is None):
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    added = _added(mask, bias)
    if whole:
        found = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=added,
            dropout_p=dropout,
            is_causal=causal and added is None,
            scale=scale,
            enable_gqa=groups > 1,
        )
        return found.transpose(1, 2).contiguous()
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = (query @ key.transpose(2, 3)).float() * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if added is not None:
        scores = _masked(scores, added) if added.dtype == torch.bool else scores + added
    if sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        sink = sinks.float().reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]
    weights = functional.dropout(weights, dropout).to(value.dtype)
    return (weights @ value).transpose(1, 2).contiguous()


def _added(mask: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor | None:
    """A mask and a bias as one."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    return _masked(bias, mask) if mask.dtype == torch.bool else bias + mask


def _masked(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scores where a mask is True; elsewhere the least number, as rows of infinities would become NaN."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


_DIMS = {
    "query": ("batch", "heads", "queries", "size"),
    "key": ("batch", "heads", "keys", "size"),
    "value": ("batch", "heads", "keys", "size"),
    "mask": ("batch", "heads", "queries", "keys"),
    "bias": ("batch", "heads", "queries", "keys"),
    "sinks": ("heads",),
}
_CHANGING = {"batch": 2, "queries": 3, "keys": 5}
"""Sizes that differ from call to call, where they are not 1, and those of the tensors that a program is traced with."""


@dataclass(frozen=True)
class _Fixed:
    """What a compiled program fixes of an operand.

    Attributes:
        name: of the operand. sizes: None for one that may change.
        exchanged: whether it lies in memory with axes 1 and 2 exchanged, and is handed in so.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[int | None, ...]
    exchanged: bool

    @classmethod
    def of(cls, name: str, x: torch.Tensor) -> _Fixed:
        """What is fixed of a tensor."""
        dims = zip(_DIMS[name], x.shape, strict=True)
        sizes = tuple(None if dim in _CHANGING and size != 1 else size for dim, size in dims)
        exchanged = x.dim() == 4 and not x.is_contiguous() and x.transpose(1, 2).is_contiguous()
        return cls(name, x.dtype, sizes, exchanged)

    def laid(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor as it is handed in, as the operand; and back."""
        return x.transpose(1, 2) if self.exchanged else x

    def example(self, causal: bool) -> tuple[torch.Tensor, dict[int, str]]:
        """A tensor as it is handed in, and the names of its sizes that may change, by axis."""
        changing = {**_CHANGING, "keys": _CHANGING["queries"]} if causal else _CHANGING
        dims = zip(_DIMS[self.name], self.sizes, strict=True)
        shape = [changing[dim] if size is None else size for dim, size in dims]
        axes = [0, 2, 1, 3] if self.exchanged else range(len(shape))
        dynamic = {at: _DIMS[self.name][axis] for at, axis in enumerate(axes) if self.sizes[axis] is None}
        return self.laid(torch.zeros(shape, dtype=self.dtype, device="cpu")), dynamic


@dataclass(frozen=True)
class _Form:
    """What a compiled program serves: calls that differ in the sizes that may change, alone."""

    operands: tuple[_Fixed, ...]
    scale: float
    causal: bool
    softcap: float | None
    threads: int

    def compiled(self, hints: Mapping[str, int]) -> Model:
        """The program of this form, with kernels chosen for sizes by name."""
        examples = [fixed.example(self.causal) for fixed in self.operands]
        tensors, dynamic = zip(*examples, strict=True)
        definition = _Definition(self).eval()
        return compile(definition, tensors, dynamic_shapes=(dynamic,), threads=self.threads, dim_hints=hints)


class _Definition(torch.nn.Module):
    """The definition for a form, of its operands as they are handed in."""

    def __init__(self, form: _Form) -> None:
        super().__init__()
        self.form = form

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """See `attention`."""
        operands = {fixed.name: fixed.laid(x) for fixed, x in zip(self.form.operands, given, strict=True)}
        return attention(Operands(**operands), self.form.scale, self.form.causal, self.form.softcap)


_models: dict[_Form, Model] = {}
_lock = threading.Lock()


def _hints(operands: Operands) -> dict[str, int]:
    """The sizes of a call that may change, each as the power of two that is next: few programs in the cache."""
    batch, _, queries, _ = operands.query.shape
    sizes = {"batch": batch, "queries": queries, "keys": operands.key.shape[2]}
    return {dim: 1 << (size - 1).bit_length() for dim, size in sizes.items() if size != 1}


def run_attention(operands: Operands, scale: float, causal: bool, softcap: float | None) -> torch.Tensor:
    """`attention` of tensors on the CPU, compiled once for all batches and lengths."""
    given = {name: x for name, x in operands._asdict().items() if x is not None}
    form = _Form(
        tuple(_Fixed.of(name, x) for name, x in given.items()), scale, causal, softcap, torch.get_num_threads()
    )
    with _lock:
        model = _models.get(form)
        if model is None:
            model = _models[form] = form.compiled(_hints(operands))
    arrays = [as_array(fixed.laid(x)) for fixed, x in zip(form.operands, given.values(), strict=True)]
    found = model.session.run(dict(zip(model.session.input_names, arrays, strict=True)))
    return Layout(operands.query.dtype, None).give(found[0])
