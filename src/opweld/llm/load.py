"""From a file or folder to a model that runs: weights read, compiled, and a cache that fits into memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from opweld.backends import target_of
from opweld.build.artifact import WEIGHTS
from opweld.compile import Model, compile
from opweld.errors import OptionError, ShortageError
from opweld.llm.compiled import CompiledRunner
from opweld.llm.config import Config
from opweld.llm.encoder import STEP
from opweld.llm.encoder_config import EncoderConfig
from opweld.llm.files import Opened, OpenedEncoder, open_encoder, open_model
from opweld.llm.memory import Memory, memory_for
from opweld.llm.source import STATES, DecoderSource, EncoderSource
from opweld.llm.step import Progress
from opweld.llm.work import Division
from opweld.tensor.dtype import DType

if TYPE_CHECKING:
    from opweld.build.cache import Cache

BLOCK = 32
"""Tokens of a block of the cache."""


PROGRAMS, TILE = 256, 32
"""On a GPU: programs among which the keys of few sequences are divided, and queries times heads of one."""

Precision: TypeAlias = Literal["fp32", "bf16", "int8"]
CacheType: TypeAlias = Literal["f32", "f16", "bf16"]
CACHES: dict[str, DType] = {"f32": DType.F32, "f16": DType.F16, "bf16": DType.BF16}
"""What keys and values may be kept as."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Loaded:
    """A language model that runs.

    Attributes:
        opened: its files: name, configuration, tokenizer, defaults of sampling. runner: computes steps.
        memory: what it takes.
    """

    opened: Opened
    runner: CompiledRunner
    memory: Memory

    @property
    def config(self) -> Config:
        """What it computes."""
        return self.opened.config


@dataclass(frozen=True)
class LoadedEncoder:
    """A compiled encoder.

    Attributes:
        opened: its files: name, configuration, tokenizer. model: its graph, see `llm/encoder_graph.py`.
        context: the most tokens of a text. weights: their bytes.
    """

    opened: OpenedEncoder
    model: Model
    context: int
    weights: int


