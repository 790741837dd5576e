"""Answers of many requests beside each other are those of each alone, and nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from opweld.errors import InputError, OptionError, RunError
from opweld.llm.engine import Engine
from opweld.llm.requests import Delta, Request
from opweld.llm.settings import Settings
from opweld.llm.speculation import DraftModel
from opweld.llm.step import Span
from tests.unit.llm.fake import FakeRunner, alone, letters, request

LETTERS = letters()


@dataclass
class Told:
    """What an engine told of its requests."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    finish: dict[str, str] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)

    def step(self, engine: Engine) -> None:
        for id, outcome in engine.step():
            if not isinstance(outcome, Delta):
                self.errors[id] = outcome
                continue
            assert id not in self.finish
            self.tokens.setdefault(id, []).extend(chosen.token for chosen in outcome.chosen)
            self.text[id] = self.text.get(id, "") + outcome.text
            self.cached[id] = self.cached.get(id, 0) + outcome.cached
            if outcome.finish:
                self.finish[id] = outcome.finish


def answered(engine: Engine, requests: Sequence[Request]) -> Told:
    told = Told()
    for one in requests:
        engine.add(one)
    while engine.unfinished:
        told.step(engine)
    assert engine.statistics.blocks_in_use == 0
    return told


def prompts(count: int, longest: int, seed: int = 1) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(1, 40) for _ in range(chance.randint(1, longest))] for _ in range(count)]


def test_the_answer_is_the_same_alone_batched_chunked_and_cached() -> None:
    several = [request(str(at), prompt, limit=20) for at, prompt in enumerate(prompts(8, 60))]
    expected = {one.id: alone(one, LETTERS) for one in several}
    for settings in (Settings(), Settings(budget=7, rows=5), Settings(budget=1, rows=1), Settings(lookup=4)):
        engine = Engine(FakeRunner(blocks=200), LETTERS, settings)
        for cached in (False, True):
            told = answered(engine, several)
            assert {id: (told.tokens[id], told.text[id]) for id in told.tokens} == expected
            assert any(told.cached.values()) == cached


def test_drafts_of_another_model_change_no_answer() -> None:
    several = [request(str(at), prompt, limit=30) for at, prompt in enumerate(prompts(6, 30))]
    for blocks in (12, 100):  # too few for all of them
        engine = Engine(FakeRunner(blocks=40), LETTERS, Settings(lookup=3), draft=FakeRunner(blocks=blocks))
        told = answered(engine, several)
        assert {id: told.tokens[id] for id in told.tokens} == {one.id: alone(one, LETTERS)[0] for one in several}
        assert engine.statistics.accepted > 0
        assert isinstance(engine.drafter, DraftModel)
        assert engine.drafter.blocks.in_use == 0


def test_seeded_answers_are_the_same_with_drafts_and_in_company() -> None:
    several = [
        request(str(at), prompt, limit=25, temperature=0.7, top_p=0.9, seed=at, frequency_penalty=0.1)
        for at, prompt in enumerate(prompts(8, 30))
    ]
    engine = Engine(FakeRunner(blocks=20), LETTERS, Settings(lookup=3, budget=24, rows=8))
    told = answered(engine, several)
    assert engine.statistics.accepted > 0
    assert engine.statistics.preemptions > 0
    assert {id: told.tokens[id] for id in told.tokens} == {one.id: alone(one, LETTERS)[0] for one in several}


def test_drafts_save_steps() -> None:
    one = request("a", [3, 17, 7, 37, 3, 17, 7, 37], limit=100, to_the_limit=True)
    plain, looking = (Engine(FakeRunner(), LETTERS, Settings(lookup=lookup)) for lookup in (0, 4))
    assert answered(plain, [one]).tokens == answered(looking, [one]).tokens
    assert plain.statistics.steps == 100
    assert looking.statistics.steps < 80
    assert looking.statistics.steps + looking.statistics.accepted == 100


