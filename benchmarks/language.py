"""Language models: whether their answers are right, and how fast they come, beside llama.cpp.

    python -m benchmarks.language greedy                  20 prompts of 200 tokens against transformers in float32
    python -m benchmarks.language perplexity TEXT         of a text, beside llama.cpp on the same file
    python -m benchmarks.language speed --threads 1 2     decoding behind 128 and 4,096 tokens, a prompt of 512
    python -m benchmarks.language batch                   8 requests at once
    python -m benchmarks.language context                 a token behind 1,024 to 1,048,576 others, of a tiny model

The model is SmolLM2-135M-Instruct, from its wheel; --model names another GGUF file. llama.cpp takes part where
`llama_cpp` can be imported: `pip install llama-cpp-python==0.3.36` builds it for this processor. Runtimes take turns
and pause in between, since idle threads of either spin.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.long_context import context
from benchmarks.zoo import fetch
from opweld.analysis.ceilings import measure as measure_machine
from opweld.llm.llm import LLM
from opweld.llm.load import CacheType, Loaded, load
from opweld.llm.requests import Sampling
from opweld.llm.step import Span
from opweld.llm.weights import Blocked, Weight

PAUSE = 0.1
"""Seconds before a runtime's turn."""

ASKED = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain what a compiler does.",
    "List five kinds of trees.",
    "How do I boil an egg?",
    "Tell me a story about a fox and a crow.",
    "What is the difference between a list and a tuple in Python?",
    "Summarise the plot of Romeo and Juliet.",
    "Who wrote the Odyssey?",
    "Write a polite letter that declines an invitation.",
    "What is seven times eight?",
    "Name the planets of the solar system.",
    "Why is the sky blue?",
    "Give me three ideas for a birthday present.",
    "Translate 'good morning' into Spanish.",
    "What should I pack for a week in the mountains?",
    "Describe how a bicycle stays upright.",
    "What are the benefits of exercise?",
    "Write a function that adds two numbers.",
    "How does photosynthesis work?",
)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("greedy", "perplexity", "speed", "batch", "context"))
    parser.add_argument("text", nargs="?", type=Path, help="the text of perplexity")
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2 from its wheel where it is left out")
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 4096])
    parser.add_argument("--cache", choices=get_args(CacheType), default="f32", help="of speed; llama.cpp's is f16")
    parser.add_argument("--tokens", type=int, default=200, help="of an answer")
    given = parser.parse_args()
    if given.part == "context":
        context([1 << n for n in range(10, 21)], given.threads[0])
        return
    model = given.model or fetch.path("smollm2")
    if given.part == "greedy":
        greedy(model, given.tokens)
    elif given.part == "perplexity":
        perplexity(model, given.text)
    elif given.part == "speed":
        for threads in given.threads:
            speed(model, threads, given.contexts, given.cache)
    else:
        batch(model, given.threads[0])


# ----------------------------------------------------------------------------------------------------------- answers


def greedy(model: Path, tokens: int) -> None:
    """Whether every token of answers is the one that transformers finds likeliest after those before it, in float32 and
    from the same weights; answers are computed all at once."""
    loaded = load(model)
    prompts = [loaded.opened.tokenizer.chat([{"role": "user", "content": text}]) for text in ASKED]
    llm = LLM.of(loaded.runner, loaded.opened.tokenizer)
    answers = llm.generate(prompts, Sampling(temperature=0, limit=tokens, to_the_limit=True))
    reference = _transformers(loaded)
    wrong = 0
    for text, prompt, answer in zip(ASKED, prompts, answers, strict=True):
        logits = reference([*prompt, *answer.tokens])[len(prompt) - 1 : -1]
        right = logits.argmax(-1)
        differs = np.flatnonzero(right != np.asarray(answer.tokens))
        best = np.sort(logits, -1)
        margin = (best[:, -1] - best[:, -2]).min()
        wrong += len(differs) > 0
        where = f"token {differs[0]} differs" if len(differs) else "equal"
        print(f"{where:20} of {len(answer.tokens)} tokens, least margin {margin:.1e}: {text}")
    print(f"{len(ASKED) - wrong} of {len(ASKED)} answers equal those of transformers in float32")


