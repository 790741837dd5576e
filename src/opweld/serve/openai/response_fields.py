"""Fields of POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from opweld.serve.openai.fields import Fields, FunctionName, Hosted, Sampled, SchemaName, shape


class InputPart(Fields):
    """A part of a message: text that was written or answered; other kinds are told that they are not served."""

    type: Literal["input_text", "output_text", "refusal", "input_image", "input_file", "input_audio"]
    text: str | None = None
    refusal: str | None = None
    annotations: Any = None
    logprobs: Any = None
    image_url: Any = None
    file_id: Any = None
    file_data: Any = None
    file_url: Any = None
    filename: Any = None
    detail: Any = None
    input_audio: Any = None


Content = Annotated[
    Annotated[str, Tag("(string)")] | Annotated[list[InputPart], Field(min_length=1), Tag("(array)")],
    Discriminator(shape),
]


class InputItem(Fields):
    """A turn of a conversation: a message, a call of a function that a model made, or what the function gave.

    One class for all: which fields there must be depends on `type`, which messages may leave out."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None
    # What OpenAI's answers have beside these comes back with them.
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    summary: Any = None
    encrypted_content: Any = None


class FunctionTool(Fields):
    """A function that a model may call. The type is first: tools that OpenAI runs itself are told that they are not
    served, and not that they have no name."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChosenTool(Fields):
    """The function that must be called."""

    type: Literal["function"]
    name: str


class TextFormat(Fields):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: SchemaName | None = None
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextConfig(Fields):
    """How an answer is written."""

    format: TextFormat | None = None
    verbosity: str | None = None


class EventOptions(Fields):
    """What a stream has beside the answer."""

    include_obfuscation: bool | None = None


class ResponseBody(Hosted, Sampled):
    """POST /v1/responses."""

    input: Annotated[
        Annotated[str, Tag("(string)")] | Annotated[list[InputItem], Field(min_length=1), Tag("(array)")],
        Discriminator(shape),
    ]
    instructions: str | None = None
    stream_options: EventOptions | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=128)] | None = None
    tool_choice: (
        Annotated[
            Annotated[Literal["none", "auto", "required"], Tag("(string)")] | Annotated[ChosenTool, Tag("(object)")],
            Discriminator(shape),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    # They change nothing here, as those of `Hosted`.
    reasoning: Any = None
    max_tool_calls: int | None = None