@pytest.mark.parametrize("seed", range(9))
def test_thousands_of_random_steps(seed: int) -> None:
    """Requests that share prefixes come and go, in pools that are too small for them, with and without drafts, of
    models that see all keys and of some that see a window."""
    chance = random.Random(seed)
    stems = [prompt * 3 for prompt in prompts(3, 10, seed)]
    settings = Settings(budget=chance.choice((8, 16, 32)), rows=8, lookup=(0, 3)[seed % 2])
    window = None if seed < 6 else (1, 7, 13)[seed - 6]
    runner = FakeRunner(blocks=chance.choice((16, 18, 24)), context=60, window=window)
    draft = FakeRunner(blocks=20, context=60) if seed % 3 == 2 else None
    engine = Engine(runner, LETTERS, settings, draft)
    told, sent, gone = Told(), dict[str, Request](), set[str]()
    for at in range(500):
        if chance.random() < 0.5 and engine.unfinished < 12:
            stem = chance.choice(stems)
            prompt = stem[: chance.randrange(len(stem) + 1)] + [chance.randrange(1, 40) for _ in range(3)]
            drawn = {"temperature": 0.8, "seed": at} if chance.random() < 0.3 else {}
            one = request(str(at), prompt, limit=chance.randint(1, 20), stop=("CB",), **drawn)
            engine.add(one)
            sent[one.id] = one
        if chance.random() < 0.03 and engine.unfinished:
            gone.add(id := chance.choice(sorted(sent.keys() - told.finish.keys())))
            engine.abort(id)
            sent.pop(id)
        told.step(engine)
        no_block_is_lost(engine)
    while engine.unfinished:
        told.step(engine)
    assert not told.errors
    assert told.finish.keys() >= sent.keys()
    for id, one in sent.items():
        assert (told.tokens[id], told.text[id]) == alone(one, LETTERS, context=60, window=window)
    statistics = engine.statistics
    assert statistics.blocks_in_use == 0
    assert len(sent) > 50 and gone
    assert statistics.preemptions > 0 or window
    assert statistics.cached_tokens > 0
    assert not settings.lookup or statistics.accepted > 0


def no_block_is_lost(engine: Engine) -> None:
    """Every block is free, idle, or in the tables that its count says."""
    manager, running = engine.blocks, engine.scheduler.running
    tables = [block for sequence in running for block in sequence.table.blocks[sequence.table.first :]]
    assert manager.in_use == len(set(tables))
    assert all(not sequence.table.blocks for sequence in engine.scheduler.waiting)


def test_blocks_behind_the_window_of_all_layers_are_given_back() -> None:
    one = request("a", [3, 17] * 20, limit=100, to_the_limit=True)
    engine = Engine(FakeRunner(window=9), LETTERS, Settings(budget=8, rows=8))
    engine.add(one)
    told = Told()
    held: list[int] = []
    while engine.unfinished:
        told.step(engine)
        held.append(engine.statistics.blocks_in_use)
    assert held[:6] == [10, 8, 6, 4, 2, 3], "the prompt's at first, and fewer with each part that is computed"
    assert max(held[4:]) == 3, "nine tokens of a window, with the next one, lie in three blocks of four"
    assert told.tokens["a"] == alone(one, LETTERS, window=9)[0]
    assert engine.statistics.blocks_cached > 10, "others may still use them"
    again = answered(engine, [one])
    assert (again.tokens, again.cached) == (told.tokens, {"a": 36})


def test_a_long_prompt_does_not_stall_who_decodes() -> None:
    engine = Engine(FakeRunner(blocks=200, context=400), LETTERS, Settings(budget=16, rows=4))
    engine.add(request("short", [1, 2, 3], limit=30, to_the_limit=True))
    told = Told()
    told.step(engine)
    engine.add(request("long", [5] * 300, limit=1))
    for step in range(2, 22):
        told.step(engine)
        assert len(told.tokens["short"]) == step
    assert "long" in told.finish


