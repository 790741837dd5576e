"""Chats as text: what transformers makes of the same template, and what untrusted templates may not do."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import transformers

from opweld.errors import InputError, ModelError, OpweldError
from opweld.llm import chat_template
from opweld.llm.chat_template import ChatTemplate
from opweld.llm.fields import Fields
from opweld.llm.folder.tokenizer import read_tokenizer
from tests.unit.llm.test_tokenizer import byte_level, folder

CHAT = """\
{%- if tools %}
    {{- "<|start|>tools\\n" }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- tool | tojson(indent=2) }}
    {%- endfor %}
    {{- "<|end|>\\n" }}
{%- endif %}
{{ bos_token }}
{%- set ns = namespace(last=0) %}
{% for message in messages %}
    {%- if message.role == "skip" %}{% continue %}{% endif %}
    {%- set ns.last = loop.index %}
    {{- "<|start|>" + message.role + "\\n" }}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}
    {%- else %}
        {%- generation %}{{ message.content }}{% endgeneration %}
    {%- endif %}
    {{- eos_token }}
{% endfor %}
{{ ns.last }}
{%- if add_generation_prompt %}
    {{- "<|start|>assistant\\n" }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ "no <b>thoughts</b>" }}{% endif %}
{%- endif %}
"""
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "the tea? <&é>"},
    {"role": "skip", "content": "never seen"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": "brew", "arguments": {"cups": 2, "kind": "<é>"}}}],
    },
    {"role": "user", "content": "and here"},
]
TOOLS = [{"type": "function", "function": {"name": "brew", "description": "Makes <tea>", "parameters": {}}}]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("prompt", [False, True], ids=["closed", "prompt"])
@pytest.mark.parametrize("more", [{}, {"enable_thinking": False}], ids=["", "no thinking"])
def test_chats_are_those_of_transformers(tmp_path: Path, tools: Any, prompt: bool, more: dict[str, Any]) -> None:
    path = folder(tmp_path, chat_template=CHAT)
    known = transformers.AutoTokenizer.from_pretrained(path)
    tokenizer = read_tokenizer(path, Fields({}, ""))
    how: dict[str, Any] = {"tools": tools, "add_generation_prompt": prompt} | more
    assert tokenizer.render(MESSAGES, **how) == known.apply_chat_template(MESSAGES, tokenize=False, **how)
    assert tokenizer.chat(MESSAGES, **how) == known.apply_chat_template(MESSAGES, return_dict=False, **how)


def test_templates_are_found_in_either_file(tmp_path: Path) -> None:
    folder(tmp_path, byte_level())
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())

    def rendered(template: object, file: str | None = None, tools: Any = None) -> str:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": template}))
        (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
        if file is not None:
            (tmp_path / "chat_template.jinja").write_text(file)
        return read_tokenizer(tmp_path, Fields({}, "")).render([], tools)

    assert rendered("one") == "one"
    assert rendered("one", file="other") == "other"
    several = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    assert rendered(several) == "plain"
    assert rendered(several, tools=TOOLS) == "with tools"
    with pytest.raises(InputError, match="no chat template"):
        rendered(None)


def test_messages_are_as_templates_expect_them() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}|{{ messages[0].tool_calls }}"}, {})
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = [{"function": {"name": "f", "arguments": '{"x": 1}'}}]
    message = {"role": "assistant", "content": parts, "tool_calls": calls}
    assert template.render([message], None, False) == "a\nb|[{'function': {'name': 'f', 'arguments': {'x': 1}}}]"
    assert calls[0]["function"] == {"name": "f", "arguments": '{"x": 1}'}, "the caller's messages stay as they were"
    calls[0]["function"]["arguments"] = "{"
    with pytest.raises(InputError, match="arguments of the tool call 'f' are not JSON"):
        template.render([message], None, False)


def test_the_date_is_today() -> None:
    before = datetime.now().strftime("%Y-%m-%d")
    found = ChatTemplate({"default": "{{ strftime_now('%Y-%m-%d') }}"}, {}).render([], None, False)
    assert before <= found <= datetime.now().strftime("%Y-%m-%d")


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ undefined.attribute }}",
        "{{ 1 / 0 }}",
        "{% include '/etc/passwd' %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_what_a_template_may_not_do(template: str) -> None:
    with pytest.raises(InputError, match="refuses these messages"):
        ChatTemplate({"default": template}, {}).render([{"role": "user", "content": "x"}], None, True)


@pytest.mark.parametrize(
    "template",
    [
        "{% set x = 'ab' %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set x = 'ab' * 100000 %}{{ x.replace('a', x) }}",
        "{{ 'x' | center(10000000000) }}",
        "{% set x = [1] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
        "{% macro m(n) %}{{ m(n + 1) if n < 99 }}{{ m(n + 1) if n < 99 }}{% endmacro %}{{ m(0) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
    ],
    ids=["+", "~", "replace", "center", "shared", "macros", "loops", "power"],
)
def test_a_template_takes_neither_all_memory_nor_all_time(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.2)
    made = ChatTemplate({"default": template, "tool_use": "{{ tools[0] }}"}, {})
    with pytest.raises(InputError, match=r"it takes more (memory than it may|than 0\.2 s of processor time)"):
        made.render([], None, True)
    assert made.render([], ["after that"], True) == "after that"


def test_a_text_has_a_longest_length() -> None:
    with pytest.raises(InputError, match="a text of 16777217 characters, more than 16777216"):
        ChatTemplate({"default": "{{ 'x' * 16777217 }}"}, {}).render([], None, True)


def test_characters_come_back_as_they_were() -> None:
    message = {"role": "user", "content": "\ud800 \N{WATERMELON}\0\r\n"}
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, {})
    assert template.render([message], None, True) == message["content"]


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(InputError, match="what JSON can write"):
        ChatTemplate({"default": ""}, {}).render([{"role": "user", "content": object()}], None, True)


def test_a_template_that_is_none_is_told() -> None:
    with pytest.raises(ModelError, match="not valid in line 2") as caught:
        ChatTemplate({"default": "{{ 1 }}\n{% for %}"}, {}).render([], None, True)
    assert isinstance(caught.value, OpweldError)
