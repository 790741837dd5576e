"""Text to tokens and back, as a model's files say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from opweld.errors import InputError
from opweld.llm.chat_template import ChatTemplate, Message
from opweld.llm.pieces import Pieces, Spelling, spelling
from opweld.llm.text import HALF

_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"),
    *("<EOT>", "<|return|>", "<|call|>", "<|end_of_role|>"),
)
"""Tokens that end a turn, whatever a file's metadata says: files often name one end where a model was taught two."""


class Tokenizer:
    """A tokenizer of the package `tokenizers` with what a language model needs around it.

    Attributes:
        inner: the tokenizers.Tokenizer.
        ends: tokens that end an answer. bos: the one that begins a text; None where there is none.
        special: tokens that are no text: they are left out of what is decoded.
        vocabulary: 1 + the largest id. words: the same, without the tokens that were added to the vocabulary.
    """

    def __init__(
        self,
        inner: Any,
        ends: Iterable[int] = (),
        bos: int | None = None,
        template: ChatTemplate | None = None,
        ids: dict[str, int] | None = None,
    ) -> None:
        """ids: of all tokens, of those that were added to the vocabulary, too; None: `inner` is asked, which takes
        20 ms for 50,000."""
        inner.no_truncation()
        inner.no_padding()
        self.inner, self.bos, self.template = inner, bos, template
        added: dict[int, Any] = inner.get_added_tokens_decoder()
        self._added = {id: str(token.content) for id, token in added.items()}
        named = {id for id, content in self._added.items() if content in _ENDS}
        self.ends = frozenset({*ends, *named})
        marks = self.ends if bos is None else self.ends | {bos}
        self.special = frozenset(id for id, token in added.items() if token.special) | (marks & self._added.keys())
        self._ids: dict[str, int] = inner.get_vocab(with_added_tokens=True) if ids is None else ids
        self.vocabulary = 1 + max(self._ids.values(), default=-1)
        self.words = 1 + max(set(self._ids.values()) - self._added.keys(), default=-1)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text. Special tokens that are written in it are those tokens.

        special: whether what the model expects around a text is added, as its BOS token.

        Raises InputError for a text that has half of a surrogate pair, which is no character."""
        return self._encoded(text, special).ids

    def encode_within(self, limit: int, text: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """The tokens of a text, or of two that a model reads together, with what it expects around them, and of each
        token 1 where it is of the second text, else 0. The last tokens of the text, of two of the second one, are left
        out where there are more than `limit`.

        Raises InputError where there is no room for the first of two texts, and as `encode`."""
        inner, pair = self.inner, second is not None
        texts = [self._encoded(one, special=False) for one in (text, second) if one is not None]
        room = limit - inner.num_special_tokens_to_add(pair) - (len(texts[0].ids) if pair else 0)
        if room < 1:
            raise InputError(f"a first text of {len(texts[0].ids)} tokens leaves no room for a second in {limit}")
        texts[-1].truncate(room)
        found = inner.post_process(*texts)
        return found.ids, found.type_ids

    def _encoded(self, text: str, special: bool) -> Any:
        # `tokenizers` says of such a text that it is no str.
        if (half := HALF.search(text)) is not None:
            raise InputError(
                f"character {half.start()} of the text, {half[0]!a}, is half of a surrogate pair; send whole characters"
            )
        return self.inner.encode(text, add_special_tokens=special)

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """The text of tokens; special ones are left out unless `special`."""
        pieces = self.pieces(special=special)
        return pieces.feed(tokens) + pieces.flush()

    def pieces(self, after: Sequence[int] = (), special: bool = False) -> Pieces:
        """What tells the text of tokens as they come.

        Args:
            after: the tokens before them. The space that a SentencePiece vocabulary puts before a text's first word is
                left out only where no text comes before.
            special: whether special tokens are told.
        """
        begins = all(token in self.special for token in after[-1:])
        hidden = frozenset[int]() if special else self.special
        return Pieces(self._bytes_of, hidden, self._spelling.leading and begins)

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to a text, which may be a part of a character. Nothing for special tokens, which are no
        text, and for ids that stand for nothing."""
        return self._bytes_of[id] if 0 <= id < self.vocabulary and id not in self.special else b""

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it; None where there is none."""
        return self._ids.get(token)

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> list[int]:
        """The tokens of a chat that the model is to continue.

        Args:
            messages: as OpenAI's API has them: role, content, tool_calls, ...
            tools: descriptions of functions that the model may call.
            add_generation_prompt: whether the answer's beginning follows the messages.
            kwargs: further variables of the template, as enable_thinking.

        Raises InputError: the model has no chat template, or it refuses the messages."""
        return self.encode(self.render(messages, tools, add_generation_prompt, **kwargs), special=False)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The text that `chat` encodes."""
        if self.template is None:
            raise InputError("the model has no chat template: it continues texts, it does not chat; give a prompt")
        return self.template.render(messages, tools, add_generation_prompt, **kwargs)

    @cached_property
    def _spelling(self) -> Spelling:
        return spelling(self.inner.decoder)

    @cached_property
    def _bytes_of(self) -> list[bytes]:
        found = [b""] * self.vocabulary
        for token, id in self._ids.items():
            found[id] = self._added[id].encode() if id in self._added else self._spelling.spelled(token)
        return found
