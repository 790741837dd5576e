"""How a token is chosen: each field of `Sampling` beside its definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.errors import OptionError, RunError
from opweld.llm.requests import Chosen, Sampling
from opweld.llm.sampler import Sampler, check, inverted, likeliest_of, nucleus, relative_chances


def chosen(sampler: Sampler, logits: NDArray[np.float32]) -> Chosen:
    return sampler.choose(logits, int(logits.argmax()))


def logits_of(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def drawn(logits: NDArray[np.float32], count: int = 400, **sampling: object) -> Counter[int]:
    sampler = Sampler(Sampling(**{"seed": 5, **sampling}), ())  # pyright: ignore[reportArgumentType]
    return Counter(chosen(sampler, logits).token for _ in range(count))


def test_greedy_takes_the_first_of_equals() -> None:
    assert chosen(Sampler(Sampling(temperature=0), ()), logits_of(1, 3, 3, 2)).token == 1
    biased = Sampling(temperature=0, bias={0: 2.0})
    assert chosen(Sampler(biased, ()), logits_of(1, 3, 3, 2)).token == 0


def test_draws_have_the_distribution_that_temperature_gives() -> None:
    logits = logits_of(0, 1, 2, -1, 0.5)
    for temperature in (0.5, 1.0, 2.0):
        chances = np.exp(logits.astype(np.float64) / temperature)
        chances /= chances.sum()
        counts = drawn(logits, 20000, temperature=temperature)
        for token, chance in enumerate(chances):
            # Five standard deviations of a binomial count, for one seed, which does not change.
            assert abs(counts[token] - 20000 * chance) < 5 * math.sqrt(20000 * chance * (1 - chance))


def test_low_temperatures_are_greedy() -> None:
    assert drawn(logits_of(1, 2, 1.999), temperature=1e-300) == {1: 400}
    assert drawn(logits_of(1, 2, -np.inf), temperature=1e-300) == {1: 400}


def test_top_k_keeps_the_likeliest_and_the_first_of_equals() -> None:
    assert set(drawn(logits_of(1, 3, 2, 2, 3), top_k=3)) == {1, 2, 4}
    assert set(drawn(logits_of(1, 1, 1), top_k=9)) == {0, 1, 2}
    assert set(drawn(logits_of(1, 1, 1), top_k=1)) == {0}


def test_top_p_keeps_as_few_as_make_it_up() -> None:
    logits = np.log(np.array([0.15, 0.5, 0.05, 0.3], np.float32))
    assert set(drawn(logits, top_p=0.49)) == {1}
    assert set(drawn(logits, top_p=0.51)) == {1, 3}
    assert set(drawn(logits, top_p=0.81)) == {0, 1, 3}
    assert set(drawn(logits, top_p=0.0)) == {1}
    # Of those that top-k keeps: 0.5 of 0.8 is more than 0.6.
    assert set(drawn(logits, top_p=0.6, top_k=2)) == {1}


def test_min_p_is_a_part_of_the_likeliest() -> None:
    logits = np.log(np.array([0.15, 0.5, 0.05, 0.3], np.float32))
    assert set(drawn(logits, min_p=0.29)) == {0, 1, 3}
    assert set(drawn(logits, min_p=0.31)) == {1, 3}
    assert set(drawn(logits, min_p=1.0)) == {1}


def test_the_nucleus_is_that_of_sorting_all() -> None:
    chance = np.random.default_rng(3)
    for part in (0.0, 0.1, 0.5, 0.9, 0.999):
        for size, scale in ((1, 4), (2, 4), (50, 4), (1000, 4), (1000, 0.1), (1000, 0)):
            chances = relative_chances(chance.normal(scale=scale, size=size).astype(np.float32), 1.0)
            order = np.argsort(-chances, kind="stable")
            sums = np.cumsum(chances[order], dtype=np.float64)
            expected = order[: np.searchsorted(sums, part * float(chances.sum())) + 1]
            np.testing.assert_array_equal(nucleus(chances, part), np.sort(expected))


@pytest.mark.parametrize("size", [1, 5, 255, 256, 257, 3000])
def test_the_inverse_of_the_distribution_function(size: int) -> None:
    chances = np.random.default_rng(size).integers(0, 4, size).astype(np.float32)
    chances[size // 2] = 1
    sums = np.cumsum(chances)
    for part in np.linspace(0, 1, 977, endpoint=False):
        at = inverted(chances, float(part))
        assert (sums[at - 1] if at else 0) <= part * sums[-1] < sums[at]
    # However sums are rounded: nothing is drawn whose chance is 0.
    chances = np.array([0, 0.1, 0.7, 0, 0], np.float32)
    assert (inverted(chances, 0.0), inverted(chances, 1 - 2**-53), inverted(chances, 1.0)) == (1, 2, 2)


def test_penalties() -> None:
    logits = logits_of(2, -2, 1, 3)
    # Tokens 0 and 1 are in the prompt: 2 / 2, -2 * 2.
    told = Sampler(Sampling(temperature=0, repetition_penalty=2.0, logprobs=0), (0, 1, 0))
    assert chosen(told, logits).token == 3
    assert chosen(told, logits).token == 3  # 3 / 2 is still more than 1
    assert chosen(Sampler(Sampling(temperature=0, repetition_penalty=4.0), (3,)), logits).token == 0
    once = Sampler(Sampling(temperature=0, presence_penalty=1.5), (3,))
    assert [chosen(once, logits).token for _ in range(4)] == [3, 0, 3, 3]
    each = Sampler(Sampling(temperature=0, frequency_penalty=0.75), ())
    assert [chosen(each, logits).token for _ in range(4)] == [3, 3, 0, 3]
    grateful = Sampler(Sampling(temperature=0, presence_penalty=-2, bias={0: 1.5}), ())
    assert [chosen(grateful, logits).token for _ in range(3)] == [0, 0, 0]


def test_bias_rules_a_token_in_and_out() -> None:
    assert drawn(logits_of(0, 0, 0), bias={1: 100.0}) == {1: 400}
    assert set(drawn(logits_of(0, 0, 0), bias={1: -100.0})) == {0, 2}


def test_logits_are_not_changed() -> None:
    logits = logits_of(1, 2, 3)
    logits.flags.writeable = False
    sampling = Sampling(bias={1: 4.0}, repetition_penalty=2.0, top_p=0.5, min_p=0.1, top_k=2, logprobs=2)
    chosen(Sampler(sampling, (0,)), logits)


def test_a_seed_makes_the_answer_and_seeds_differ() -> None:
    logits = np.zeros(1000, np.float32)

    def answer(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(seed=seed), ())
        return [chosen(sampler, logits).token for _ in range(10)]

    assert answer(7) == answer(7)
    assert answer(-7) == answer(-7)
    assert len({tuple(answer(seed)) for seed in (7, -7, 8, 2**40 + 7, None, None)}) == 6


def test_logprobs_are_the_models() -> None:
    logits = logits_of(1, 3, 2, 3)
    value = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    told = chosen(Sampler(Sampling(temperature=0.3, top_k=1, bias={0: 9.0}, logprobs=3), ()), logits)
    assert told.token == 0
    assert told.logprob == pytest.approx(value[0])
    assert [token for token, _ in told.likeliest] == [1, 3, 2]
    assert [of for _, of in told.likeliest] == pytest.approx(value[[1, 3, 2]].tolist())
    assert chosen(Sampler(Sampling(temperature=0), ()), logits) == Chosen(1)
    assert len(chosen(Sampler(Sampling(logprobs=20), ()), logits).likeliest) == 4


def test_the_likeliest_are_those_of_sorting_all() -> None:
    chance = np.random.default_rng(4)
    for size in (1, 5, 300):
        logits = chance.integers(0, 9, size).astype(np.float32)
        for count in (0, 1, 3, size, size + 5):
            expected = np.argsort(-logits, kind="stable")[:count]
            np.testing.assert_array_equal(likeliest_of(logits, count), expected)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(value: float, temperature: float) -> None:
    with pytest.raises(RunError, match="expected a finite number"):
        chosen(Sampler(Sampling(temperature=temperature), ()), logits_of(1, value, 2))
    with pytest.raises(RunError, match="expected a finite number"):
        chosen(Sampler(Sampling(temperature=temperature), ()), logits_of(-math.inf, -math.inf))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"repetition_penalty": 0},
        {"presence_penalty": math.inf},
        {"frequency_penalty": math.nan},
        {"limit": 0},
        {"stop": ("a", "")},
        {"stop": ("a", "b\ud800")},
        {"logprobs": -1},
    ],
    ids=str,
)
def test_what_means_nothing_is_refused_by_name(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=f"^{name} is "):
        check(Sampling(**wrong), 10)  # pyright: ignore[reportArgumentType]


def test_bias_of_what_is_no_token_is_refused() -> None:
    check(Sampling(bias={9: 1.0}), 10)
    for bias in ({10: 1.0}, {-1: 1.0}, {3: math.inf}):
        with pytest.raises(OptionError, match="bias"):
            check(Sampling(bias=bias), 10)
