"""Keys and values in blocks of a pool, compiled: beside what the operators mean in float64, over random shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import opweld
from opweld import ir
from opweld.compile import Model
from opweld.errors import ModelError, OpweldError
from opweld.llm.graph_builder import GraphBuilder, graph_input, pool_inputs
from opweld.llm.source import STATES, DecoderSource
from opweld.llm.step import Span
from opweld.llm.work import Division, step_feeds
from opweld.tensor.dtype import DType
from opweld.tensor.paged import CHUNK, WORK
from tests.unit.llm.decoders import PLAIN

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Attention:
    """Shapes of one layer of attention, and what it sees. queries: their width, where it is not that of its heads.
    paired: whether the pool lies in pairs."""

    kv_heads: int
    group: int
    size: int
    block: int
    window: int = 0
    cap: float = 0.0
    pool: DType = DType.F32
    queries: int = 0
    paired: bool = False

    def graph(self) -> ir.Graph:
        """Appends keys and values, then attends to them."""
        return _Layer("llama", {}).layer(self)


class _Layer(GraphBuilder):
    def layer(self, own: Attention) -> ir.Graph:
        width = own.kv_heads * own.size
        widths = {"q": own.queries or width * own.group, "k": width, "v": width}
        inputs = [graph_input(name, DType.F32, "T", wide) for name, wide in widths.items()]
        inputs += pool_inputs(own.kv_heads, own.size, own.block, own.pool, ".0", own.paired)
        shapes = {"places": ("T", 2), "work": ("W", WORK), "tables": ("E",), "owners": ("P",), "parts": ("T", 2)}
        inputs += [graph_input(name, DType.I64, *shape) for name, shape in shapes.items()]
        q, k, v, keys, values, places, *rest = inputs
        keys = self._decoder("AppendKeys", keys, k, places)
        values = self._decoder("AppendValues", values, v, places, size=own.size)
        found = self._decoder("PagedAttention", q, keys, values, *rest, window=own.window, cap=own.cap)
        keys.name, values.name, found.name = "keys_after.0", "values_after.0", "found"
        return ir.Graph(inputs, [found, keys, values], self._nodes)


@dataclass(frozen=True, eq=False)
class _Source(DecoderSource):
    attention: Attention = Attention(1, 1, 16, 32)

    def graph(self) -> ir.Graph:
        return self.attention.graph()


def compiled(own: Attention, threads: int = 2, target: str = "native") -> Model:
    source = _Source(PLAIN, {}, own.block, partial(_identity, own), attention=own)
    return opweld.compile(source, states=STATES, dim_hints={"T": 1}, threads=threads, target=target)


def _identity(own: Attention, cache: object) -> str:
    return f"one layer of attention {own}"


def feeds_of(own: Attention, spans: list[Span], rows: tuple[Array, Array, Array], threads: int) -> dict[str, Array]:
    feeds = step_feeds(spans, own.block, own.kv_heads, Division(threads))
    del feeds["tokens"]  # there is no embedding
    return dict(zip("qkv", rows, strict=True)) | feeds


def meant(own: Attention, q: Array, k: Array, v: Array) -> Array:
    """Attention of a whole text in float64; keys and values are rounded as the pool has them."""
    count = len(q)
    queries = q.astype(np.float64).reshape(count, own.kv_heads, own.group, own.size)
    if own.paired:
        queries = queries.astype(own.pool.numpy).astype(np.float64)
    k, v = (a.astype(own.pool.numpy).astype(np.float64).reshape(count, own.kv_heads, own.size) for a in (k, v))
    scores = np.einsum("ihgd,jhd->hgij", queries, k)
    if own.cap:
        scores = np.tanh(scores / own.cap) * own.cap
    at = np.arange(count)
    seen = at[:, None] >= at
    if own.window:
        seen &= at[:, None] - at < own.window
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hgij,jhd->ihgd", weights, v).reshape(q.shape)


CASES = [
    (Attention(1, 1, 1, 32), 40),
    (Attention(1, 16, 24, 32), 300),
    (Attention(3, 1, 17, 64), 270),
    (Attention(2, 3, 80, 128, window=1), 300),
    (Attention(2, 2, 40, 256, window=CHUNK), 2 * CHUNK + 3),
    (Attention(2, 5, 33, 32, window=CHUNK + 1, cap=3.0), 2 * CHUNK + 3),
    (Attention(1, 4, 48, 64, window=31, pool=DType.F16), 600),
    (Attention(2, 2, 72, 128, cap=20.0, pool=DType.BF16), 2 * CHUNK),
    (Attention(1, 2, 64, 32), 5000),
    (Attention(1, 1, 2, 32, pool=DType.BF16, paired=True), 40),
    (Attention(3, 3, 64, 32, pool=DType.BF16, paired=True), 2 * CHUNK + 7),
    (Attention(2, 2, 72, 128, cap=20.0, pool=DType.BF16, paired=True), 2 * CHUNK),
    (Attention(1, 16, 34, 64, window=31, pool=DType.BF16, paired=True), 600),
    (Attention(2, 5, 80, 256, window=CHUNK + 1, pool=DType.BF16, paired=True), 2 * CHUNK + 3),
    (Attention(1, 4, 128, 32, window=1, pool=DType.BF16, paired=True), 300),
]


@pytest.mark.parametrize(("own", "length"), CASES, ids=str)
def test_compiled_attention_is_what_it_means_however_a_text_is_divided(own: Attention, length: int) -> None:
    rng = np.random.default_rng(length)
    rows = tuple(
        rng.standard_normal((length, own.kv_heads * own.size * g)).astype(np.float32) for g in (own.group, 1, 1)
    )
    q, k, v = rows
    right = meant(own, q, k, v)
    blocks = -(-length // own.block) + 2
    table = [int(block) for block in rng.permutation(blocks)]
    whole: Array | None = None
    # A single token whose keys one thread reads has its heads computed together.
    for threads, cuts, sharing in ((1, [length], 16), (2, [1, 7, CHUNK - 9, 1, 1], 32), (2, [length - 1, 1], 1)):
        model = compiled(own, threads)
        state = model.new_state(dims={"blocks": blocks})
        for name in state.names:  # what is in a block that nobody wrote is not known
            state.memory(name)[:] = np.nan
        found: list[Array] = []
        start = 0
        while start < length:
            count = min(cuts[len(found)] if len(found) < len(cuts) else length, length - start)
            own_rows = q[start : start + count], k[start : start + count], v[start : start + count]
            span = Span([0] * count, start, table)
            found.append(model.run(feeds_of(own, [span], own_rows, sharing), state)["found"].copy())
            start += count
        result = np.concatenate(found)
        # Sums of up to `length` float32 terms of size 1; weights in pairs are rounded to 8 bits.
        unit = 2**-8 if own.paired else 3e-6 * np.sqrt(own.size)
        np.testing.assert_allclose(result, right, atol=unit * max(1, np.abs(right).max()), rtol=0)
        whole = result if whole is None else whole
        np.testing.assert_array_equal(result, whole)


TOP = np.iinfo(np.int64).max
COLUMNS = ("token", "count", "position", "table", "head", "chunk", "end", "first", "stride", "apart", "heads")


@pytest.mark.parametrize(
    "changes",
    [
        {"first": TOP, "count": 2},
        {"first": TOP - 1, "count": 2, "stride": 2},
        {"first": TOP},
        {"first": -1},
        {"count": TOP},
        {"position": TOP},
        {"position": TOP, "count": 2},
        {"table": TOP},
        {"token": TOP, "count": 2},
        {"stride": TOP, "count": 2},
        {"end": TOP},
        {"chunk": -1},
        {"head": 1},
        {"count": 0},
        {"apart": 1, "first": TOP},
        {"heads": 0},
        {"heads": 2},
        {"heads": TOP, "head": 1},
    ],
    ids=str,
)
def test_a_row_of_work_that_leads_out_of_memory_is_refused(changes: dict[str, int]) -> None:
    own = Attention(1, 1, 16, 32)
    model = compiled(own)
    rows = tuple(np.ones((2, 16), np.float32) for _ in range(3))
    feeds = feeds_of(own, [Span([0, 0], 0, [0])], (rows[0], rows[1], rows[2]), 1)
    state = model.new_state(dims={"blocks": 2})
    model.run(feeds, state)
    feeds["work"] = feeds["work"].copy()
    for name, value in changes.items():
        feeds["work"][0, COLUMNS.index(name)] = value
    with pytest.raises(OpweldError, match="index"):
        model.run(feeds, state)


def test_heads_that_do_not_share_those_of_keys_evenly_are_refused() -> None:
    with pytest.raises(ModelError, match="queries are 48 wide"):
        compiled(Attention(2, 1, 16, 32, queries=48))


def test_the_sum_of_a_first_part_and_a_stride_does_not_wrap() -> None:
    """The word before `owners` is what a first part of 2^63 - 1 would read, and it is right here: nothing but the range
    of the first part refuses the row, which would write before the parts."""
    own = Attention(1, 1, 16, 32)
    model = compiled(own)
    rows = tuple(np.ones((2, 16), np.float32) for _ in range(3))
    feeds = feeds_of(own, [Span([0, 0], 0, [0])], (rows[0], rows[1], rows[2]), 1)
    feeds["owners"] = np.array([0, 1, 0], np.int64)[1:]
    feeds["work"][0, COLUMNS.index("first")] = TOP
    with pytest.raises(OpweldError, match="index"):
        model.run(feeds, model.new_state(dims={"blocks": 2}))


@pytest.mark.parametrize("window", [0, 40])
def test_values_in_pairs_that_a_query_does_not_see_change_no_bit_of_it(window: int) -> None:
    """Not even infinities, which queries beside it see. A matrix unit and vectors have the same sums of
    products; those of weights are of other lanes."""
    own = Attention(2, 3, 24, 32, window, pool=DType.BF16, paired=True)
    rng = np.random.default_rng(window)
    count, at = 300, 133  # in the middle of queries that are computed together, and of a slice of keys
    q, k, v = (rng.standard_normal((count, own.kv_heads * own.size * g)).astype(np.float32) for g in (own.group, 1, 1))
    infinite = v.copy()
    infinite[at] = np.inf
    found: list[Array] = []
    for target in ("native", "x86-64-v3"):
        model = compiled(own, 1, target)
        for values in (v, infinite):
            feeds = feeds_of(own, [Span([0] * count, 0, [*range(10)])], (q, k, values), 1)
            found.append(model.run(feeds, model.new_state(dims={"blocks": 10}))["found"].copy())
    sees = slice(at, at + window if window else count)
    assert np.isinf(found[1][sees]).all()
    for right, other in (found[:2], found[2:]):
        other[sees] = right[sees]
        np.testing.assert_array_equal(other, right)
    np.testing.assert_allclose(found[2], found[0], atol=2e-6 * np.abs(found[0]).max(), rtol=0)


def test_pairs_are_of_bfloat16() -> None:
    with pytest.raises(ModelError, match="pairs of bfloat16"):
        compiled(Attention(1, 1, 16, 32, pool=DType.F16, paired=True))


@pytest.mark.slow
@pytest.mark.parametrize("pool", [DType.F32, DType.BF16])
def test_blocks_beyond_2_to_the_31_elements_are_their_own(pool: DType) -> None:
    """Takes 17 GB of addresses, and memory for three blocks. Were places or addresses of 32 bits, the last block
    would be the first one."""
    own = Attention(1, 1, 64, 256, pool=pool)
    each = own.size * own.block
    blocks = 2**31 // each + 2
    rows = [np.random.default_rng(n).standard_normal((300, own.size)).astype(np.float32) for n in range(3)]
    model = compiled(own)
    state = model.new_state(dims={"blocks": blocks})
    found = model.run(
        feeds_of(own, [Span([0] * 300, 0, [blocks - 1, blocks - 2])], (rows[0], rows[1], rows[2]), 1), state
    )
    np.testing.assert_allclose(found["found"], meant(own, *rows), atol=3e-5, rtol=0)
    for name in state.names:
        memory = state.memory(name)
        assert memory.size > 2**31 and memory[blocks - 1].any() and not memory[:2].any()
