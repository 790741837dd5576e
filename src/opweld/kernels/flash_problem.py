"""What the kernels of attention are given beside query, key and value, and the configuration that they run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

UNBOUNDED = -1
"""A side of a window that has no bound."""

VARYING = [
    *("sequences", "heads", "kv_heads", "max_length_q", "max_length_k", "length", "rows_total", "section", "splits"),
    *("seed", "window_left", "window_right"),
]
"""Numbers of kernels that differ from call to call: one that is 1, or a multiple of 16, has no kernel of its own."""


@dataclass(frozen=True)
class Configuration:
    """How a kernel divides its work.

    Attributes:
        block_m: queries of a tile.
        block_n: keys of a tile.
        warps: warps of a program.
        stages: tiles of the inner loop that are under way.
        descriptors: tiles come through the tensor memory accelerator (sm_90).
        overlapped: forward, plain attention: values of a tile are weighed during the softmax of the next.
        specialized: forward, plain attention of 16 bits (sm_90): warps of their own load, see `flash_specialized`; with
            descriptors, 128 queries and 8 warps, those that compute.
        turns: specialised, groups of warps multiply in turns.
        early: specialised, probabilities are rounded before the products of the tile before are waited for.
        persistent: specialised, as many programs as multiprocessors, each of several blocks.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool = False
    overlapped: bool = False
    specialized: bool = False
    turns: bool = False
    early: bool = False
    persistent: bool = False


Table = Mapping[int, Mapping[int, Configuration]]
"""Architecture, at least -> padded head size, at most -> configuration: chosen so that nothing spills, then by time."""


@dataclass(frozen=True)
class Problem:
    """Attention's optional operands; what is absent costs nothing.

    Attributes:
        bias: [B or 1, H or 1, Lq or 1, Lk or 1], expanded to the shape of scores.
        mask: bool, as the bias; True is attended.
        alibi_slopes: float32 [B or 1, H], expanded to [B, H].
        block_mask: bool [B or 1, H or 1, blocks of queries, blocks of keys], expanded.
        block_rows, block_columns: queries and keys of a block of the block mask.
        starts_q, starts_k: int32 [sequences + 1], where sequences begin; batch is then 1.
        length_q, length_k: the longest sequence of queries and of keys.
        window_left, window_right: keys that a query sees before and after its own place, or UNBOUNDED.
        scale: what products of query and key are multiplied by.
        softcap: cap * tanh(score / cap) is what scores become; 0 without.
        dropout: the probability that a probability is dropped.
        seed: of dropout.
        input_precision: how float32 operands are multiplied: "ieee", "tf32" or "tf32x3".
    """

    bias: Tensor | None
    mask: Tensor | None
    alibi_slopes: Tensor | None
    block_mask: Tensor | None
    block_rows: int
    block_columns: int
    starts_q: Tensor | None
    starts_k: Tensor | None
    length_q: int
    length_k: int
    window_left: int
    window_right: int
    scale: float
    softcap: float
    dropout: float
    seed: int
    input_precision: str

    @classmethod
    def plain(cls, length_q: int, length_k: int, head_dim: int, *, causal: bool) -> Problem:
        """Attention with nothing but a causal bound, if that."""
        return cls(
            bias=None,
            mask=None,
            alibi_slopes=None,
            block_mask=None,
            block_rows=128,
            block_columns=128,
            starts_q=None,
            starts_k=None,
            length_q=length_q,
            length_k=length_k,
            window_left=UNBOUNDED,
            window_right=0 if causal else UNBOUNDED,
            scale=head_dim**-0.5,
            softcap=0.0,
            dropout=0.0,
            seed=0,
            input_precision="ieee",
        )

    @property
    def is_plain(self) -> bool:
        """Nothing but a causal bound, if that."""
        optional = (self.bias, self.mask, self.alibi_slopes, self.block_mask, self.starts_q)
        return (
            all(tensor is None for tensor in optional)
            and self.window_left == UNBOUNDED
            and not self.softcap
            and not self.dropout
        )

    @property
    def is_causal(self) -> bool:
        """No query sees beyond its own place."""
        return self.window_right == 0

    @property
    def is_loaded(self) -> bool:
        """Scores need memory or random numbers of their own, and registers for them."""
        return self.bias is not None or self.mask is not None or self.dropout > 0

    def sequences(self, query: Tensor) -> int:
        """Sequences of the batch."""
        return query.shape[0] if self.starts_q is None else self.starts_q.shape[0] - 1

    def arguments(self) -> dict[str, Any]:
        """The arguments of a kernel that are the same forward and backward."""
        bias, mask = self.bias, self.mask
        slopes = self.alibi_slopes
        none = (0, 0, 0, 0)
        return {
            "bias": bias,
            "mask": None if mask is None else mask.view(torch.uint8),
            "slopes": slopes,
            "starts_q": self.starts_q,
            "starts_k": self.starts_k,
            "scale": self.scale,
            "softcap": self.softcap,
            "dropout": self.dropout,
            "seed": self.seed,
            "window_left": self.window_left,
            "window_right": self.window_right,
            "max_length_q": self.length_q,
            "max_length_k": self.length_k,
            **strides("bias", "bhmn", none if bias is None else bias.stride()),
            **strides("mask", "bhmn", none if mask is None else mask.stride()),
            **strides("slopes", "bh", none if slopes is None else slopes.stride()),
            "BOUNDED_LEFT": self.window_left != UNBOUNDED,
            "BOUNDED_RIGHT": self.window_right != UNBOUNDED,
            "RAGGED": not self.is_causal,
            "HAS_SOFTCAP": self.softcap > 0,
            "HAS_DROPOUT": self.dropout > 0,
            "PRECISION": self.input_precision,
        }

    def fitted(self, configuration: Configuration) -> Configuration:
        """The configuration with tiles that divide the blocks of the block mask."""
        if self.block_mask is None:
            return configuration
        return replace(
            configuration,
            block_m=min(configuration.block_m, self.block_rows),
            block_n=min(configuration.block_n, self.block_columns),
        )


def strides(name: str, axes: str, values: tuple[int, ...]) -> dict[str, int]:
    """Arguments stride_<name>_<axis>, of the leading axes."""
    return {f"stride_{name}_{axis}": value for axis, value in zip(axes, values, strict=False)}


def block_lists(block_mask: Tensor | None) -> dict[str, Any]:
    """Of each row of blocks how many are attended, and which: arguments of a kernel that visits these alone."""
    if block_mask is None:
        return {"counts": None, "indices": None, "blocks_n": 0, **strides("blocks", "bhm", (0, 0, 0))}
    counts = block_mask.sum(-1, dtype=torch.int32)
    indices = torch.argsort(~block_mask, dim=-1, stable=True).to(torch.int32)
    return {
        "counts": counts.contiguous(),
        "indices": indices.contiguous(),
        **strides("blocks", "bhm", counts.contiguous().stride()),
        "blocks_n": block_mask.shape[-1],
    }


def chosen_of(
    tables: tuple[Table, Table, Table, Table], problem: Problem, arch: int, block_d: int, element_size: int
) -> Configuration:
    """What tables have for a problem: one for plain ones, with features, with loads of their own, of float32."""
    plain, featured, loaded, wide = tables
    if element_size > 2:
        table = wide
    elif problem.is_plain:
        table = plain
    else:
        table = loaded if problem.is_loaded else featured
    of_arch = table[max(known for known in table if known <= max(arch, 80))]
    return of_arch[min(size for size in of_arch if block_d <= size)]
