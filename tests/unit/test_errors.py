from __future__ import annotations

import pytest

from opweld import ir
from opweld.errors import ModelError, OpweldError, printable
from opweld.frontend.explore import variants
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load
from opweld.ops.operands import describe
from opweld.ops.registry import required_attribute
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
            variants(graph_of(load(model_of([evil], {"x": [3]}, ["y"]))))
        assert str(raised.value).isprintable() and "\\x1b" in str(raised.value)


@pytest.mark.parametrize("domain", ["", "somebody's\nerror: "])
def test_an_operator_does_not_end_a_line(domain: str) -> None:
    evil = node("Add\nerror: \x0b\x85\u2028all is lost", ["x"], "y")
    evil.domain = domain
    with pytest.raises(OpweldError) as raised:
        variants(graph_of(load(model_of([evil], {"x": [3]}, ["y"]))))
    assert str(raised.value).isprintable() and r"Add\nerror: \x0b\x85\u2028all" in str(raised.value)


def test_a_node_is_described_in_one_line() -> None:
    broken = ir.Node("Concat\n", [], [], {}, name="a\nb")
    assert describe(broken) == r"node 'a\nb' (Concat\n)"
    with pytest.raises(ModelError) as raised:
        required_attribute(broken, "axis")
    assert str(raised.value).startswith(describe(broken))
