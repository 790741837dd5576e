"""What continues a conversation: which model, which tools it may call, and how its tokens are chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from opweld.llm.requests import Grammar
from opweld.serve.limits import Limits
from opweld.serve.openai.answers import Answers
from opweld.serve.openai.asked import check_answers, engine_of, model_of
from opweld.serve.openai.errors import missing
from opweld.serve.openai.fields import ChatBody, Tool
from opweld.serve.openai.messages import for_template, tools_for_template
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.prompts import tokenized
from opweld.serve.openai.sampling import check_room, sampling_of
from opweld.serve.openai.tools import forced, offered
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit


@dataclass(frozen=True)
class Names:
    """What an interface calls fields, for who is told that they are wrong."""

    messages: str
    form: str
    schema: str


@dataclass(frozen=True)
class Begun:
    """A conversation that is answered."""

    model: Served
    tools: Sequence[Tool]
    answers: Answers


class Conversations:
    """Begins answers to conversations."""

    def __init__(self, models: Models, limits: Limits, metrics: TokenMetrics) -> None:
        self._models, self._limits, self._metrics = models, limits, metrics

    async def begin(self, body: ChatBody, visit: Visit, names: Names) -> Begun:
        """The answers to a conversation. Raises Refusal where it asks for what there is not."""
        model = model_of(self._models, body.model, visit)
        engine_of(model)
        check_answers(body.n or 1, self._limits.answers, "n")
        tools = offered(body)
        grammar = _grammar(body, tools, names)
        if body.top_logprobs is not None and not body.logprobs:
            raise Refusal(
                400,
                "Invalid 'top_logprobs': it takes 'logprobs' to be true.",
                param="top_logprobs",
                code="invalid_value",
            )
        messages, told = for_template(body.messages, names.messages), tools_for_template(tools)
        size = sum(len(message["content"]) for message in messages)
        prompt = await tokenized(size, lambda: model.tokenizer.chat(messages, told), names.messages)
        limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        check_room(model, len(prompt), limit, self._limits.prompt, names.messages)
        sampling = sampling_of(
            body,
            model,
            limit=limit,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            grammar=grammar,
        )
        answers = Answers(model, [prompt], sampling, each=body.n or 1, visit=visit, metrics=self._metrics)
        return Begun(model, tools, answers)


def _grammar(body: ChatBody, tools: Sequence[Tool], names: Names) -> Grammar | None:
    """What the answer must be: a call, or of the form that is asked for."""
    form = body.response_format
    grammar = forced(body, tools)
    if form is None or form.type == "text":
        return grammar
    if tools:
        raise Refusal(
            400,
            f"Invalid '{names.form}': {form.type} leaves no room for calls of tools; send 'tool_choice': 'none'.",
            param=names.form,
            code="invalid_value",
        )
    if form.type == "json_object":
        return Grammar("json")
    if form.json_schema is None or form.json_schema.json_schema is None:
        param = names.schema + ("" if form.json_schema is None else ".schema")
        raise missing(param)
    return Grammar("json_schema", json.dumps(form.json_schema.json_schema))
