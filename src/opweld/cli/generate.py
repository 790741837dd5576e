"""`opweld generate`: a language model continues a text."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.cli.answering import answer, write
from opweld.cli.language import (
    CacheOption,
    ContextOption,
    MemoryOption,
    ModelArgument,
    PrecisionOption,
    TargetOption,
    ThreadsOption,
    opened,
)
from opweld.cli.sampled import (
    MaxTokensOption,
    MinPOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    sampling_of,
)
from opweld.cli.speed import Speed, bandwidth_of


def generate(
    model: ModelArgument,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The text; - reads standard input.", show_default=False)
    ],
    *,
    chat: Annotated[bool, typer.Option("--chat", help="The text is a message, in the model's chat template.")] = False,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="Ends the answer; repeat for more.", show_default=False),
    ] = None,
    seed: SeedOption = None,
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    cache: CacheOption = None,
    target: TargetOption = "native",
    precision: PrecisionOption = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the answer and its speed as JSON; - for stdout alone.",
                     show_default=False),
    ] = None,
) -> None:  # fmt: skip
    """Continue a text with a language model.

    \b
    opweld generate model.gguf "Once upon a time" --max-tokens 100
    opweld generate SmolLM2-135M-Instruct "What is a cache?" --chat
        as a message to a model that chats
    opweld generate model.gguf "Once upon a time" --target cuda
        on a GPU of NVIDIA
    opweld generate model.gguf - --temperature 0 < notes.txt

    The text appears as it comes; Ctrl-C ends it. Standard error tells the speed beside what the machine's memory
    allows, where `opweld machine` has measured that. A model is compiled the first time, which takes a while.
    """
    arguments.check_files(model, json=json)
    text = sys.stdin.read() if prompt == "-" else prompt
    alone = str(json) == "-"
    with opened(
        model, memory=memory, threads=threads, context=context, cache=cache, target=target, precision=precision
    ) as language:
        sampling = sampling_of(
            language.sampling,
            limit=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            stop=tuple(stop) if stop else None,
            seed=seed,
        )
        tokenizer = language.tokenizer
        tokens = tokenizer.chat([{"role": "user", "content": text}]) if chat else tokenizer.encode(text)
        speed, told, finish = Speed(language, len(tokens)), list[str](), "abort"

        def tell(piece: str) -> None:
            told.append(piece)
            if not alone:
                write(piece)

        with suppress(KeyboardInterrupt):
            finish = asyncio.run(answer(language, tokens, sampling, speed, tell))
        bandwidth = bandwidth_of(language, threads)
    if not alone:
        print(flush=True)
    print(f"opweld: {speed.line(bandwidth)}", file=sys.stderr)
    if json is not None:
        found = {"model": language.name, "text": "".join(told), "finish": finish}
        show.write_json(found | speed.told(bandwidth), json)
    if finish == "abort":
        raise typer.Exit(130)
