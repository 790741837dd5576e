"""What models of tensors do, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from opweld.serve.inference.batcher import REASONS
from opweld.serve.inference.loaded import LoadedModel
from opweld.serve.inference.repository import ModelRepository
from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics

_BY = ("model", "version")


class ModelMetrics(Collector):
    """Of the models that a repository has loaded, when somebody asks."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """All of them."""
        calls = CounterMetricFamily("opweld_model_calls", "Calls by how they ended", labels=(*_BY, "outcome"))
        waiting = GaugeMetricFamily("opweld_model_calls_waiting", "Calls that have not begun", labels=_BY)
        running = GaugeMetricFamily("opweld_model_calls_running", "Calls in runs", labels=_BY)
        for model in self._repository:
            told, labels = model.statistics, (model.name, model.version)
            for outcome, count in (("answered", told.calls), ("failed", told.failures), ("refused", told.refused)):
                calls.add_metric((*labels, outcome), count)
            waiting.add_metric(labels, told.waiting)
            running.add_metric(labels, told.running)
        yield from (calls, waiting, running)
        yield from self._runs()

    def _runs(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Of compiled models, which programs are not."""
        called = HistogramMetricFamily("opweld_model_call_seconds", "From a call to the end of its run", labels=_BY)
        queued = HistogramMetricFamily("opweld_model_queue_seconds", "That calls waited", labels=_BY)
        took = HistogramMetricFamily("opweld_model_run_seconds", "That runs took", labels=_BY)
        rows = HistogramMetricFamily("opweld_model_batch_rows", "Rows of runs", labels=_BY)
        batches = CounterMetricFamily("opweld_model_batches", "Runs by why they began", labels=(*_BY, "reason"))
        for model in self._repository:
            if not isinstance(model, LoadedModel):
                continue
            tally, labels = model.tally, (model.name, model.version)
            of_calls = (called, tally.call_seconds), (queued, tally.queue_seconds)
            for family, told in (*of_calls, (took, tally.run_seconds), (rows, tally.rows)):
                family.add_metric(labels, told.buckets(), told.sum)
            for reason in REASONS:
                batches.add_metric((*labels, reason), tally.reasons[reason])
        yield from (called, queued, took, rows, batches)


def measured(
    repository: ModelRepository, make: Callable[[Limits, Metrics], Interface], limits: Limits, metrics: Metrics
) -> Interface:
    """An interface of a server that measures the models of a repository, too."""
    metrics.registry.register(ModelMetrics(repository))
    return make(limits, metrics)
