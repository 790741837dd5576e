"""What answers of language models are measured by, as Prometheus reads it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from opweld.llm.requests import Delta
from opweld.serve.openai.models import Models

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class TokenMetrics:
    """Of the models of one server."""

    def __init__(self, models: Models, own: CollectorRegistry) -> None:
        """own: the server's registry."""
        self._prompt = Counter("opweld_prompt_tokens", "Tokens of prompts", ("model",), registry=own)
        self._cached = Counter("opweld_cached_prompt_tokens", "Those that were cached", ("model",), registry=own)
        self._generated = Counter("opweld_generated_tokens", "Tokens of answers", ("model",), registry=own)
        self._first = Histogram(
            "opweld_time_to_first_token_seconds",
            "From a prompt to the first token of its answer",
            ("model",),
            buckets=_FIRST,
            registry=own,
        )
        self._between = Histogram(
            "opweld_time_between_tokens_seconds",
            "Between tokens of an answer",
            ("model",),
            buckets=_BETWEEN,
            registry=own,
        )
        own.register(_Loads(models))

    def embedded(self, model: str, tokens: int) -> None:
        """Tokens were made vectors of."""
        self._prompt.labels(model).inc(tokens)

    async def measured(self, model: str, prompt: int, answer: AsyncGenerator[Delta]) -> AsyncGenerator[Delta]:
        """The pieces of an answer to a prompt of so many tokens, measured as they come."""
        first, between = self._first.labels(model), self._between.labels(model)
        generated = self._generated.labels(model)
        before, begun = time.perf_counter(), False
        self._prompt.labels(model).inc(prompt)
        async with aclosing(answer):
            async for delta in answer:
                now, tokens = time.perf_counter(), len(delta.chosen)
                if delta.cached:
                    self._cached.labels(model).inc(delta.cached)
                if tokens:
                    generated.inc(tokens)
                    if not begun:
                        first.observe(now - before)
                    for _ in range(tokens if begun else tokens - 1):
                        between.observe((now - before) / tokens if begun else 0.0)
                    before, begun = now, True
                yield delta


class _Loads(Collector):
    """How busy engines are when somebody asks."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        waiting = GaugeMetricFamily("opweld_requests_waiting", "Requests that have not begun", labels=["model"])
        running = GaugeMetricFamily("opweld_requests_running", "Requests that have", labels=["model"])
        used = GaugeMetricFamily("opweld_cache_used_ratio", "Part of the cache that is held", labels=["model"])
        for model in self._models:
            if model.engine is None:
                continue
            load = model.engine.statistics
            waiting.add_metric([model.name], load.waiting)
            running.add_metric([model.name], load.running)
            used.add_metric([model.name], load.blocks_in_use / load.blocks)
        yield from (waiting, running, used)
