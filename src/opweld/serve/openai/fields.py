"""Fields of requests: what OpenAI's API takes, and those that vLLM added and others take too.

A field that is not here is refused, as OpenAI does: who misspells one is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

_INT64 = 1 << 63

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]

SchemaName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class Fields(BaseModel):
    """An object of a request."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


def shape(value: Any) -> str | None:
    """Tag of what may be of several types of JSON; objects may be made already."""
    tags = {str: "(string)", list: "(array)", dict: "(object)", BaseModel: "(object)"}
    return next((tag for kind, tag in tags.items() if isinstance(value, kind)), None)


def _prompt_shape(value: Any) -> str | None:
    """Tag of a prompt: by the first element where it is an array."""
    if not isinstance(value, list):
        return "(string)" if isinstance(value, str) else None
    first = next(iter(cast("list[object]", value)), "")
    return "(strings)" if isinstance(first, str) else "(tokens)" if isinstance(first, int) else "(arrays)"


TokenId = Annotated[int, Field(ge=0)]
Prompt = Annotated[
    Annotated[str, Tag("(string)")]
    | Annotated[list[str], Field(min_length=1), Tag("(strings)")]
    | Annotated[list[TokenId], Tag("(tokens)")]
    | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Tag("(arrays)")],
    Discriminator(_prompt_shape),
]
"""One text or several, as strings or as tokens."""


class Part(Fields):
    """A part of a message's content: text; other kinds are told that they are not served."""

    type: Literal["text", "refusal", "image_url", "input_audio", "file"]
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None


class CalledFunction(Fields):
    """The function of a call that a model made: its arguments are JSON in a string."""

    name: str
    arguments: str


class Call(Fields):
    """A call that a model made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Fields):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[
            Annotated[str, Tag("(string)")] | Annotated[list[Part], Field(min_length=1), Tag("(array)")],
            Discriminator(shape),
        ]
        | None
    ) = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[Call], Field(max_length=128)] | None = None
    tool_call_id: str | None = None
    annotations: Any = None
    audio: None = None
    function_call: None = None


class Function(Fields):
    """A function that a model may call."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Fields):
    """A tool: a function."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Fields):
    """The name of a function."""

    name: str


class ToolChoice(Fields):
    """The function that must be called."""

    type: Literal["function"]
    function: ChosenFunction


class JsonSchema(Fields):
    """A schema that an answer must fit."""

    name: SchemaName
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Fields):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(Fields):
    """What a stream has beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class Sampled(Fields):
    """What chat, completions and responses share."""

    model: str
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    user: str | None = None
    # beyond OpenAI's for some of them
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None


class Hosted(Fields):
    """Where and how OpenAI runs a model, which changes nothing here."""

    store: bool | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


class Generation(Sampled):
    """What chat and completions share."""

    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: (
        Annotated[
            Annotated[str, Tag("(string)")] | Annotated[list[str], Field(max_length=4), Tag("(array)")],
            Discriminator(shape),
        ]
        | None
    ) = None
    # beyond OpenAI's
    ignore_eos: bool | None = None


class ChatBody(Hosted, Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(min_length=1, max_length=128)] | None = None
    tool_choice: (
        Annotated[
            Annotated[Literal["none", "auto", "required"], Tag("(string)")] | Annotated[ToolChoice, Tag("(object)")],
            Discriminator(shape),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None
    # They change nothing here either.
    prediction: Any = None
    reasoning_effort: str | None = None
    verbosity: str | None = None


class CompletionBody(Generation):
    """POST /v1/completions."""

    prompt: Prompt
    best_of: Annotated[int, Field(ge=1)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    suffix: str | None = None


class EmbeddingBody(Fields):
    """POST /v1/embeddings."""

    model: str
    input: Prompt
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None
    truncate: bool | None = None


class Document(Fields):
    """A document to rank."""

    text: str


class RerankBody(Fields):
    """POST /v1/rerank, as Cohere and Jina have it."""

    model: str
    query: str
    documents: Annotated[
        list[Annotated[Annotated[str, Tag("(string)")] | Annotated[Document, Tag("(object)")], Discriminator(shape)]],
        Field(min_length=1),
    ]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    truncate: bool | None = None
