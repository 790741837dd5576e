"""Answers that a grammar constrains, whatever the model would have said."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from opweld.errors import OptionError, RunError
from opweld.llm.engine import Engine
from opweld.llm.grammar import Grammars
from opweld.llm.requests import Delta, Grammar
from opweld.llm.settings import Settings
from tests.unit.llm.fake import END, FakeRunner, Words, every_byte, request

WORDS = every_byte(b"true", b'{"', b'":', b"name", b" age", b"12", b"")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def said(grammar: Grammar, start: int = 0, lookup: int = 0, **sampling: object) -> tuple[str, str | None]:
    """What a model of random tokens says under a grammar, and its finish."""
    engine = Engine(FakeRunner(vocabulary=270, blocks=100), WORDS, Settings(lookup=lookup))
    engine.add(request("a", [5, 7, 9, start], grammar=grammar, **sampling))
    text, finish = "", None
    while engine.unfinished:
        for _, outcome in engine.step():
            assert isinstance(outcome, Delta), outcome
            text += outcome.text
            finish = outcome.finish
    return text, finish


@pytest.mark.parametrize("seed", range(8))
def test_json_by_a_schema(seed: int) -> None:
    text, finish = said(Grammar("json_schema", json.dumps(SCHEMA)), seed, temperature=1.0, seed=seed)
    assert finish == "stop"
    value = json.loads(text)
    assert set(value) == {"name", "age"}
    assert value["name"] in ("Ann", "Bob")
    assert 0 <= value["age"] <= 99


def test_a_model_that_likes_white_space_ends_its_json() -> None:
    """Small models do."""
    text, finish = said(Grammar("json_schema", json.dumps(SCHEMA)), bias={1 + code: 50.0 for code in b" \t\r\n"})
    assert finish == "stop"
    assert set(json.loads(text)) == {"name", "age"}
    for pretty in (json.dumps({"name": "Ann", "age": 7}, indent=4), '{"name":"Bob","age":8}'):
        matcher = Grammars(WORDS, WORDS.vocabulary).matcher(Grammar("json_schema", json.dumps(SCHEMA)))
        for byte in pretty.encode():
            matcher.accept(byte + 1)
        assert matcher.ended


def test_a_model_of_fewer_tokens_than_its_tokenizer() -> None:
    engine = Engine(FakeRunner(vocabulary=258), WORDS)  # no words, but for the first
    engine.add(request("a", [1], grammar=Grammar("regex", "(true){2}name")))
    tokens: list[int] = []
    while engine.unfinished:
        for _, delta in engine.step():
            assert isinstance(delta, Delta), delta
            tokens += [chosen.token for chosen in delta.chosen]
    assert tokens == [257, 257, *(byte + 1 for byte in b"name")]


def test_any_json_is_an_object() -> None:
    text, finish = said(Grammar("json"), bias={ord("}") + 1: 50.0})
    assert isinstance(json.loads(text), dict)
    assert finish == "stop"


@pytest.mark.parametrize("lookup", [0, 3])
def test_a_regular_expression(lookup: int) -> None:
    for seed in range(5):
        text, finish = said(Grammar("regex", r"(ab|cd){3,5}-[0-9]{2}"), seed, lookup)
        assert re.fullmatch(r"(ab|cd){3,5}-[0-9]{2}", text)
        assert finish == "stop"


def test_a_grammar_in_larks_form() -> None:
    text, _ = said(Grammar("lark", 'start: "pick " fruit\nfruit: "apple" | "pear"'))
    assert text in ("pick apple", "pick pear")


def test_an_end_is_allowed_where_the_answer_is_whole_and_only_there() -> None:
    matcher = Grammars(WORDS, WORDS.vocabulary).matcher(Grammar("regex", "a+"))
    assert list(matcher.allowed().nonzero()[0]) == [ord("a") + 1]
    matcher.accept(ord("a") + 1)
    assert list(matcher.allowed().nonzero()[0]) == [END, ord("a") + 1]
    assert not matcher.ended
    matcher.accept(END)
    assert matcher.ended


def test_a_forced_text_is_written_in_the_longest_words() -> None:
    matcher = Grammars(WORDS, WORDS.vocabulary).matcher(Grammar("regex", "name age"))
    for word in (b"name", b" age"):
        assert [WORDS.words[token] for token in matcher.allowed().nonzero()[0]] == [word]
        matcher.accept(WORDS.words.index(word))
    assert matcher.ended


def test_matchers_of_one_grammar_do_not_know_each_other() -> None:
    grammars = Grammars(WORDS, WORDS.vocabulary)
    one, other = (grammars.matcher(Grammar("regex", "xy")) for _ in range(2))
    one.accept(ord("x") + 1)
    assert list(one.allowed().nonzero()[0]) == [ord("y") + 1]
    assert list(other.allowed().nonzero()[0]) == [ord("x") + 1]


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        (Grammar("json_schema", '{"type": "nope"}'), "nope"),
        (Grammar("json_schema", '{"type": '), "line 1"),
        (Grammar("json_schema", "[1]"), "object schema"),
        (Grammar("regex", "(a"), "invalid regex"),
        (Grammar("lark", "start: ["), "Expected token"),
        (Grammar("yaml"), "expected json_schema, json, regex, lark"),  # pyright: ignore[reportArgumentType]
    ],
    ids=str,
)
def test_an_invalid_grammar_is_refused_when_it_comes(grammar: Grammar, says: str) -> None:
    engine = Engine(FakeRunner(vocabulary=270), WORDS)
    with pytest.raises(OptionError, match=says):
        engine.add(request("a", [1], grammar=grammar))
    assert engine.unfinished == 0


def test_a_special_token_is_no_text() -> None:
    words = every_byte(b"<tool>")
    words.special = (END, 257)
    matcher = Grammars(words, words.vocabulary).matcher(Grammar("regex", "<[a-z]+>"))
    assert list(matcher.allowed().nonzero()[0]) == [ord("<") + 1]


def test_a_token_that_the_grammar_does_not_allow_is_an_error() -> None:
    matcher = Grammars(WORDS, WORDS.vocabulary).matcher(Grammar("regex", "a+"))
    with pytest.raises(RunError, match="grammar cannot go on"):
        matcher.accept(ord("b") + 1)


def test_a_text_that_the_tokens_cannot_write_is_an_error() -> None:
    matcher = Grammars(Words([b"a", b"b"]), 3).matcher(Grammar("regex", "ac"))
    matcher.accept(1)
    with pytest.raises(RunError, match="the grammar cannot go on: NoExtension"):
        matcher.allowed()


def test_a_tokenizer_without_an_end_is_refused() -> None:
    endless = Words([b"a"])
    endless.ends = ()
    with pytest.raises(OptionError, match="no token that ends an answer"):
        Grammars(endless, 2).matcher(Grammar("regex", "a"))


def test_llguidance_is_loaded_with_the_first_grammar() -> None:
    code = "import sys, opweld.llm.engine; print('llguidance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
