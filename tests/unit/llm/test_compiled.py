"""Compiled decoders: right by a float64 reference, and the same bits however a sequence is divided into steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from opweld.errors import InputError
from opweld.llm.compiled import CompiledRunner
from opweld.llm.step import Span
from opweld.tensor.dtype import DType
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.decoders import CONFIGS, PLAIN, runner_of, weights_of

Array = np.ndarray[Any, Any]

LENGTH = 600
"""Tokens of a sequence: more than two chunks of keys, and no whole one."""


@cache
def runner(name: str, blocked: bool = False, threads: int = 2) -> CompiledRunner:
    config = CONFIGS[name]
    return runner_of(config, weights_of(config, blocked), threads=threads)


def tokens_of(length: int = LENGTH) -> list[int]:
    return [int(token) for token in np.random.default_rng(length).integers(0, PLAIN.vocabulary, length)]


def run_in(model: CompiledRunner, tokens: Sequence[int], counts: Sequence[int], blocks: Sequence[int]) -> Array:
    """The logits of all tokens, computed in steps of so many."""
    assert sum(counts) == len(tokens)
    starts = np.cumsum([0, *counts[:-1]])
    return np.concatenate(
        [model.run([Span(tokens[s : s + n], int(s), blocks, n)]) for s, n in zip(starts, counts, strict=True)]
    )


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_it_computes_what_the_configuration_says(name: str, blocked: bool) -> None:
    config, tokens = CONFIGS[name], tokens_of()
    found = runner(name, blocked).run([Span(tokens, 0, range(20), LENGTH)])
    right = Decoder(config, weights_of(config, blocked)).logits(tokens)
    # Sums of up to 64 products in float32, two layers: 2e-6 of the largest logit; measured 1.3e-6 at most.
    np.testing.assert_allclose(found, right, atol=5e-6 * np.abs(right).max(), rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_threads_and_company_change_no_bit(name: str) -> None:
    model, tokens = runner(name, blocked=True), tokens_of()
    whole = model.run([Span(tokens, 0, range(20), LENGTH)])
    shuffled = [40, 3, 27, *range(41, 58)]
    np.testing.assert_array_equal(run_in(model, tokens, (1, 6, 33, 250, 1, 9, 300), shuffled), whole)
    np.testing.assert_array_equal(run_in(model, tokens, (599, 1), shuffled), whole)
    alone = runner(name, blocked=True, threads=1)
    np.testing.assert_array_equal(run_in(alone, tokens, (300, 299, 1), shuffled), whole)
    other, company = tokens_of(70), list(range(60, 63))
    found: list[Array] = []
    for start, count in ((0, 5), (5, 594), (599, 1)):
        spans = [
            Span(other[:60], 0, company, 1),
            Span(tokens[start : start + count], start, shuffled, count),
            Span(other[60:], 60, company, 0),
        ]
        found.append(model.run(spans)[1:])
    np.testing.assert_array_equal(np.concatenate(found), whole)


@pytest.mark.parametrize(
    ("pool", "paired", "bits"), [(DType.F16, False, 11), (DType.BF16, False, 8), (DType.BF16, True, 8)]
)
def test_keys_and_values_may_be_kept_in_half_of_the_memory(pool: DType, paired: bool, bits: int) -> None:
    config, tokens = CONFIGS["gemma"], tokens_of()
    weights = weights_of(config, blocked=True)
    model = runner_of(config, weights, pool=pool, paired=paired, threads=2)
    whole = model.run([Span(tokens, 0, range(20), LENGTH)])
    right = Decoder(config, weights).logits(tokens)
    # Each key and value is rounded to `bits` of a mantissa, in pairs each query and weight, too; measured 0.7 of that
    # without pairs, of keys and values of two layers.
    assert np.sqrt(((whole - right) ** 2).mean() / (right**2).mean()) < 2 * 2.0**-bits
    exact = runner("gemma", blocked=True).run([Span(tokens, 0, range(20), LENGTH)])
    assert np.abs(whole - exact).max() > 0
    np.testing.assert_array_equal(run_in(model, tokens, (7, 292, 1, 300), range(20)), whole)


def test_blocks_that_no_token_sees_may_be_any() -> None:
    config = replace(CONFIGS["llama"], architecture="windows", windows=(20, 70))
    model, tokens = runner_of(config, weights_of(config), threads=2), tokens_of()
    assert model.window == 70
    whole = model.run([Span(tokens, 0, range(20), LENGTH)])
    right = Decoder(config, weights_of(config)).logits(tokens)
    np.testing.assert_allclose(whole, right, atol=5e-6 * np.abs(right).max(), rtol=0)
    memory = model.memory()
    for start in (400, 570):
        gone = (start - model.window + 1) // model.block_size
        for name in memory:
            memory[name][:gone] = np.nan
            memory[name][[*range(40, 64)]] = np.nan
        found = model.run([Span(tokens[start:], start, [63] * gone + [*range(gone, 20)], LENGTH - start)])
        np.testing.assert_array_equal(found, whole[start:])
    assert runner("gemma").window is None, "one of its layers sees all keys"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_token_at_a_time_is_the_same_step_with_other_numbers(name: str, threads: int) -> None:
    """Over the ends of blocks and of a chunk; what was computed before is left to its owner."""
    model, tokens, other = runner(name, blocked=True, threads=threads), tokens_of(), tokens_of(330)
    whole = model.run([Span(tokens[:270], 0, range(20), 270)])
    company = model.run([Span(other, 0, range(20, 40), 330)])
    tables = [[*range(41, 50)], [63, *range(50, 60)]]
    model.run([Span(tokens[:230], 0, tables[0], 0), Span(other[:300], 0, tables[1], 0)])
    steps = [
        model.run([Span(tokens[at : at + 1], at, tables[0]), Span(other[at + 70 :][:1], at + 70, tables[1])])
        for at in range(230, 260)
    ]
    alone = [model.run([Span(tokens[at : at + 1], at, tables[0])]) for at in range(260, 270)]
    np.testing.assert_array_equal(np.stack(steps), np.stack([whole[230:260], company[300:]], axis=1))
    np.testing.assert_array_equal(np.concatenate(alone), whole[260:])


def test_a_sequence_that_comes_to_another_block_needs_no_other_plan() -> None:
    model, tokens = runner_of(PLAIN, weights_of(PLAIN)), tokens_of(240)
    for at, token in enumerate(tokens):
        model.run([Span([token], at, range(-(-(at + 1) // model.block_size)))])
    assert model._state.plans == 1  # pyright: ignore[reportPrivateUsage]


def test_a_step_is_not_taken_for_the_one_before() -> None:
    model, tokens, other = runner("llama"), tokens_of(), tokens_of(330)
    right = [model.run([Span(own[:40], 0, table, 2)]) for own, table in ((tokens, (1, 2)), (other, (3, 4)))]
    table = [1, 2]
    for own, blocks, expected in ((tokens, [1, 2], right[0]), (other, [3, 4], right[1]), (tokens, [1, 2], right[0])):
        table[:] = blocks  # in place
        for at in (38, 39):
            np.testing.assert_array_equal(model.run([Span(own[at : at + 1], at, table)])[0], expected[at - 38])
    for wrong in (Span((97,), 39, table), Span((-1,), 39, table)):
        with pytest.raises(InputError, match="vocabulary"):
            model.run([wrong])
    assert not len(model.run([Span(tokens[39:40], 39, table, 0)]))


@pytest.mark.parametrize("paired", [False, True])
def test_what_other_sequences_left_in_a_block_is_not_seen(paired: bool) -> None:
    config, tokens = CONFIGS["llama"], tokens_of(40)
    model = runner_of(config, weights_of(config), pool=DType.BF16, paired=True) if paired else runner("llama")
    clean = model.run([Span(tokens, 0, (30, 31), 1)])
    memory = model.memory()
    for name in memory:
        memory[name][[30, 31]] = np.nan
    np.testing.assert_array_equal(model.run([Span(tokens, 0, (30, 31), 1)]), clean)


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (Span((), 0, (0,)), "0 tokens"),
        (Span((1, 97), 0, (0,)), "97"),
        (Span((1,), 32, (0,)), "2 blocks"),
        (Span((1,), 0, (64,)), "64 of the pool"),
        (Span((1,), 0, (-1,)), "pool"),
        (Span((1,), -1, (0,)), "from -1"),
        (Span((1,), 2048, tuple(range(64))), "2048"),
        (Span((1,), 0, (0,), 2), "2 of them"),
    ],
)
def test_what_is_not_there_is_refused(span: Span, said: str) -> None:
    with pytest.raises(InputError, match=said):
        runner("llama").run([span])