def load(
    path: str | os.PathLike[str],
    *,
    memory: int | None = None,
    threads: int | None = None,
    context: int | None = None,
    cache: CacheType | None = None,
    target: str = "native",
    precision: Precision | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Loads a language model: a .gguf file, a folder of Hugging Face, Optimum or ONNX Runtime GenAI.

    Args:
        memory: bytes for weights and cache; where None, a cache of four whole contexts, if half of the memory that is
            free has room for it.
        threads: at most so many a step; all processors where None.
        context: the most tokens of a sequence; what the model was made for where None.
        cache: what keys and values are kept as: f32 as they are computed, f16 or bf16 rounded, in half of the memory.
            None: bf16 where `precision` rounds operands, else f32.
        target: what it is compiled for, as `opweld.compile` takes it; on a GPU ("cuda"), integers in blocks are decoded
            when they are loaded.
        precision: what operands of products may be rounded to: fp32, which rounds nothing, bf16, or, on a
            processor, int8: of products by integers in blocks, in groups of 256 (`tensor/rounded.py`), and to bf16
            those of attention where `cache` is bf16. Where None, bf16 on a GPU.

    Raises ModelError and UnsupportedError as `open_model`, OptionError for a context that the model was not made for,
    for a cache or a precision that is not there and for int8 on a GPU, ShortageError where the memory has no room for
    one sequence.
    """
    on_gpu = target_of(target).kind == "gpu"
    precision = precision_name(precision or ("bf16" if on_gpu else "fp32"))
    cache = cache_type(cache or ("f32" if precision == "fp32" else "bf16"))
    opened = open_model(Path(path), context)
    config = opened.config
    longest = _longest(config, context)
    model = compiled(opened, threads=threads, cache=cache, target=target, precision=precision, progress=progress)
    weights = (model.session.folder / WEIGHTS).stat().st_size
    free = model.session.free_memory() if on_gpu and memory is None else None
    found = memory_for(config, weights, BLOCK, longest, memory, CACHES[cache].bytes, free)
    if found.blocks < 1:
        raise ShortageError(
            f"{opened.name} takes {found.weights} bytes, and {found.block} for each {BLOCK} tokens of its cache: "
            f"there is no room for them; give it more memory, or take a smaller model"
        )
    division = division_for_gpu(config) if on_gpu else None
    runner = CompiledRunner(model, config, BLOCK, found.blocks, min(longest, found.blocks * BLOCK), division)
    return Loaded(opened, runner, found)


def cache_type(name: str) -> CacheType:
    """The name of a type that keys and values may be kept as. Raises OptionError for another."""
    if name not in CACHES:
        raise OptionError(f"cache is {name!r}, expected one of {', '.join(CACHES)}")
    return cast("CacheType", name)


def precision_name(name: str) -> Precision:
    """The name of what operands of products may be rounded to. Raises OptionError for another."""
    if name not in PRECISIONS:
        raise OptionError(f"precision is {name!r}, expected one of {', '.join(PRECISIONS)}")
    return name


def compiled(
    opened: Opened,
    *,
    threads: int | None = None,
    cache: CacheType = "f32",
    target: str = "native",
    precision: Precision = "fp32",
    progress: Progress | None = None,
) -> Model:
    """The compiled graph of a model, from the cache where it is there."""
    on_gpu = target_of(target).kind == "gpu"
    rounded = precision == "int8"
    if rounded and on_gpu:
        raise OptionError("precision is 'int8', which is for processors; expected fp32 or bf16 on a GPU")
    # Attention rounds what it multiplies to the type of its keys and values only where products may round it.
    paired = cache == "bf16" and precision != "fp32" and not on_gpu and opened.config.head_size % 2 == 0
    source = DecoderSource(
        opened.config, opened.weights, BLOCK, _identity(opened), CACHES[cache], on_gpu, rounded, paired
    )
    return compile(
        source,
        progress=progress,
        states=STATES,
        dim_hints=HINTS,
        threads=threads or 0,
        target=target,
        precision="fp32" if rounded else precision,
    )


def division_for_gpu(config: Config) -> Division:
    """The work of attention for about two programs a multiprocessor, of whole tiles of queries, in steps of few
    sizes: each size is a graph."""
    return Division(PROGRAMS // 4, max(1, TILE // (config.heads // config.kv_heads)), padded=True, together=False)


def load_encoder(
    path: str | os.PathLike[str],
    *,
    memory: int | None = None,
    threads: int | None = None,
    context: int | None = None,
    progress: Progress | None = None,
) -> LoadedEncoder:
    """Loads an encoder from a folder of Hugging Face.

    Args:
        memory: bytes that its weights may take. threads, context: see `load`; context is that of a text.

    Raises ModelError and UnsupportedError as `open_encoder`, OptionError for a context that the model was not made for,
    ShortageError where the memory has no room for the weights.
    """
    opened = open_encoder(Path(path))
    longest = _longest(opened.config, context)
    source = EncoderSource(opened.config, opened.weights, BLOCK, _identity(opened))
    model = compile(source, progress=progress, dim_hints=ENCODER_HINTS, threads=threads or 0)
    weights = (model.session.folder / WEIGHTS).stat().st_size
    if memory is not None and weights > memory:
        raise ShortageError(
            f"the weights of {opened.name} take {weights} bytes, more than the {memory} that it may have; give it more "
            "memory, or take a smaller model"
        )
    return LoadedEncoder(opened, model, longest, weights)


def _longest(config: Config | EncoderConfig, context: int | None) -> int:
    longest = config.context if context is None else context
    if not 1 <= longest <= config.context:
        raise OptionError(f"context is {longest}, expected 1 to {config.context}, which the model was made for")
    return longest


def _identity(opened: Opened | OpenedEncoder) -> Callable[[Cache], str]:
    """A hash of the configuration and of the files."""

    def identity(cache: Cache) -> str:
        found = hashlib.sha256(opened.config.identity())
        for file in opened.files:
            found.update(cache.file_digest(file).encode())
        return found.hexdigest()

    return identity


HINTS = {"T": 1, "W": 8, "E": 64, "P": 1, "L": 1, "blocks": 256}
"""Sizes that steps are compiled for: one sequence that decodes waits for its weights, all others compute more for each
byte of them."""
ENCODER_HINTS = {"T": STEP, "W": 768, "E": 32, "P": STEP, "blocks": 32}
"""Sizes of a step of an encoder: a few dozen short texts."""

__all__ = ["BLOCK", "Loaded", "LoadedEncoder", "compiled", "load", "load_encoder"]
