"""Language models for the command line: opened in one place, by options that several commands share."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import show
from opweld.errors import OptionError, UnsupportedError
from opweld.options import byte_count

if TYPE_CHECKING:
    from opweld.llm.encoder import Encoder
    from opweld.llm.requests import Sampling
    from opweld.serve.openai.protocols import Engine, Tokenizer

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A .gguf file, or a folder with config.json or genai_config.json.", show_default=False
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="For a model's weights and cache, as 8G; decided where not given.",
        show_default=False,
    ),
]  # fmt: skip
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="At most; all processors where not given.",
                             show_default=False),
]  # fmt: skip
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context", metavar="TOKENS", min=1, help="Of a prompt and its answer together; the model's where not given.",
        show_default=False,
    ),
]  # fmt: skip


CacheOption = Annotated[
    str | None,
    typer.Option(
        "--cache", metavar="TYPE",
        help="What keys and values are kept as: f32, or f16 or bf16, half of the memory; if not given, bf16 on a GPU "
        "and with int8.",
        show_default=False,
    ),
]  # fmt: skip
TargetOption = Annotated[
    str,
    typer.Option(
        "--target", metavar="NAME",
        help="What computes it: native, this processor, or cuda, a GPU, where weights are bf16, integers decoded.",
    ),
]  # fmt: skip
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision", metavar="NAME",
        help="What operands of products are rounded to: fp32, as they are, bf16, or int8, on a processor, where "
        "weights are integers; fp32 if not given, bf16 on a GPU.",
        show_default=False,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class LanguageModel:
    """A model that is ready to answer.

    Attributes:
        name: that of its file or folder.
        context: the most tokens of a prompt and its answer.
        sampling: how tokens are chosen where nobody says.
        weight_bytes: read for each step. token_bytes: of the cache, for each token of a sequence.
        cache_tokens: that the cache has room for.
        on_gpu: whether a GPU computes it.
    """

    name: str
    tokenizer: Tokenizer
    engine: Engine
    context: int
    sampling: Sampling
    weight_bytes: int
    token_bytes: float
    cache_tokens: int
    on_gpu: bool = False


def load(
    path: Path,
    *,
    memory: str | None,
    threads: int | None,
    context: int | None,
    cache: str | None,
    target: str = "native",
    precision: str | None = None,
    queue: int = 0,
) -> LanguageModel:
    """Loads a model, which may compile it, and starts its engine; shows how far it is.

    queue: how many requests may wait for others."""
    from opweld.llm.async_engine import AsyncEngine
    from opweld.llm.engine import Engine
    from opweld.llm.load import cache_type, precision_name
    from opweld.llm.load import load as load_runner
    from opweld.llm.settings import Settings

    size = None if memory is None else byte_count("--memory", memory)
    with show.progress() as progress:
        loaded = load_runner(
            path,
            memory=size,
            threads=threads,
            context=context,
            cache=None if cache is None else cache_type(cache),
            target=target,
            precision=None if precision is None else precision_name(precision),
            progress=progress,
        )
    runner, took = loaded.runner, loaded.memory
    return LanguageModel(
        name=loaded.opened.name,
        tokenizer=loaded.opened.tokenizer,
        engine=AsyncEngine(Engine(runner, loaded.opened.tokenizer, Settings(queue=queue))),
        context=runner.context,
        sampling=loaded.opened.generation,
        weight_bytes=took.weights,
        token_bytes=took.block / runner.block_size,
        cache_tokens=took.blocks * runner.block_size,
        on_gpu=runner.model.session.manifest.backend == "cuda",
    )


def load_encoder(path: Path, *, memory: str | None, threads: int | None, context: int | None) -> Encoder:
    """Loads an encoder, which may compile it; shows how far it is."""
    from opweld.llm.encoder import Encoder

    size = None if memory is None else byte_count("--memory", memory)
    with show.progress() as progress:
        return Encoder(path, memory=size, threads=threads, context=context, progress=progress)


@contextmanager
def opened(
    path: Path,
    *,
    memory: str | None,
    threads: int | None,
    context: int | None,
    cache: str | None,
    target: str = "native",
    precision: str | None = None,
) -> Generator[LanguageModel]:
    """A model while the block runs."""
    check_installed("tokenizers", "jinja2", extra="llm")
    model = load(path, memory=memory, threads=threads, context=context, cache=cache, target=target, precision=precision)
    try:
        yield model
    finally:
        asyncio.run(model.engine.close(0))


def check_installed(*packages: str, extra: str) -> None:
    """Raises UnsupportedError where a package of an extra is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"this needs {', '.join(missing)}: pip install 'opweld[{extra}]'")


def named(models: Iterable[str]) -> list[tuple[str | None, Path]]:
    """Names and paths of models that are given as PATH or NAME=PATH; a path that is there is one, whatever it holds."""
    found: list[tuple[str | None, Path]] = []
    for text in models:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            found.append((None, Path(text)))
        elif name and path:
            found.append((name, Path(path)))
        else:
            raise OptionError(f"{text!r} is not NAME=MODEL")
    return found
