"""Text that comes token by token: whole characters, stop strings, ends."""

from __future__ import annotations

import random

import pytest

from opweld.llm.text import Text
from tests.unit.llm.fake import END, Words, every_byte, request

BYTES = every_byte()


def told(text: bytes, tokenizer: Words = BYTES, limit: int = 1000, **sampling: object) -> tuple[list[str], str | None]:
    """The pieces of a text that comes byte by byte, up to its finish."""
    stream = Text(tokenizer, request("a", [1], **sampling), limit)
    pieces: list[str] = []
    for byte in text:
        piece, finish = stream.feed(byte + 1)
        pieces.append(piece)
        if finish:
            return pieces, finish
    return pieces, None


def test_what_could_begin_a_stop_string_is_held_back() -> None:
    assert told(b"ab</di<p></s>x", stop=("</s>",)) == (
        ["a", "b", "", "", "</d", "i", "", "<p", ">", "", "", "", ""],
        "stop",
    )


def test_the_first_stop_string_that_is_whole_ends_the_answer() -> None:
    assert told(b"xabc", stop=("abcd", "bc")) == (["x", "", "", "a"], "stop")
    assert told(b"\n\nx", stop=("\n",)) == ([""], "stop")


def test_a_stop_string_within_one_token() -> None:
    stream = Text(Words([b"one. Two", b"."]), request("a", [1], stop=(". ",)), 9)
    assert stream.feed(1) == ("one", "stop")


def test_characters_come_whole() -> None:
    assert told("aé€😀".encode()) == (["a", "", "é", "", "", "€", "", "", "", "😀"], None)
    assert told("é".encode(), stop=("é",)) == (["", ""], "stop")


def test_a_limit_tells_what_was_held() -> None:
    assert told(b"ab<", limit=3, stop=("<s>",)) == (["a", "b", "<"], "length")
    assert told(b"a\xe2\x82", limit=3) == (["a", "", "\ufffd"], "length")
    assert told(b"a\xe2\x82", limit=3, stop=("\ufffd",)) == (["a", "", ""], "stop")


def test_a_stop_string_at_the_limit_is_a_stop() -> None:
    assert told(b"ab.", limit=3, stop=(".",)) == (["a", "b", ""], "stop")


def test_the_end_token_is_no_text() -> None:
    stream = Text(BYTES, request("a", [1], stop=("xy",)), 9)
    assert stream.feed(ord("x") + 1) == ("", None)
    assert stream.feed(END) == ("x", "stop")


def test_to_the_limit_goes_on_behind_an_end() -> None:
    stream = Text(BYTES, request("a", [1], to_the_limit=True), 3)
    assert [stream.feed(token) for token in (END, 66, END)] == [("<end>", None), ("A", None), ("<end>", "length")]


def test_a_last_token_is_a_stop() -> None:
    stream = Text(BYTES, request("a", [1], stop=("ab",)), 9)
    assert stream.feed(ord("a") + 1, last=True) == ("a", "stop")


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_make_the_same_text(seed: int) -> None:
    """What is told is the text before its first stop string, and never a part of one."""
    chance = random.Random(seed)
    for _ in range(300):
        stops = tuple("".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 3)))
        words = ["".join(chance.choices("abc", k=chance.randint(1, 4))) for _ in range(12)]
        stream = Text(Words([word.encode() for word in words]), request("a", [1], stop=stops), len(words))
        got, whole, finish = "", "", None
        for at, word in enumerate(words):
            whole += word
            piece, finish = stream.feed(at + 1)
            got += piece
            found = [whole.find(stop) for stop in stops if stop in whole]
            if found:
                assert (got, finish) == (whole[: min(found)], "stop")
                break
            held = whole[len(got) :]
            assert whole.startswith(got)
            assert finish == "length" or not held or any(stop.startswith(held) and stop != held for stop in stops)
        else:
            assert (got, finish) == (whole, "length")
