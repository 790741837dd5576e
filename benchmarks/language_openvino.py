"""A language model beside OpenVINO GenAI, by turns in one process: prompts, decoding, and eight clients at once.

    python -m benchmarks.language_openvino single --threads 1 2     a prompt of 505, 32 tokens behind 125
    python -m benchmarks.language_openvino single --prompts --contexts 4096 --rounds 1
    python -m benchmarks.language_openvino clients --rounds 3       prompts of 200 to 2,000, answers of 100 tokens

`pip install openvino-genai==2026.4.1.0`. Both read the same GGUF file; tokens of prompts are random, no prompt comes
twice, and answers are greedy and of one length. OpenVINO runs by its defaults (which it prints) in each way that it
has, of which the faster one is its figure: continuous batching step by step, without a prefix cache, with each --batch
as its `max_num_batched_tokens`; and, for one request, `LLMPipeline.generate` on its two backends, a stateful model
(SDPA) and paged attention (PA). opweld is stepped through its engine, with each --budget, the first its default.
Between tokens is the time from one token of a request to its next, as whoever waits for it has it.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np

from benchmarks.zoo import fetch
from opweld.llm.engine import Engine
from opweld.llm.load import Loaded, Precision, load
from opweld.llm.requests import Delta, Request, Sampling
from opweld.llm.settings import Settings

PAUSE = 0.2
"""Seconds before a runtime's turn: idle threads spin for a while."""
CACHE_GB = 2

Times: TypeAlias = list[list[float]]
"""Of each request: seconds from the beginning to each token of its answer."""
Answering: TypeAlias = Callable[[Sequence[Sequence[int]], int], Times]
"""Answers prompts, all at once, with as many tokens each."""


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("single", "clients"))
    parser.add_argument("--model", type=Path, help="a GGUF file; SmolLM2 from its wheel where it is left out")
    parser.add_argument("--precision", choices=get_args(Precision), nargs="+", default=["int8"])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, nargs="*", default=[505], help="lengths of prompts of one request")
    parser.add_argument("--contexts", type=int, nargs="*", default=[125], help="and of those that it decodes behind")
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 2048], help="tokens of a step of OpenVINO")
    parser.add_argument("--budget", type=int, nargs="+", default=[Settings().budget], help="and of opweld")
    given = parser.parse_args()
    model = given.model or fetch.path("smollm2")
    _print_defaults()
    for threads in given.threads:
        runtimes: dict[str, Answering] = {}
        for precision in given.precision:
            loaded = load(model, threads=threads, precision=precision)
            runtimes |= {f"{precision}, {budget}": _opweld(loaded, budget) for budget in given.budget}
        runtimes |= {f"OpenVINO, {batch}": _openvino_batches(model, threads, batch) for batch in given.batch}
        if given.part == "single":
            runtimes |= {f"OpenVINO, {one}": _openvino_generate(model, threads, one) for one in ("SDPA", "PA")}
            single(runtimes, threads, given.rounds, given.prompts, given.contexts)
        else:
            clients(runtimes, threads, given.rounds)


def _opweld(loaded: Loaded, budget: int) -> Answering:
    def answer(prompts: Sequence[Sequence[int]], tokens: int) -> Times:
        engine = Engine(loaded.runner, loaded.opened.tokenizer, Settings(budget=budget))
        times: Times = [[] for _ in prompts]
        begin = time.perf_counter()
        for number, prompt in enumerate(prompts):
            engine.add(Request(str(number), tuple(prompt), Sampling(temperature=0, limit=tokens, to_the_limit=True)))
        while engine.unfinished:
            for id, told in engine.step():
                assert isinstance(told, Delta), told
                times[int(id)] += [time.perf_counter() - begin] * len(told.chosen)
        return times

    return answer


