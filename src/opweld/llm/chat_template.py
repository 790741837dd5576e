"""Messages of a chat as the text that a model was trained on, by the template that came with it.

Templates are untrusted programs in Jinja's language: they run in its sandbox, whose values cannot be changed, and with
a limit on what a multiplication makes. The environment is that of transformers, for which templates are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from opweld.errors import InputError, ModelError
from opweld.llm.packages import package

Message = Mapping[str, Any]

_LONGEST = 1 << 20
"""No product of a string or list and a number is longer."""


class ChatTemplate:
    """Templates by name, "default" and perhaps "tool_use", and the tokens that they may name."""

    def __init__(self, templates: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        self.templates, self.tokens = dict(templates), dict(tokens)
        self._compiled: dict[str, Any] = {}

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, add_generation_prompt: bool, **kwargs: object
    ) -> str:
        """The text of a chat.

        Raises InputError where the template refuses the messages, and ModelError where it is no template."""
        name = "tool_use" if tools and "tool_use" in self.templates else "default"
        jinja2 = self._jinja2
        template = self._compiled.get(name)
        try:
            if template is None:
                template = self._compiled[name] = self._environment.from_string(self.templates[name])
            values = self.tokens | kwargs
            return template.render(
                messages=[prepared(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=add_generation_prompt,
                **values,
            )
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"the model's chat template is not valid in line {error.lineno}: {error.message}; give another one"
            ) from error
        except (jinja2.TemplateError, *_MISTAKES) as error:
            raise InputError(f"the model's chat template refuses these messages: {error}") from error

    @cached_property
    def _jinja2(self) -> Any:
        return package("jinja2")

    @cached_property
    def _environment(self) -> Any:
        environment = _environment_type()(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation(self._jinja2)]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["strftime_now"] = _strftime_now
        environment.globals["raise_exception"] = _raising(self._jinja2.TemplateError)
        return environment


_MISTAKES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""What an expression of a template raises that does not suit the messages."""


def prepared(message: Message) -> dict[str, Any]:
    """A message as templates expect it: parts of text are one text, and arguments of tools are objects, not JSON."""
    found = dict(message)
    content = found.get("content")
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        if all(isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == "text" for part in parts):
            found["content"] = "\n".join(str(part.get("text", "")) for part in parts)
    if isinstance(found.get("tool_calls"), list):
        found["tool_calls"] = [_called(call) for call in cast("list[Any]", found["tool_calls"])]
    return found


def _called(call: Any) -> Any:
    """A call of a tool whose arguments are read."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):  # pyright: ignore[reportUnknownMemberType]
        return cast("Any", call)
    known = cast("dict[str, Any]", call)
    function = dict(known["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            raise InputError(
                f"the arguments of the tool call {function.get('name')!r} are not JSON: {error}"
            ) from error
    return known | {"function": function}


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML's escapes, which Jinja's own filter writes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _raising(error: type[Exception]) -> Callable[[str], str]:
    def raise_exception(message: str) -> str:
        raise error(message)

    return raise_exception


def _environment_type() -> Any:
    sandbox = package("jinja2.sandbox")
    base: Any = sandbox.ImmutableSandboxedEnvironment

    class Environment(base):
        """A sandbox in which products are limited."""

        intercepted_binops = frozenset(("*", "**"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """The product or power, where it is not too long."""
            if operator == "**" and not (_small(left) and _small(right)):
                raise sandbox.SecurityError("the power is too large")
            for value, times in ((left, right), (right, left)):
                if isinstance(value, str | list | tuple) and isinstance(times, int):
                    length = len(cast("Sequence[Any]", value))
                    if length * times > _LONGEST:
                        raise sandbox.SecurityError("the product is too long")
            return base.call_binop(self, context, operator, left, right)

    return Environment


def _small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1000


def _generation(jinja2: Any) -> Any:
    """{% generation %} ... {% endgeneration %} marks what an assistant wrote, for training: here it is its contents."""
    extensions, nodes = package("jinja2.ext"), jinja2.nodes

    class Generation(extensions.Extension):
        """Its contents."""

        tags = frozenset(("generation",))

        def parse(self, parser: Any) -> Any:
            """The statements inside, in a scope of their own."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return Generation
