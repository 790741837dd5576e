"""A request to /v1/responses as one for a chat: turns as messages, and fields by the names that a chat has for them."""

from __future__ import annotations

from collections.abc import Sequence

from opweld.serve.openai.errors import missing
from opweld.serve.openai.fields import (
    Call,
    CalledFunction,
    ChatBody,
    ChosenFunction,
    Function,
    JsonSchema,
    Message,
    ResponseFormat,
    Tool,
    ToolChoice,
)
from opweld.serve.openai.response_fields import InputItem, InputPart, ResponseBody, TextFormat
from opweld.serve.refusal import Refusal

LOGPROBS = "message.output_text.logprobs"
"""What `include` names log-probabilities."""


def as_chat(body: ResponseBody) -> ChatBody:
    """The same request of a chat. Raises Refusal for what a server would have to remember."""
    _check(body)
    with_logprobs = body.top_logprobs is not None or LOGPROBS in (body.include or ())
    choice = body.tool_choice
    return ChatBody(
        model=body.model,
        messages=_messages(body),
        max_completion_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=with_logprobs,
        top_logprobs=body.top_logprobs if with_logprobs else None,
        response_format=_form(None if body.text is None else body.text.format),
        tools=[
            Tool(type="function", function=Function(**tool.model_dump(exclude={"type"}))) for tool in body.tools or ()
        ]
        or None,
        tool_choice=choice
        if choice is None or isinstance(choice, str)
        else ToolChoice(type="function", function=ChosenFunction(name=choice.name)),
        parallel_tool_calls=body.parallel_tool_calls,
        seed=body.seed,
        top_k=body.top_k,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
    )


def _check(body: ResponseBody) -> None:
    for name in ("previous_response_id", "conversation", "prompt"):
        if getattr(body, name) is not None:
            raise Refusal(
                400,
                f"Unsupported parameter: '{name}'. This server keeps no answers; send the whole conversation "
                "as 'input'.",
                param=name,
                code="unsupported_parameter",
            )


def _form(form: TextFormat | None) -> ResponseFormat | None:
    if form is None or form.type != "json_schema":
        return None if form is None else ResponseFormat(type=form.type)
    schema = JsonSchema.model_validate({"name": form.name or "answer", "schema": form.json_schema})
    return ResponseFormat(type="json_schema", json_schema=schema)


def _messages(body: ResponseBody) -> list[Message]:
    """The turns as messages: calls that a model made at once, and the text before them, are one."""
    found: list[Message] = []
    if body.instructions:
        found.append(Message(role="system", content=body.instructions))
    if isinstance(body.input, str):
        return [*found, Message(role="user", content=body.input)]
    begun = len(found)
    for number, item in enumerate(body.input):
        at = f"input[{number}]"
        if item.type == "reasoning":  # of another model: no template takes it
            continue
        if item.type == "function_call":
            call = Call(
                id=_needed(item.call_id, f"{at}.call_id"),
                function=CalledFunction(
                    name=_needed(item.name, f"{at}.name"), arguments=_needed(item.arguments, f"{at}.arguments")
                ),
            )
            before = found.pop() if found and found[-1].role == "assistant" else Message(role="assistant")
            found.append(before.model_copy(update={"tool_calls": [*(before.tool_calls or ()), call]}))
        elif item.type == "function_call_output":
            call_id = _needed(item.call_id, f"{at}.call_id")
            found.append(Message(role="tool", tool_call_id=call_id, content=_text(item.output, f"{at}.output")))
        else:
            found.append(_message(item, at))
    if len(found) == begun:
        raise Refusal(400, "Invalid 'input': it holds no message.", param="input", code="invalid_value")
    return found


def _message(item: InputItem, at: str) -> Message:
    if item.role is None:
        raise missing(f"{at}.role")
    return Message(role=item.role, content=_text(item.content, f"{at}.content"))


def _text(content: str | Sequence[InputPart] | None, at: str) -> str:
    """A content as one text."""
    if content is None:
        raise missing(at)
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for number, part in enumerate(content):
        if part.type.startswith("input_") and part.type != "input_text":
            raise Refusal(
                400,
                f"Invalid content type. {part.type} is not served: this model reads text alone.",
                param=f"{at}[{number}].type",
                code="invalid_value",
            )
        name = "refusal" if part.type == "refusal" else "text"
        texts.append(_needed(getattr(part, name), f"{at}[{number}].{name}"))
    return "\n".join(texts)


def _needed(value: str | None, param: str) -> str:
    if value is None:
        raise missing(param)
    return value
