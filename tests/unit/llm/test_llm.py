"""A model as an object."""

from __future__ import annotations

import pytest

from opweld.errors import InputError, OptionError, RunError
from opweld.llm.llm import LLM
from opweld.llm.requests import Sampling
from opweld.llm.settings import Settings
from tests.unit.llm.fake import FakeRunner, alone, letters, request

LETTERS = letters()
GREEDY = Sampling(temperature=0, limit=6)


def test_answers_are_in_the_order_of_prompts() -> None:
    model = LLM.of(FakeRunner(), LETTERS, Settings(rows=2))
    prompts = ["ABC", "Q", "HELLO"]
    answers = model.generate(prompts, GREEDY)
    for prompt, answer in zip(prompts, answers, strict=True):
        expected = alone(request("x", LETTERS.encode(prompt), limit=6), LETTERS)
        assert (answer.tokens, answer.text) == expected
        assert answer.finish in ("stop", "length")
        assert answer.logprobs == []
    assert model.generate([LETTERS.encode("Q")], GREEDY) == model.generate("Q", GREEDY) == [answers[1]]
    assert model.generate([]) == []


def test_each_prompt_may_have_its_own_sampling() -> None:
    model = LLM.of(FakeRunner(), LETTERS)
    ways = [Sampling(limit=2, to_the_limit=True), Sampling(limit=4, to_the_limit=True, logprobs=2)]
    one, other = model.generate(["A", "B"], ways)
    assert (len(one.tokens), len(other.tokens)) == (2, 4)
    assert [chosen.token for chosen in other.logprobs] == other.tokens
    assert all(len(chosen.likeliest) == 2 for chosen in other.logprobs)
    with pytest.raises(OptionError, match="2 samplings for 1 prompts"):
        model.generate("A", ways)


def test_a_prompt_that_cannot_be_answered_leaves_nothing_behind() -> None:
    runner = FakeRunner()
    model = LLM.of(runner, LETTERS)
    with pytest.raises(InputError, match="empty"):
        model.generate(["A", ""], GREEDY)
    assert model.engine.unfinished == 0

    def fail(spans):
        raise ValueError("bad weights")

    runner.before = fail
    with pytest.raises(RunError, match="bad weights"):
        model.generate(["A", "B"], GREEDY)
    assert model.engine.unfinished == 0


def test_streams_that_are_read_by_turns_each_get_their_own() -> None:
    model = LLM.of(FakeRunner(), LETTERS)
    streams = [model.stream(prompt, Sampling(temperature=0, limit=6, to_the_limit=True)) for prompt in ("AB", "CD")]
    got: list[list[int]] = [[], []]
    for _ in range(6):
        for stream, tokens in zip(streams, got, strict=True):
            tokens += [chosen.token for chosen in next(stream).chosen]
    for prompt, tokens in zip(("AB", "CD"), got, strict=True):
        expected = alone(request("x", LETTERS.encode(prompt), limit=6, to_the_limit=True), LETTERS)
        assert tokens == expected[0]
    assert model.engine.statistics.steps < 12


def test_closing_a_stream_ends_its_request() -> None:
    model = LLM.of(FakeRunner(), LETTERS)
    stream = model.stream("A", Sampling(to_the_limit=True))
    next(stream)
    assert model.engine.unfinished == 1
    stream.close()
    assert model.engine.unfinished == 0
    assert model.engine.statistics.blocks_in_use == 0
