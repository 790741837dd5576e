"""What Prometheus reads of models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from opweld.serve.inference.metrics import ModelMetrics
from opweld.serve.inference.model import Call
from opweld.serve.inference.repository import ModelRepository
from opweld.serve.inference.tally import Histogram, Tally
from tests.unit.serve.inference.small import plus, saved


def test_metrics(tmp_path: Path) -> None:
    saved(plus(1), tmp_path / "plus/7/model.opweld")

    async def scenario() -> None:
        repository = ModelRepository([(None, tmp_path)])
        repository.load_all()
        registry = CollectorRegistry()
        registry.register(ModelMetrics(repository))
        for _ in range(3):
            await repository.get("plus").infer({"x": np.ones((2, 3), np.float32)}, Call())
        found = {
            (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in ("model", "version")))
            : sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
            if sample.labels["model"] == "plus" and sample.labels["version"] == "7"
        }  # fmt: skip
        assert found["opweld_model_calls_total", "answered"] == 3 and found["opweld_model_calls_total", "failed"] == 0
        assert found["opweld_model_calls_waiting",] == found["opweld_model_calls_running",] == 0
        assert found["opweld_model_queue_seconds_count",] == found["opweld_model_run_seconds_count",] == 3
        assert found["opweld_model_call_seconds_count",] == 3
        parts = found["opweld_model_queue_seconds_sum",] + found["opweld_model_run_seconds_sum",]
        assert found["opweld_model_call_seconds_sum",] == pytest.approx(parts)
        assert found["opweld_model_batch_rows_sum",] == 6 and found["opweld_model_batch_rows_bucket", "1.0"] == 0
        assert found["opweld_model_batches_total", "idle"] == 3 and found["opweld_model_batches_total", "full"] == 0
        await repository.close()

    asyncio.run(scenario())


def test_buckets() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert histogram.buckets() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)] and histogram.sum == 12


def test_times_are_those_of_calls_with_an_answer() -> None:
    tally = Tally()
    tally.ended(5, 7, failed=False)
    tally.ended(50, 70, failed=True)
    told = tally.statistics(0)
    assert (told.calls, told.failures, told.waited_ns, told.computed_ns) == (1, 1, 5, 7)
