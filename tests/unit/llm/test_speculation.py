"""Drafts, and that they change no distribution."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from opweld.errors import OptionError
from opweld.llm.engine import Engine
from opweld.llm.requests import Delta, Request, Sampling
from opweld.llm.scheduler import Work
from opweld.llm.settings import Settings
from opweld.llm.speculation import DraftModel, Seen
from tests.unit.llm.fake import FakeRunner, alone, letters, request


def followed(tokens: list[int], count: int) -> list[int]:
    return Seen().followed(tokens, count)


def test_what_followed_the_longest_repeated_end_is_drafted() -> None:
    assert followed([1, 2, 3, 4, 9, 2, 3], 2) == [4, 9]
    assert followed([1, 2, 3, 4, 9, 2, 3], 9) == [4, 9, 2, 3]
    assert followed([7, 2, 3, 5, 8, 2, 3, 6, 7, 2, 3], 1) == [5]  # three tokens agree there, two with the later place
    assert followed([1, 2, 8, 1, 2, 9, 1, 2], 1) == [9]  # the last of equals
    assert followed([4, 4, 4, 4], 3) == [4]
    assert followed([1, 2, 3, 1], 3) == []
    assert followed([], 3) == followed([1], 3) == []


def test_lookups_of_a_sequence_that_grows_are_those_of_its_tokens() -> None:
    chance = Random(8)
    seen, tokens = Seen(), [1]
    for _ in range(300):
        assert seen.followed(tokens, 3) == followed(tokens, 3)
        tokens += [chance.randrange(4) for _ in range(chance.randint(1, 4))]


class Flat(FakeRunner):
    """Logits that depend on nothing: each token has the chances of `CHANCES`."""

    def _computed(self, span):
        return [np.log(CHANCES)] * span.outputs


CHANCES = np.array([0.05, 0.4, 0.25, 0.2, 0.1])


@pytest.mark.parametrize("draft", [False, True])
def test_the_distribution_of_drawn_tokens_is_that_without_drafts(draft: bool) -> None:
    """Pairs of tokens after each other: an acceptance that is wrong would favour drafts, or what is not drafted."""
    answers, length = 80, 150
    count = answers * length
    runner, other = (Flat(vocabulary=5, blocks=2000) for _ in range(2))
    engine = Engine(runner, letters(5), Settings(lookup=3, rows=20), other if draft else None)
    told: dict[str, list[int]] = {str(seed): [] for seed in range(answers)}
    for seed in range(answers):
        engine.add(Request(str(seed), (1, 2, 3), Sampling(seed=seed, limit=length, to_the_limit=True)))
    while engine.unfinished:
        for id, delta in engine.step():
            assert isinstance(delta, Delta), delta
            told[id] += [chosen.token for chosen in delta.chosen]
    assert engine.statistics.accepted > count / 10
    assert engine.statistics.drafted > engine.statistics.accepted + count / 10
    tokens = [token for answer in told.values() for token in answer]
    singles, pairs = Counter(tokens), Counter(pairwise(tokens))
    for one, chance in enumerate(CHANCES):
        assert abs(singles[one] - count * chance) < 5 * math.sqrt(count * chance)
        for two, then in enumerate(CHANCES):
            assert abs(pairs[one, two] - count * chance * then) < 5 * math.sqrt(count * chance * then)


def test_the_same_model_as_draft_is_always_right() -> None:
    one = request("a", [3, 4, 5, 6, 7], limit=40, to_the_limit=True)
    engine = Engine(FakeRunner(), letters(), Settings(lookup=3), draft=FakeRunner())
    engine.add(one)
    tokens: list[int] = []
    while engine.unfinished:
        for _, delta in engine.step():
            assert isinstance(delta, Delta), delta
            tokens += [chosen.token for chosen in delta.chosen]
    assert tokens == alone(one, letters())[0]
    statistics = engine.statistics
    assert statistics.accepted == statistics.drafted == 30
    assert statistics.steps == 10


def test_a_draft_model_reads_a_long_prompt_within_its_budget() -> None:
    runner = FakeRunner()
    drafter = DraftModel(runner, 40, budget=10)
    engine = Engine(FakeRunner(), letters())
    sequence = engine.prepare(request("a", list(range(1, 26))))
    sequence.computed = 24
    for expected in ([10], [10], [4, 1, 1]):
        work = Work(sequence, 1, last=True, room=2)
        runner.steps.clear()
        drafter.draft([work])
        assert [len(span.tokens) for step in runner.steps for span in step] == expected
    assert len(work.drafts) == 2
    drafter.forget(sequence)
    assert drafter.blocks.in_use == 0


def test_a_draft_model_of_other_tokens_is_refused() -> None:
    with pytest.raises(OptionError, match="30 tokens"):
        Engine(FakeRunner(), letters(), Settings(lookup=3), draft=FakeRunner(vocabulary=30))
