"""Tokens and texts: byte-level BPE and SentencePiece, from tokenizer.json and from GGUF; pieces; chats."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.errors import InputError
from opweld.llm.files import open_model
from tests.unit.llm.ggufs import made

TEXTS = [
    "",
    "the tea",
    " leading,  two  spaces \n\n\t and the rest ",
    "naïve café 你好 👩‍👩‍👧 \u200f\u0000",
    "12345 3.14 x=1;\r\n",
    "ends<|end|>and goes on",
]


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_texts_come_back(tmp_path: Path, text: str) -> None:
    tokenizer = open_model(made("llama").write(tmp_path / "a.gguf")).tokenizer
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens, special=True) == text
    assert tokenizer.decode(tokens) == text.replace("<|end|>", "")
    pieces = tokenizer.pieces(special=True)
    told = [pieces.feed([token]) for token in tokens]
    assert "".join(told) + pieces.finish() == text
    assert b"".join(tokenizer.token_bytes(token) for token in tokens).decode() == text


def test_a_model_without_a_template_does_not_chat(tmp_path: Path) -> None:
    tokenizer = open_model(made("llama").write(tmp_path / "a.gguf")).tokenizer
    assert tokenizer.ends == {257}
    assert tokenizer.bos is None
    with pytest.raises(InputError, match="no chat template"):
        tokenizer.chat([{"role": "user", "content": "hi"}])
