"""`opweld chat`: a conversation with a language model."""

from __future__ import annotations

import asyncio
import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli.answering import write
from opweld.cli.conversation import Conversation
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
from opweld.cli.speed import bandwidth_of
from opweld.errors import InputError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

_HELP = "/reset begins anew, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(
    model: ModelArgument,
    *,
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="TEXT", help="What the model is told before all else.", show_default=False),
    ] = None,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    cache: CacheOption = None,
    target: TargetOption = "native",
    precision: PrecisionOption = None,
) -> None:
    """Talk with a language model.

    \b
    opweld chat model.gguf
    opweld chat SmolLM2-135M-Instruct --system "You are a pirate." --temperature 0.7

    \b
    /reset   begins anew
    /exit    leaves, as Ctrl-D does
    Ctrl-C   stops an answer; what came of it stays in the conversation

    What was said before is in the cache: a long conversation answers as soon as a short one. On a pipe each line of
    standard input is a message.
    """
    from rich.console import Console

    notes = Console(stderr=True, highlight=False)
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
            seed=seed,
        )
        conversation = Conversation(language, sampling, system)
        notes.print(f"{language.name}, {language.context} tokens of context: {_HELP}", style="dim", markup=False)
        bandwidth = bandwidth_of(language, threads)
        with asyncio.Runner() as runner:
            while (line := _line(notes)) is not None:
                if line == "/exit":
                    break
                if line == "/reset":
                    conversation.reset()
                elif line.startswith("/"):
                    notes.print(_HELP, style="dim")
                elif line:
                    _say(conversation, line, runner, notes, bandwidth)


def _line(notes: Console) -> str | None:
    """The next message; None at the end of the input."""
    try:
        if sys.stdin.isatty():
            with suppress(ImportError):
                importlib.import_module("readline")  # gives `input` its history and its keys
            notes.print("> ", end="", style="bold")
        return input().strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        notes.print()
        return ""


def _say(
    conversation: Conversation, line: str, runner: asyncio.Runner, notes: Console, bandwidth: float | None
) -> None:
    try:
        speed = runner.run(conversation.say(line, write))
    except KeyboardInterrupt:
        print(flush=True)
        notes.print("stopped", style="dim")
    except (InputError, OptionError) as error:
        notes.print(f"{error}; /reset begins anew", style="red", markup=False)
    else:
        print(flush=True)
        notes.print(speed.line(bandwidth), style="dim", markup=False)
