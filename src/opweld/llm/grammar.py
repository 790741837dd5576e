"""Answers that a grammar constrains: JSON by a schema, any JSON, regular expressions, grammars in Lark's form.

The package llguidance does the work: after each token it tells which tokens may follow, in far less time than a step
takes. It is imported with the first grammar. What a grammar's state costs is kept, and copied for the next request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from opweld.errors import OptionError, RunError
from opweld.llm.requests import Grammar
from opweld.llm.text import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

KEPT = 64
"""Grammars whose compiled form is kept."""

WHITE_SPACE = r"\n? {0,24}"
"""White space between JSON's tokens, unless a schema says otherwise: as it is written. Where any is allowed, models are
known to write nothing else."""

OBJECT = '{"type": "object"}'
"""What "json" means, as OpenAI's JSON mode does: programs ask for the fields of what they get."""

SPECIAL = b"\xff"
"""What begins no text: llguidance takes tokens that begin with it for no part of an answer's text."""


class Matcher:
    """Where an answer stands in its grammar: a `sampler.Constraint`."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    @property
    def ended(self) -> bool:
        """Whether the answer is whole, and nothing may follow."""
        return self._matcher.is_stopped()

    def allowed(self) -> NDArray[np.bool_]:
        """[vocabulary]: the tokens that may come next. Raises RunError where the grammar has become too complex."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        """Goes on behind a token."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RunError(f"the grammar cannot go on: {self._matcher.get_error().splitlines()[0]}")


class Grammars:
    """The grammars of a tokenizer. It may be used by several threads."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        """vocabulary: the tokens that the model chooses from, the first of the tokenizer's."""
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._words: LLTokenizer | None = None
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> Matcher:
        """The start of an answer. Raises OptionError where the grammar is invalid, and where llguidance is missing."""
        with self._lock:
            known = self._compiled.pop(grammar, None) or self._compile(grammar)
            self._compiled[grammar] = known
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return Matcher(known.deep_copy(), self._vocabulary)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        try:
            from llguidance import LLMatcher, LLTokenizer
        except ImportError as error:
            raise OptionError("grammars need the package llguidance: pip install 'opweld[llm]'") from error
        written = {
            "json_schema": lambda: LLMatcher.grammar_from_json_schema(
                grammar.text, {"whitespace_pattern": WHITE_SPACE}
            ),
            "json": lambda: LLMatcher.grammar_from_json_schema(OBJECT, {"whitespace_pattern": WHITE_SPACE}),
            "regex": lambda: LLMatcher.grammar_from_regex(grammar.text),
            "lark": lambda: LLMatcher.grammar_from_lark(grammar.text),
        }
        if grammar.kind not in written:
            raise OptionError(f"a grammar is of kind {grammar.kind!r}, expected {', '.join(written)}")
        if self._words is None:
            words = Words(self._tokenizer, self._vocabulary)
            # A wrapper in all but its class, which calls a tokenizer of its own kind.
            self._words = LLTokenizer(cast("TokenizerWrapper", words), self._vocabulary, words.ends)
        try:
            form = written[grammar.kind]()
        except ValueError as error:
            raise OptionError(f"the {grammar.kind} is invalid: {error}") from error
        wrong, messages = LLMatcher.validate_grammar_with_warnings(form, self._words)
        if wrong:
            raise OptionError(f"the {grammar.kind} is invalid: {messages[0].strip()}")
        return LLMatcher(self._words, form, log_level=0)


class Words:
    """The tokens of a tokenizer, as llguidance asks for them."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self.ends = sorted(id for id in tokenizer.ends if id < vocabulary)
        if not self.ends:
            raise OptionError("the tokenizer has no token that ends an answer, which grammars need")
        self.eos_token_id = self.ends[0]
        special = {id for id in {*tokenizer.special, *self.ends} if id < vocabulary}
        self.special_token_ids = sorted(special)
        self.tokens = [tokenizer.token_bytes(id) for id in range(vocabulary)]
        for id in special:
            self.tokens[id] = SPECIAL + b"<%d>" % id
        self._ids: dict[bytes, int] = {}
        for id, word in enumerate(self.tokens):
            if word and id not in special:
                self._ids.setdefault(word, id)
        self._longest = max(map(len, self._ids))

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokens of text that a grammar forces, the longest word first: a tokenizer's own rules hold for whole texts,
        not for what stands in the middle of one."""
        text = text.encode() if isinstance(text, str) else text
        found: list[int] = []
        at = 0
        while at < len(text):
            for size in range(min(self._longest, len(text) - at), 0, -1):
                id = self._ids.get(text[at : at + size])
                if id is not None:
                    break
            else:
                return found  # no token has this byte: the mask says so when it comes to it
            found.append(id)
            at += size
        return found
