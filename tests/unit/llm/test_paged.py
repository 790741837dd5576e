"""Attention through block tables as NumPy computes it, beside softmax over whole texts; and how work is divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opweld
from opweld import ir
from opweld.errors import ModelError, OpweldError
from opweld.llm.graph_builder import GraphBuilder, graph_input
from opweld.llm.source import DecoderSource
from opweld.llm.step import Span
from opweld.llm.work import Division, Work, work_of
from opweld.tensor.dtype import DType
from opweld.tensor.paged import PAGED, WORK, padded_size, part_size
from tests.unit.llm.decoders import PLAIN

Array = np.ndarray[Any, Any]

KV_HEADS, GROUP, SIZE, BLOCK, BLOCKS = 2, 2, 5, 32, 16
APART = 9
"""Of a row of work."""
COUNTS = (1, 33, 300)
"""Tokens of texts: the last one has more than a chunk of keys."""
SPANS = [Span([0] * count, 0, blocks) for count, blocks in zip(COUNTS, ((3,), (9, 0), range(12, 2, -1)), strict=True)]


def pools() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    keys = rng.standard_normal((BLOCKS, KV_HEADS, SIZE, BLOCK))
    return keys, rng.standard_normal((BLOCKS, KV_HEADS, BLOCK, padded_size(SIZE)))


def paged(work: Work, queries: Array, causal: bool, window: int = 0) -> Array:
    """[tokens, heads * size], as the externs of a step compute it."""
    keys, values = pools()
    count, heads = len(work.owners), KV_HEADS * GROUP
    parts = np.full(count * heads * part_size(SIZE), np.nan)
    numbers = (len(queries), BLOCKS, len(work.tables), count, KV_HEADS, GROUP, SIZE, BLOCK, window, 0, int(causal))
    for row in work.work:
        operands = (row, queries.ravel(), keys.ravel(), values.ravel(), work.tables, work.owners)
        PAGED["attend_f32"].compute(operands, [parts], numbers)
    out = np.empty_like(queries)
    for own, row in zip(work.parts, out, strict=True):
        PAGED["join_parts"].compute((own, parts), [row], (count, heads, SIZE))
    return out


def whole(queries: Array, causal: bool) -> Array:
    """The same, of each text and head by itself."""
    keys, values = pools()
    found = np.empty_like(queries).reshape(-1, KV_HEADS, GROUP, SIZE)
    end = 0
    for span in SPANS:
        count = len(span.tokens)
        rows = slice(end, end := end + count)
        own = list(span.blocks)
        for head in range(KV_HEADS):
            k = np.concatenate(list(keys[own, head]), axis=-1)[:, :count]
            v = np.concatenate(list(values[own, head]))[:count, :SIZE]
            for g in range(GROUP):
                scores = queries.reshape(found.shape)[rows, head, g] @ k
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                if causal:
                    weights = np.tril(weights)
                found[rows, head, g] = weights / weights.sum(axis=-1, keepdims=True) @ v
    return found.reshape(queries.shape)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("threads", [1, 64])
def test_queries_see_the_keys_before_them_or_all(causal: bool, threads: int) -> None:
    queries = np.random.default_rng(2).standard_normal((sum(COUNTS), KV_HEADS * GROUP * SIZE))
    work = work_of(SPANS, BLOCK, KV_HEADS, Division(threads), causal)
    np.testing.assert_allclose(paged(work, queries, causal), whole(queries, causal), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("causal", [True, False])
def test_threads_share_the_keys_of_a_few_queries(causal: bool) -> None:
    spans = [Span([0] * 5, 300, range(10))] if causal else [Span([0] * 5, 0, (1,))]
    apart = work_of(spans, BLOCK, KV_HEADS, Division(8), causal).work[:, APART]
    assert (apart == causal).all(), "five keys are of one chunk, 305 of two"


def test_a_row_that_needs_more_blocks_than_its_table_has_is_refused() -> None:
    work = work_of(SPANS, BLOCK, KV_HEADS, Division(1), causal=False)
    work.work[-1, 2] = 320
    with pytest.raises(OpweldError, match="a row of work"):
        paged(work, np.zeros((sum(COUNTS), KV_HEADS * GROUP * SIZE)), causal=False)


class Attention(GraphBuilder):
    """Attention by itself, over a pool that is fed."""

    def graph(self, window: int, causal: int) -> ir.Graph:
        pool = {"keys": (KV_HEADS, SIZE, BLOCK), "values": (KV_HEADS, BLOCK, padded_size(SIZE))}
        inputs = [graph_input("queries", DType.F32, "T", KV_HEADS * GROUP * SIZE)]
        inputs += [graph_input(name, DType.F32, BLOCKS, *shape) for name, shape in pool.items()]
        shapes = {"work": ("W", WORK), "tables": ("E",), "owners": ("P",), "parts": ("T", 2)}
        inputs += [graph_input(name, DType.I64, *shape) for name, shape in shapes.items()]
        mixed = self._decoder("PagedAttention", *inputs, window=window, causal=causal)
        mixed.name = "mixed"
        return ir.Graph(inputs, [mixed], self._nodes)


def compiled(window: int, causal: int, target: str = "native") -> opweld.Model:
    class Source(DecoderSource):
        def graph(self) -> ir.Graph:
            return Attention("llama", {}).graph(window, causal)

    return opweld.compile(Source(PLAIN, {}, BLOCK, lambda _: f"attention {window} {causal}"), target=target)


def test_a_window_is_of_queries_that_see_what_is_before_them() -> None:
    with pytest.raises(ModelError, match="a window is of the last keys"):
        compiled(window=4, causal=0)


@pytest.mark.parametrize("window", [0, 2, 40])
def test_values_that_a_query_does_not_see_change_no_bit_of_it(window: int) -> None:
    """Not even infinities, which queries beside it see."""
    model = compiled(window, causal=1)
    keys, values = (pool.astype(np.float32) for pool in pools())
    count, table = 70, (5, 2, 9)
    queries = np.random.default_rng(3).standard_normal((count, KV_HEADS * GROUP * SIZE)).astype(np.float32)
    work = work_of([Span([0] * count, 0, table)], BLOCK, KV_HEADS, Division(1))
    fed = {"queries": queries, "keys": keys, "work": work.work, "tables": work.tables, "owners": work.owners}
    fed["parts"] = work.parts
    right = model.run(fed | {"values": values})["mixed"]
    at = 33  # in the middle of queries that are computed together, and of a block
    values[table[at // BLOCK], :, at % BLOCK] = np.inf
    found = model.run(fed | {"values": values})["mixed"]
    sees = slice(at, at + window if window else count)
    assert np.isinf(found[sees]).all()
    found[sees] = right[sees]
    np.testing.assert_array_equal(found, right)