def _openvino_batches(model: Path, threads: int, batch: int) -> Answering:
    genai, openvino = importlib.import_module("openvino_genai"), importlib.import_module("openvino")
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.enable_prefix_caching, scheduler.max_num_batched_tokens = CACHE_GB, False, batch
    pipeline = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
    ids = iter(range(1 << 30))

    def answer(prompts: Sequence[Sequence[int]], tokens: int) -> Times:
        config = _greedy(genai, tokens)
        inputs = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        times: Times = [[] for _ in prompts]
        begin = time.perf_counter()
        handles = [pipeline.add_request(next(ids), one, config) for one in inputs]
        while pipeline.has_non_finished_requests():
            pipeline.step()
            for own, handle in zip(times, handles, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        own += [time.perf_counter() - begin] * len(output.generated_ids)
        return times

    return answer


def _openvino_generate(model: Path, threads: int, backend: str) -> Answering:
    genai, openvino = importlib.import_module("openvino_genai"), importlib.import_module("openvino")
    pipeline = genai.LLMPipeline(str(model), "CPU", INFERENCE_NUM_THREADS=threads, ATTENTION_BACKEND=backend)

    class Clock(genai.StreamerBase):
        """When each token came."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []
            self.begin = time.perf_counter()

        def write(self, token: int | Sequence[int]) -> Any:
            came = time.perf_counter() - self.begin
            self.times += [came] * (1 if isinstance(token, int) else len(token))
            return genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    def answer(prompts: Sequence[Sequence[int]], tokens: int) -> Times:
        (prompt,) = prompts
        ids, config, clock = openvino.Tensor(np.array([prompt], np.int64)), _greedy(genai, tokens), Clock()
        pipeline.generate(ids, config, clock)
        return [clock.times]

    return answer


def _greedy(genai: Any, tokens: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = tokens
    config.ignore_eos, config.apply_chat_template = True, False
    return config


def _print_defaults() -> None:
    openvino = importlib.import_module("openvino")
    core = openvino.Core()
    opset = importlib.import_module("openvino.opset13")
    one = opset.parameter([1], np.float32)
    compiled = core.compile_model(openvino.Model([opset.relu(one)], [one]), "CPU")
    names = ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE")
    print("OpenVINO:", ", ".join(f"{name} {compiled.get_property(name)}" for name in names), flush=True)


def single(
    runtimes: dict[str, Answering], threads: int, rounds: int, prompts: Sequence[int], contexts: Sequence[int]
) -> None:
    """Tokens a second of prompts, and behind contexts, of these lengths; medians of rounds: two prompts, 32 tokens."""
    rng = np.random.default_rng(0)
    rates: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):  # the first one is not counted
        for name, answer in runtimes.items():
            time.sleep(PAUSE)
            for length in [length for length in prompts for _ in range(2)]:
                (prompt,) = answer([_prompt(rng, length)], 1)
                rates.setdefault((f"a prompt of {length}", name), []).append(length / prompt[0])
            for length in contexts:
                (answered,) = answer([_prompt(rng, length)], 33)
                rates.setdefault((f"behind {length}", name), []).append(32 / (answered[-1] - answered[0]))
        if not number:
            rates.clear()
    for (title, name), found in sorted(rates.items()):
        print(
            f"{threads} threads, {title:15} {name:14} {statistics.median(found):7.1f} tokens/s, best {max(found):7.1f}",
            flush=True,
        )


def clients(runtimes: dict[str, Answering], threads: int, rounds: int) -> None:
    """Requests a second of eight at once, and how long they wait for a token."""
    rng = np.random.default_rng(1)
    rates: dict[str, list[float]] = {name: [] for name in runtimes}
    gaps: dict[str, list[float]] = {name: [] for name in runtimes}
    for _ in range(rounds):
        prompts = [_prompt(rng, int(size)) for size in np.linspace(200, 2000, 8)]
        for name, answer in runtimes.items():
            time.sleep(PAUSE)
            times = answer(prompts, 100)
            assert all(len(own) == 100 for own in times)
            rates[name].append(len(prompts) / max(own[-1] for own in times))
            gaps[name] += [gap for own in times for gap in np.diff(own)]
    for name, found in rates.items():
        p50, p99 = np.percentile(gaps[name], [50, 99]) * 1e3
        print(
            f"{threads} threads, eight clients  {name:14} {statistics.median(found):6.3f} requests/s, best "
            f"{max(found):6.3f}; between tokens p50 {p50:5.1f} ms, p99 {p99:6.1f} ms",
            flush=True,
        )


def _prompt(rng: np.random.Generator, size: int) -> list[int]:
    return [int(token) for token in rng.integers(1000, 40000, size)]


if __name__ == "__main__":
    main()
