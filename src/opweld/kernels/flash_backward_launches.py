# pyright: basic
"""How the backward kernels of `flash_attention` are launched, and in which configurations. A checker does
not know what `triton.jit` makes of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from opweld.kernels.flash_backward import attention_keys_kernel, attention_queries_kernel, attention_rows_kernel
from opweld.kernels.flash_problem import Configuration, Problem, Table, block_lists, chosen_of, strides
from opweld.kernels.flash_tiles import describable, descriptor, padded, parts_of, section_of
from opweld.kernels.launches import Launch

MAX_BLOCK_M = 128
"""Queries of a tile in any configuration, at most."""

KEYS: tuple[Table, Table, Table, Table] = (
    {
        80: {64: Configuration(32, 64, 4, 1), 128: Configuration(32, 64, 8, 1), 256: Configuration(32, 32, 8, 1)},
        90: {
            64: Configuration(64, 128, 8, 2, descriptors=True),
            128: Configuration(64, 128, 8, 2, descriptors=True),
            256: Configuration(32, 64, 8, 2, descriptors=True),
        },
    },
    {
        80: {64: Configuration(32, 64, 8, 2), 128: Configuration(32, 64, 8, 1), 256: Configuration(32, 32, 8, 1)},
        90: {64: Configuration(32, 64, 8, 2, descriptors=True), 256: Configuration(32, 32, 8, 2, descriptors=True)},
    },
    {
        80: {64: Configuration(32, 32, 8, 1), 256: Configuration(16, 32, 8, 1)},
        90: {64: Configuration(32, 32, 8, 2, descriptors=True), 256: Configuration(16, 32, 8, 1)},
    },
    {
        80: {128: Configuration(32, 32, 8, 1), 256: Configuration(16, 16, 8, 2)},
        90: {64: Configuration(32, 32, 8, 1), 128: Configuration(16, 32, 8, 1), 256: Configuration(16, 16, 8, 2)},
    },
)
"""What the gradients of key and value run in: plain, with features, with loads of their own, of float32."""

QUERIES: tuple[Table, Table, Table, Table] = (
    {
        80: {64: Configuration(128, 64, 8, 2), 128: Configuration(64, 64, 8, 2), 256: Configuration(64, 32, 8, 1)},
        90: {
            64: Configuration(128, 64, 8, 3, descriptors=True),
            128: Configuration(128, 64, 8, 2, descriptors=True),
            256: Configuration(64, 64, 8, 2, descriptors=True),
        },
    },
    {
        80: {64: Configuration(128, 64, 8, 2), 256: Configuration(64, 64, 8, 2)},
        90: {64: Configuration(128, 64, 8, 2, descriptors=True), 256: Configuration(64, 64, 8, 2, descriptors=True)},
    },
    {80: {128: Configuration(64, 32, 8, 1), 256: Configuration(32, 32, 8, 1)}},
    {
        80: {128: Configuration(32, 32, 8, 1), 256: Configuration(16, 16, 8, 1)},
        90: {128: Configuration(32, 32, 8, 1), 256: Configuration(16, 32, 8, 1)},
    },
)
"""The same of the gradient of the query."""

SHARED_KEYS = Configuration(64, 64, 4, 2, descriptors=True)
"""What the gradients of key and value run in on sm_90 at head sizes of 65 to 128 where heads of queries share them: the
loop over these heads takes the registers that a tile of 128 keys would need."""

KEYS_CANDIDATES: dict[int, tuple[Configuration, ...]] = {
    64: (
        Configuration(64, 128, 8, 2, descriptors=True),
        Configuration(64, 128, 8, 3, descriptors=True),
        Configuration(64, 64, 4, 2, descriptors=True),
    ),
    128: (
        Configuration(64, 128, 8, 2, descriptors=True),
        Configuration(64, 64, 4, 2, descriptors=True),
    ),
}
"""Padded head size -> what a benchmark on sm_90 compares for the gradients of key and value."""

QUERIES_CANDIDATES: dict[int, tuple[Configuration, ...]] = {
    64: (
        Configuration(128, 64, 8, 3, descriptors=True),
        Configuration(128, 128, 8, 2, descriptors=True),
        Configuration(128, 64, 4, 2, descriptors=True),
    ),
    128: (
        Configuration(128, 64, 8, 2, descriptors=True),
        Configuration(128, 128, 8, 2, descriptors=True),
        Configuration(64, 64, 4, 2, descriptors=True),
    ),
}
"""The same of the gradient of the query."""


def configuration(
    tables: tuple[Table, Table, Table, Table], problem: Problem, arch: int, block_d: int, element_size: int, group: int
) -> Configuration:
    """What tables have for a problem, whose heads of keys are shared by a group of heads of queries each."""
    chosen = chosen_of(tables, problem, arch, block_d, element_size)
    return SHARED_KEYS if tables is KEYS and group > 1 and block_d == 128 and chosen == KEYS[0][90][128] else chosen


def row_numbers(query: Tensor) -> tuple[Tensor, Tensor]:
    """Room for what `rows_launch` fills, [B, H, Lq] each, with zeros behind the rows to a whole tile."""
    batch, heads, length, _ = query.shape
    room = query.new_zeros((2, batch, heads, -(-length // MAX_BLOCK_M) * MAX_BLOCK_M), dtype=torch.float32)
    return room[0, ..., :length], room[1, ..., :length]


def rows_launch(origin: Tensor, delta: Tensor, output: Tensor, grad_output: Tensor, log_sum_exp: Tensor) -> Launch:
    """Fills origin with log-sum-exps in powers of two and delta with rowsum(grad_output * output)."""
    batch, heads, length, head_dim = output.shape
    rows = batch * heads * length
    arguments: dict[str, Any] = {
        "origin": origin,
        "delta": delta,
        "output": output,
        "grad_output": grad_output,
        "log_sum_exp": log_sum_exp,
        "rows_total": rows,
        "heads": heads,
        "length": length,
        **strides("x", "bh", delta.stride()),
        **strides("lse", "bh", log_sum_exp.stride()),
        **strides("o", "bhm", output.stride()),
        **strides("do", "bhmd", grad_output.stride()),
        "HEAD_DIM": head_dim,
        "BLOCK_D": padded(head_dim),
        "ROWS": 16,
    }
    return Launch(attention_rows_kernel, parts_of(rows, 16), arguments, 4, 1)


def keys_launch(
    grad_key: Tensor, grad_value: Tensor, grad_bias: Tensor | None, query: Tensor, key: Tensor, value: Tensor,
    grad_output: Tensor, origin: Tensor, delta: Tensor,
    problem: Problem, arch: int, chosen: Configuration | None = None,
) -> Launch:  # fmt: skip
    """Fills the gradients of key and value, and adds that of the bias to a float32 tensor of the bias's own shape,
    expanded."""
    block_d = padded(query.shape[-1])
    chosen = problem.fitted(
        chosen or configuration(KEYS, problem, arch, block_d, query.element_size(), query.shape[1] // key.shape[1])
    )
    blocks = None if problem.block_mask is None else problem.block_mask.mT
    sequences, kv_heads = problem.sequences(query), key.shape[1]
    arguments = _shared(query, key, value, grad_output, origin, delta, problem, arch, chosen) | block_lists(blocks)
    if arguments["DESCRIPTORS"]:
        arguments |= {"origin": _of_rows(origin, chosen.block_m), "delta": _of_rows(delta, chosen.block_m)}
    arguments |= {
        "grad_key": grad_key,
        "grad_value": grad_value,
        "grad_bias": grad_bias,
        "kv_heads": kv_heads,
        **strides("dk", "bhn", grad_key.stride()),
        **strides("dv", "bhn", grad_value.stride()),
        **strides("db", "bhmn", (0, 0, 0, 0) if grad_bias is None else grad_bias.stride()),
    }
    if problem.is_causal:
        section = section_of(sequences * kv_heads, 1, problem.length_q, query.shape[-1], query.element_size())
        arguments["section"] = section
    tiles = parts_of(problem.length_k, chosen.block_n)
    programs = tiles * sequences * kv_heads if key.numel() else 0
    return Launch(attention_keys_kernel, programs, arguments, chosen.warps, chosen.stages)


def queries_launch(
    grad_query: Tensor, query: Tensor, key: Tensor, value: Tensor, grad_output: Tensor, origin: Tensor,
    delta: Tensor, problem: Problem, arch: int, chosen: Configuration | None = None,
) -> Launch:  # fmt: skip
    """Fills the gradient of the query."""
    block_d = padded(query.shape[-1])
    chosen = problem.fitted(chosen or configuration(QUERIES, problem, arch, block_d, query.element_size(), 1))
    sequences, heads = problem.sequences(query), query.shape[1]
    arguments = _shared(query, key, value, grad_output, origin, delta, problem, arch, chosen)
    arguments |= block_lists(problem.block_mask)
    arguments |= {"grad_query": grad_query, "heads": heads, **strides("dq", "bhm", grad_query.stride())}
    if problem.is_causal:
        group = heads // key.shape[1]
        section = section_of(sequences * heads, group, problem.length_k, query.shape[-1], query.element_size())
        arguments["section"] = section
    tiles = parts_of(problem.length_q, chosen.block_m)
    programs = tiles * sequences * heads if query.numel() else 0
    return Launch(attention_queries_kernel, programs, arguments, chosen.warps, chosen.stages)


def _of_rows(numbers: Tensor, rows: int) -> TensorDescriptor:
    """The descriptor of [B, H, Lq] by tiles of rows."""
    return TensorDescriptor(numbers, list(numbers.shape), list(numbers.stride()), [1, 1, rows])


def _shared(
    query: Tensor, key: Tensor, value: Tensor, grad_output: Tensor, origin: Tensor, delta: Tensor,
    problem: Problem, arch: int, chosen: Configuration,
) -> dict[str, Any]:  # fmt: skip
    """What both kernels are given."""
    block_d = padded(query.shape[-1])
    described = (
        chosen.descriptors
        and arch >= 90
        and problem.starts_q is None
        and all(describable(tensor) for tensor in (query, key, value, grad_output))
    )
    rows, columns = chosen.block_m, chosen.block_n
    return problem.arguments() | {
        "query": descriptor(query, rows, block_d) if described else query,
        "key": descriptor(key, columns, block_d) if described else key,
        "value": descriptor(value, columns, block_d) if described else value,
        "grad_output": descriptor(grad_output, rows, block_d) if described else grad_output,
        "origin": origin,
        "delta": delta,
        "sequences": problem.sequences(query),
        "group": query.shape[1] // key.shape[1],
        "section": 1,
        **strides("x", "bh", delta.stride()),
        **strides("q", "bhmd", query.stride()),
        **strides("k", "bhnd", key.stride()),
        **strides("v", "bhnd", value.stride()),
        **strides("do", "bhmd", grad_output.stride()),
        "BLOCK_M": rows,
        "BLOCK_N": columns,
        "HEAD_DIM": query.shape[-1],
        "BLOCK_D": block_d,
        "BLOCK_ROWS": problem.block_rows,
        "BLOCK_COLUMNS": problem.block_columns,
        "DESCRIPTORS": described,
    }
