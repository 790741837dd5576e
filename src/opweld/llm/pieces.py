"""Text from tokens as they come: the bytes of each token, and what of them is complete characters.

Two kinds of vocabulary spell bytes. Byte-level BPE (GPT-2, Llama 3, Qwen) writes each byte as a printable character.
SentencePiece (Llama 2, Mistral, Gemma, Phi-3) writes spaces as U+2581 and bytes of rare characters as <0xE2>; the
space before the first word was not in the text.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from opweld.errors import UnsupportedError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_characters() -> dict[str, int]:
    """The byte that each character of byte-level BPE stands for: printable ones of Latin-1 for themselves, the rest
    are U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    found = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return found | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_CHARACTERS = byte_characters()


@dataclass(frozen=True)
class Spelling:
    """How a vocabulary writes text.

    Attributes:
        byte_level: each character is a byte. byte_fallback: tokens like <0xE2> are bytes.
        space: what stands for a space; empty where a space does.
        leading: the first word has a space before it that was not in the text.
    """

    byte_level: bool = False
    byte_fallback: bool = False
    space: str = ""
    leading: bool = False

    def spelled(self, token: str) -> bytes:
        """The bytes that a token means; not for tokens added to a vocabulary, which are written as they are."""
        if self.byte_level:
            if all(character in _BYTE_CHARACTERS for character in token):
                return bytes(_BYTE_CHARACTERS[character] for character in token)
            return token.encode()
        if self.byte_fallback and (match := _BYTE.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return (token.replace(self.space, " ") if self.space else token).encode()


def spelling(decoder: Any) -> Spelling:
    """How a decoder of `tokenizers` reads tokens. Raises UnsupportedError for those that do more than that."""
    described = json.loads(decoder.__getstate__()) if decoder is not None else {"type": "none"}
    steps = described["decoders"] if described["type"] == "Sequence" else [described]
    byte_level = byte_fallback = leading = False
    space = ""
    for step in cast("list[dict[str, Any]]", steps):
        match step:
            case {"type": "ByteLevel"}:
                byte_level = True
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(space)}, "content": " "}:
                pass
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
                leading = True
            case {"type": "Metaspace", "replacement": str(space)}:
                leading = step.get("prepend_scheme", "always") != "never"
            case _:
                raise UnsupportedError(
                    f"the tokenizer's decoder {step.get('type')} writes text that cannot be told token by token; "
                    "opweld generates with byte-level BPE and with SentencePiece's vocabularies"
                )
    return Spelling(byte_level, byte_fallback, space, leading)


class Pieces:
    """Text of an answer, piece by piece: what is told is never taken back, and ends with whole characters."""

    def __init__(self, bytes_of: Sequence[bytes], hidden: frozenset[int], leading: bool) -> None:
        self._bytes_of, self._hidden, self._leading = bytes_of, hidden, leading
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        """The text that is certain once these tokens have come. Bytes that can be no UTF-8 are U+FFFD."""
        return self._decoder.decode(b"".join(self._bytes(token) for token in ids))

    def flush(self) -> str:
        """The rest: U+FFFD for a character whose last bytes never came."""
        return self._decoder.decode(b"", final=True)

    def _bytes(self, token: int) -> bytes:
        if token in self._hidden or not 0 <= token < len(self._bytes_of):
            return b""
        found = self._bytes_of[token]
        if self._leading and found:
            self._leading = False
            return found.removeprefix(b" ")
        return found