def test_who_cannot_fit_is_refused_when_it_comes() -> None:
    engine = Engine(FakeRunner(blocks=10, block_size=4, context=50), LETTERS)
    with pytest.raises(InputError, match=r"30 tokens and an answer of 11 do not fit into the cache of 40 tokens"):
        engine.add(request("a", [1] * 30, limit=11))
    with pytest.raises(InputError, match=r"40 tokens and an answer of at least 1 do not fit"):
        engine.add(request("a", [1] * 40))
    with pytest.raises(InputError, match="empty"):
        engine.add(request("a", []))
    with pytest.raises(InputError, match="token 40, of a vocabulary of 40"):
        engine.add(request("a", [40]))
    with pytest.raises(OptionError, match="top_p is 2"):
        engine.add(request("a", [1], top_p=2))
    assert engine.unfinished == 0
    told = answered(engine, [request("a", [1] * 30, limit=10, to_the_limit=True), request("b", [2], to_the_limit=True)])
    assert {id: len(tokens) for id, tokens in told.tokens.items()} == {"a": 10, "b": 39}
    assert told.finish == {"a": "length", "b": "length"}


def test_an_id_is_used_by_one_request_at_a_time() -> None:
    engine = Engine(FakeRunner(), LETTERS)
    engine.add(request("a", [1], limit=2))
    with pytest.raises(OptionError, match="'a' already"):
        engine.add(request("a", [2]))
    engine.abort("a")
    engine.abort("a")
    assert answered(engine, [request("a", [1], limit=2)]).tokens["a"] == alone(request("a", [1], limit=2), LETTERS)[0]


def test_a_runner_that_fails_ends_the_requests_of_its_step() -> None:
    runner = FakeRunner()
    engine = Engine(runner, LETTERS, Settings(budget=4, rows=2))
    several = [request(str(at), [at + 1] * 9, limit=4) for at in range(4)]
    for one in several:
        engine.add(one)
    told = Told()
    told.step(engine)
    told.step(engine)

    def fail(spans: Sequence[Span]) -> None:
        raise MemoryError("no room")

    runner.before = fail
    told.step(engine)  # the last token of the first prompt, and what the budget has left of the second
    assert {id: str(error) for id, error in told.errors.items()} == dict.fromkeys(
        ("0", "1"), "the answer failed: MemoryError: no room"
    )
    assert all(isinstance(error, RunError) for error in told.errors.values())
    assert all(isinstance(error.__cause__, MemoryError) for error in told.errors.values())
    assert engine.statistics.blocks_in_use == 0
    runner.before = lambda spans: None
    while engine.unfinished:
        told.step(engine)
    assert told.finish.keys() == {"2", "3"}
    assert answered(engine, several).tokens == {one.id: alone(one, LETTERS)[0] for one in several}


def test_logits_that_are_no_numbers_end_their_request_alone() -> None:
    class Broken(FakeRunner):
        def run(self, spans):
            logits = super().run(spans)
            logits[0, 5] = float("nan")
            return logits

    engine = Engine(Broken(), LETTERS)
    told = answered(engine, [request("a", [1], limit=1), request("b", [2], limit=1)])
    assert list(told.errors) == ["a"]
    assert "nan" in str(told.errors["a"])
    assert told.tokens["b"] == alone(request("b", [2], limit=1), LETTERS)[0]


def test_rows_that_pad_the_vocabulary_are_no_tokens() -> None:
    few = letters(20)
    one = request("a", [3, 4], limit=30, to_the_limit=True)
    tokens = answered(Engine(FakeRunner(), few), [one]).tokens["a"]
    assert max(tokens) < 20
    assert tokens == alone(one, few)[0]


def test_statistics_count_tokens() -> None:
    engine = Engine(FakeRunner(), LETTERS)
    several = [request("a", [1] * 9, limit=3, to_the_limit=True), request("b", [1] * 9, limit=5, to_the_limit=True)]
    answered(engine, several)
    told = answered(engine, several[:1])
    assert told.cached == {"a": 8}
    statistics = engine.statistics
    assert (statistics.prompt_tokens, statistics.generated_tokens, statistics.cached_tokens) == (27, 11, 8)
    assert (statistics.running, statistics.waiting, statistics.preemptions) == (0, 0, 0)
