from __future__ import annotations

import pytest

from opweld.errors import ModelError, OpweldError, printable
from opweld.frontend import load, variants
from tests.unit.frontend.models import model_of, node

HOSTILE = "\x1b[31mred\x07\r\x9b\u202e\u2066\ud800"


def test_lines_and_letters_stay() -> None:
    text = "größe 漢字 'x' is wrong:\n    here"
    assert printable(text) == text and str(OpweldError(text)) == text


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert str(ModelError(HOSTILE)) == r"\x1b[31mred\x07\r\x9b\u202e\u2066\ud800"
    str(ModelError(HOSTILE)).encode()


def test_names_of_a_model_are_escaped() -> None:
    for evil in (node("Add\x1b[2J", ["x"], "y"), node("Frobnicate", ["x"], "y")):
        evil.name, evil.domain = HOSTILE[:-1], "" if "\x1b" in evil.op_type else "d\x1b[31m"
        with pytest.raises(OpweldError) as raised:
            variants(load(model_of([evil], {"x": [3]}, ["y"])))
        assert str(raised.value).isprintable() and "\\x1b" in str(raised.value)
