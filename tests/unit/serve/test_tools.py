"""Calls of tools are found in text, however it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.serve.openai.fields import Tool
from opweld.serve.openai.tools import ToolCall, ToolReader

TOOLS = [Tool.model_validate({"type": "function", "function": {"name": name}}) for name in ("add", "now")]
ADD = '{"name": "add", "arguments": {"a": 1}}'
CALL = ("add", '{"a": 1}')


def read(*pieces: str) -> tuple[str, list[tuple[str, str]]]:
    reader = ToolReader(TOOLS)
    found = [one for piece in pieces for one in reader.feed(piece)]
    found += reader.end()
    text = "".join(one for one in found if isinstance(one, str))
    return text, [(one.name, one.arguments) for one in found if isinstance(one, ToolCall)]


CASES = [
    ("plain text, 1 < 2 <tool", "plain text, 1 < 2 <tool", []),
    (f"<tool_call>{ADD}</tool_call>", "", [CALL]),
    (f"Let me see.\n\n<tool_call>\n{ADD}\n</tool_call>\n", "Let me see.", [CALL]),
    (f"<tool_call>{ADD}</tool_call>\n<tool_call>{ADD}</tool_call>", "", [CALL, CALL]),
    (f"<tool_call>{ADD}</tool_call>\nDone.", "Done.", [CALL]),
    (f"<tool_call>{ADD}</tool_call> I am done", "I am done", [CALL]),
    (f"<tool_call>{ADD}", "", [CALL]),  # ended without the closing tag
    ('<tool_call>{"name": "ad', '<tool_call>{"name": "ad', []),
    ("a <tool_call>nonsense</tool_call> b", "a <tool_call>nonsense</tool_call> b", []),
    ('{"name": "add", "parameters": {"a": 1}}', "", [CALL]),
    (f'<|python_tag|>{ADD}; {{"name": "now", "parameters": {{}}}}', "", [CALL, ("now", "{}")]),
    (f"[{ADD}, {ADD}]", "", [CALL, CALL]),
    ('{"name": "stranger", "parameters": {}}', '{"name": "stranger", "parameters": {}}', []),
    ('{"add": 1}', '{"add": 1}', []),
    ("{not json", "{not json", []),
    (f"\n[ \n{ADD}\n, {ADD} ]", "", [CALL, CALL]),
    ("[1, 2]", "[1, 2]", []),
    ("[ 1", "[ 1", []),
    ("[", "[", []),
    ("<|python", "<|python", []),
    ("  spaced  ", "  spaced  ", []),
    ("", "", []),
]


@pytest.mark.parametrize(("text", "content", "calls"), CASES)
def test_what_is_found(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert read(text) == (content, calls)
    assert read(*text) == (content, calls)


@given(st.sampled_from(CASES), st.lists(st.integers(0, 80)))
def test_it_does_not_matter_where_it_is_cut(case: tuple[str, str, list[tuple[str, str]]], cuts: list[int]) -> None:
    text, content, calls = case
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert read(*(text[a:b] for a, b in pairwise(places))) == (content, calls)


def test_text_is_not_held_back() -> None:
    reader = ToolReader(TOOLS)
    assert list(reader.feed("Hello, ")) == ["Hello,"]
    assert list(reader.feed("world")) == [" world"]