def _transformers(loaded: Loaded) -> Callable[[Sequence[int]], np.ndarray[Any, Any]]:
    """The logits after each token, by transformers in float32, from the values of the same weights."""
    from tests.unit.llm.test_files import llama_of_transformers

    torch = importlib.import_module("torch")
    model = llama_of_transformers(loaded.opened)

    def logits(tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return model(torch.tensor([list(tokens)])).logits[0].numpy()

    return logits


def perplexity(model: Path, text: Path, window: int = 512) -> None:
    """exp of the mean of -log p of each token of the second half of windows, as llama.cpp's tool has it."""
    loaded = load(model, context=max(window, 512))
    tokens = loaded.opened.tokenizer.encode(text.read_text(encoding="utf-8"))
    windows = [tokens[at : at + window] for at in range(0, len(tokens) - window + 1, window)]
    runner = loaded.runner
    blocks = range(-(-window // runner.block_size))
    ours = [_loss(runner.run([Span(own, 0, blocks, window)]), own) for own in windows]
    print(f"{len(windows)} windows of {window} tokens, {text.name}")
    print(f"opweld      {np.exp(np.mean(ours)):.4f}")
    peer = _llama(model, 2, window, all_logits=True)
    if peer is not None:
        theirs: list[float] = []
        for own in windows:
            peer.reset()
            peer.eval(own)
            theirs.append(_loss(np.asarray(peer.scores[:window]), own))
        print(f"llama.cpp   {np.exp(np.mean(theirs)):.4f}")


def _loss(logits: np.ndarray[Any, Any], tokens: Sequence[int]) -> float:
    half = len(tokens) // 2
    own = logits[half:-1].astype(np.float64)
    own -= own.max(-1, keepdims=True)
    chosen = own[np.arange(len(own)), tokens[half + 1 :]]
    return float(np.mean(np.log(np.exp(own).sum(-1)) - chosen))


# ------------------------------------------------------------------------------------------------------------- speed


def _llama(model: Path, threads: int, context: int, all_logits: bool = False) -> Any:
    """llama.cpp; None where it is not installed."""
    try:
        library = importlib.import_module("llama_cpp")
    except ImportError:
        print("llama.cpp: not installed")
        return None
    return library.Llama(
        str(model),
        n_ctx=context,
        n_threads=threads,
        n_threads_batch=threads,
        n_batch=512,
        logits_all=all_logits,
        verbose=False,
    )


def speed(model: Path, threads: int, contexts: Sequence[int], cache: CacheType) -> None:
    """Seconds of a token behind each context, and of a prompt of 512; medians and leasts of turns."""
    loaded = load(model, threads=threads, cache=cache)
    runner, longest = loaded.runner, max(*contexts, 512) + 64
    tokens = [int(t) for t in np.random.default_rng(0).integers(200, loaded.config.vocabulary, longest)]
    blocks = range(-(-longest // runner.block_size))
    peer = _llama(model, threads, longest + 64)
    machine = measure_machine()
    rate = machine.levels[-1].read.at(threads)
    print(
        f"{machine.target}, {threads} threads; DRAM {rate / 1e9:.1f} GB/s; {bytes_read(loaded) / 1e6:.1f} MB of weights"
    )

    def ours(start: int, count: int) -> float:
        begin = time.perf_counter()
        runner.run([Span(tokens[start : start + count], start, blocks, 1)])
        return time.perf_counter() - begin

    def theirs(start: int, count: int) -> float:
        peer.n_tokens = start
        begin = time.perf_counter()
        peer.eval(tokens[start : start + count])
        return time.perf_counter() - begin

    cases = [(f"decode behind {context}", context, 1, 24) for context in contexts] + [("a prompt of 512", 0, 512, 3)]
    for title, start, count, repeats in cases:
        for run in (ours, theirs) if peer is not None else (ours,):
            for begin in range(0, start, 256):  # llama.cpp forgets what is behind a token that is computed again
                run(begin, min(256, start - begin))
        found: dict[str, list[float]] = {"opweld": [], "llama.cpp": []}
        for _ in range(5):
            for name, run in (("opweld", ours), ("llama.cpp", theirs)):
                if name != "opweld" and peer is None:
                    continue
                time.sleep(PAUSE)
                run(start, count)
                found[name] += [run(start + (n if count == 1 else 0), count) for n in range(repeats)]
        for name, seconds in found.items():
            if seconds:
                per = [count / s for s in seconds]
                part = (
                    f", {statistics.median(per) * bytes_read(loaded, start) / rate:.0%} of DRAM" if count == 1 else ""
                )
                print(f"{title:20} {name:10} {statistics.median(per):8.1f} tokens/s, best {max(per):8.1f}{part}")


def bytes_read(loaded: Loaded, cached: int = 0) -> int:
    """Bytes that a token reads: of weights, as the file has them, but an embedding that it only looks up; and of the
    keys and values of the tokens before it."""
    weights = loaded.opened.weights
    looked_up = {"positions"} | ({"embedding"} if "head" in weights else set())
    total = sum(_bytes(read()) for name, read in weights.items() if name not in looked_up)
    return total + loaded.memory.block * cached // loaded.runner.block_size


def _bytes(weight: Weight) -> int:
    if not isinstance(weight, Blocked):
        return weight.nbytes
    each = 2 if weight.minimums is None else 4
    return weight.codes.size * weight.bits // 8 + weight.scales.size * each


def batch(model: Path, threads: int) -> None:
    """Requests a second of 8 at once, prompts of 200 to 2,000 tokens, answers of 100."""
    loaded = load(model, threads=threads)
    rng = np.random.default_rng(1)
    prompts = [[int(t) for t in rng.integers(200, 40000, int(size))] for size in np.linspace(200, 2000, 8)]
    llm = LLM.of(loaded.runner, loaded.opened.tokenizer)
    begin = time.perf_counter()
    answers = llm.generate(prompts, Sampling(temperature=0, limit=100, to_the_limit=True))
    seconds = time.perf_counter() - begin
    total = sum(len(answer.tokens) for answer in answers)
    print(f"opweld     {len(answers) / seconds:.3f} requests/s, {total / seconds:.1f} tokens/s")
    peer = _llama(model, threads, 2200)
    if peer is None:
        return
    begin = time.perf_counter()
    for prompt in prompts:  # it answers one request after the other
        peer.reset()
        for _, token in zip(range(100), peer.generate(prompt, temp=0.0), strict=False):
            del token
    seconds = time.perf_counter() - begin
    print(f"llama.cpp  {len(prompts) / seconds:.3f} requests/s, one after the other")


if __name__ == "__main__":
    main()
