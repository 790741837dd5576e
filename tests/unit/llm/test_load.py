"""From a file to answers: what is loaded says what the file's weights make likeliest, and fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from opweld.cli import language
from opweld.errors import OptionError, ShortageError
from opweld.llm import LLM, Sampling
from opweld.llm.files import open_model
from opweld.llm.load import BLOCK, load
from opweld.llm.memory import memory_for
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.decoders import PLAIN
from tests.unit.llm.ggufs import made

GREEDY = Sampling(temperature=0, limit=12, to_the_limit=True)
PROMPT = "the art"

ARCHITECTURES = [
    "llama",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma2", "gemma3", "phi3", "gpt2")
    ),
]


def written(architecture: str, folder: Path, kind: gguf.GGMLQuantizationType | None = None) -> Path:
    """A file of random weights; matrices of integers of a kind."""
    model = made(architecture)
    names = [name for name, value in model.tensors.items() if value.ndim == 2 and value.shape[1] % 32 == 0]
    return model.write(folder / "model.gguf", dict.fromkeys(names, kind) if kind is not None else None)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_says_what_is_likeliest(tmp_path: Path, architecture: str) -> None:
    path = written(architecture, tmp_path)
    llm = LLM(path, threads=2)
    (answer,) = llm.generate(PROMPT, GREEDY)
    _check(path, answer.tokens)
    assert (len(answer.tokens), answer.finish) == (12, "length")


@pytest.mark.parametrize("kind", ["Q4_1", pytest.param("Q5_0", marks=pytest.mark.slow)])
def test_of_integers_too(tmp_path: Path, kind: str) -> None:
    path = written("llama", tmp_path, gguf.GGMLQuantizationType[kind])
    (answer,) = LLM(path, threads=2).generate([PROMPT], GREEDY)
    _check(path, answer.tokens)


def _check(path: Path, answer: list[int], tolerance: float = 1e-4) -> None:
    """Each token is the likeliest one in float64, but where two are as likely to what is rounded."""
    opened = open_model(path)
    prompt = opened.tokenizer.encode(PROMPT)
    logits = Decoder(opened.config, opened.weights).logits([*prompt, *answer])[len(prompt) - 1 : -1]
    logits = logits[:, : opened.tokenizer.vocabulary]  # rows beyond it are no tokens
    lacking = logits.max(-1) - logits[np.arange(len(answer)), answer]
    assert lacking.max() < tolerance * np.abs(logits).max()


def test_a_cache_fits_into_what_is_given(tmp_path: Path) -> None:
    path = written("llama", tmp_path)
    model = load(path)
    least = model.memory.weights + model.memory.block
    assert load(path, memory=least).runner.blocks == 1
    assert load(path, memory=least).runner.context == BLOCK
    with pytest.raises(ShortageError, match="no room"):
        load(path, memory=least - 1)
    for context in (0, model.config.context + 1):
        with pytest.raises(OptionError, match="expected 1 to"):
            load(path, context=context)


def test_precisions_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = written("llama", tmp_path, gguf.GGMLQuantizationType.Q4_1)
    with pytest.raises(OptionError, match="'int4', expected one of fp32, bf16, int8"):
        load(path, precision="int4")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match=r"int8.*processors; expected fp32 or bf16"):
        load(path, precision="int8", target="cuda")
    with pytest.raises(OptionError, match="'int4', expected one of fp32, bf16, int8"):
        language.load(path, memory=None, threads=None, context=None, cache=None, precision="int4")


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_answers_rounded_to_8_bits_are_near_the_likeliest(tmp_path: Path, kind: str) -> None:
    path = written("llama", tmp_path, gguf.GGMLQuantizationType[kind])
    (answer,) = LLM(path, threads=2, precision="int8").generate(PROMPT, GREEDY)
    # Elements are off by up to 1/254 of the largest of their group, in two layers and the head.
    _check(path, answer.tokens, tolerance=0.05)


def test_free_memory_limits_a_cache_that_nobody_sized(monkeypatch: pytest.MonkeyPatch) -> None:
    def free(amount: int) -> Any:
        monkeypatch.setattr("opweld.llm.memory.free_memory", lambda: amount)

    free(1 << 40)
    whole = memory_for(PLAIN, 1000, BLOCK, PLAIN.context, None)
    assert whole.blocks == 4 * PLAIN.context // BLOCK
    # Two layers, two heads of 8 features, of which values are padded to 16.
    assert whole.block == 4 * 2 * 2 * (8 + 16) * BLOCK
    assert whole.total == 1000 + whole.blocks * whole.block
    free(20 * whole.block)
    assert memory_for(PLAIN, 1000, BLOCK, PLAIN.context, None).blocks == 10
    free(0)
    assert memory_for(PLAIN, 1000, BLOCK, PLAIN.context, None).blocks == 0
