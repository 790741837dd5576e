"""A model whose logits depend on every token before, through a pool of blocks, and tokenizers to go with it."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from opweld.llm.requests import Request, Sampling
from opweld.llm.sampler import Sampler
from opweld.llm.step import Span
from opweld.llm.text import Pieces, Text, Tokenizer

END = 0


def mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last steps of SplitMix64: every bit depends on every bit."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


class FakeRunner:
    """A runner that keeps to the contract to the letter.

    What a token leaves in the cache is a hash of all that its sequence has there and of itself, as keys and values of a
    deep layer are; its logits are a hash of all of it again. A wrong table, a block that was given to another, a wrong
    start: all of them change logits. Half of the tokens have a likely successor, so that answers repeat themselves."""

    def __init__(
        self,
        blocks: int = 64,
        block_size: int = 4,
        vocabulary: int = 40,
        context: int = 200,
        window: int | None = None,
    ) -> None:
        self.blocks, self.block_size, self.vocabulary, self.context = blocks, block_size, vocabulary, context
        self.window = window
        self.pool = np.zeros((blocks, block_size), np.uint64)
        self.steps: list[list[Span]] = []
        self.before: Callable[[Sequence[Span]], None] = lambda spans: None

    def run(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        self.steps.append(list(spans))
        self.before(spans)
        self._check(spans)
        # All write before one reads, as layers of a real model do.
        rows = [logits for span in spans for logits in self._computed(span)]
        return np.array(rows, np.float32).reshape(len(rows), self.vocabulary)

    def _check(self, spans: Sequence[Span]) -> None:
        assert spans
        users = Counter(block for span in spans for block in self._seen(span))
        for span in spans:
            end = span.start + len(span.tokens)
            assert span.tokens
            assert 0 <= span.outputs <= len(span.tokens)
            assert all(0 <= token < self.vocabulary for token in span.tokens)
            assert end <= self.context
            assert end <= len(span.blocks) * self.block_size
            assert len(set(self._seen(span))) == len(self._seen(span))
            assert all(0 <= block < self.blocks for block in span.blocks)
            written = span.blocks[span.start // self.block_size : -(-end // self.block_size)]
            assert all(users[block] == 1 for block in written), "a block is written that another sequence has"

    def _low(self, position: int) -> int:
        """The first position that a token sees."""
        return 0 if self.window is None else max(0, position + 1 - self.window)

    def _seen(self, span: Span) -> Sequence[int]:
        return span.blocks[self._low(span.start) // self.block_size :]

    def _computed(self, span: Span) -> list[NDArray[np.float32]]:
        rows: list[NDArray[np.float32]] = []
        table = np.array(span.blocks)
        for at, token in enumerate(span.tokens):
            position = span.start + at
            before = self.pool[table].reshape(-1)[self._low(position) : position]
            here = mixed(folded(before) + np.array([token + 1], np.uint64))
            self.pool[table[position // self.block_size], position % self.block_size] = here[0]
            if at >= len(span.tokens) - span.outputs:
                seen = self.pool[table].reshape(-1)[self._low(position) : position + 1]
                rows.append(self._logits(folded(seen), token))
        return rows

    def _logits(self, state: NDArray[np.uint64], token: int) -> NDArray[np.float32]:
        values = mixed(state + np.arange(1, self.vocabulary + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        logits = (values >> np.uint64(40)).astype(np.float32) / np.float32(2**22)  # 0 to 4
        if token % 2:
            logits[(token * 5 + 2) % self.vocabulary] += 5
        else:
            logits[(token + 1) % self.vocabulary] += np.float32(1.5)
        return logits


def folded(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """[1]: all states, in their order, in one number."""
    odd = 2 * np.arange(len(states), dtype=np.uint64) + np.uint64(1)
    return mixed(np.array([(states * odd).sum(dtype=np.uint64)]))


class Joined:
    """Pieces of text: bytes of tokens, as far as they are whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, ids)))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class Words:
    """A tokenizer of given words. Token 0 ends an answer, and its bytes are not text."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = [b"<end>", *words]
        self.vocabulary = len(self.words)
        self.ends: tuple[int, ...] = (END,)
        self.special: tuple[int, ...] = (END,)

    def token_bytes(self, id: int) -> bytes:
        return self.words[id]

    def pieces(self, after: Sequence[int] = ()) -> Pieces:
        return Joined(self)

    def encode(self, text: str) -> list[int]:
        """Byte by byte."""
        return [self.words.index(bytes([byte])) for byte in text.encode()]


def letters(count: int = 40) -> Words:
    """Each token is one letter, but for the first."""
    return Words([bytes([65 + at]) for at in range(count - 1)])


def every_byte(*words: bytes) -> Words:
    """All bytes, and some words."""
    return Words([*(bytes([byte]) for byte in range(256)), *words])


def alone(
    request: Request, tokenizer: Tokenizer, vocabulary: int = 40, context: int = 200, window: int | None = None
) -> tuple[list[int], str]:
    """Tokens and text of a request without an engine, token by token in one block of its own."""
    limit = request.sampling.limit or context - len(request.prompt)
    text = Text(tokenizer, request, limit)
    sampler = Sampler(request.sampling, request.prompt)
    tokens = list(request.prompt)
    told, finish = "", None
    runner = FakeRunner(blocks=1, block_size=context, vocabulary=vocabulary, context=context, window=window)
    computed = 0
    while finish is None:
        logits = runner.run([Span(tokens[computed:], computed, (0,))])[0, : tokenizer.vocabulary]
        computed = len(tokens)
        tokens.append(sampler.choose(logits, int(logits.argmax())).token)
        certain, finish = text.feed(tokens[-1])
        told += certain
    return tokens[len(request.prompt) :], told


def request(id: str, prompt: Sequence[int], **sampling: object) -> Request:
    """A request that is answered greedily unless it says otherwise."""
    return Request(id, tuple(prompt), Sampling(**{"temperature": 0.0, **sampling}))  # pyright: ignore[reportArgumentType]
