"""A trained model, compressed: within the budget, and another runtime gives the same."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import opweld
from benchmarks.zoo import fetch, inputs
from opweld.compress import timing
from opweld.tune.trial import Gain

pytestmark = pytest.mark.models

LOST = 0.2
"""What the outputs may lose of their size, with few samples."""


def test_minilm_loses_layers_and_keeps_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "race", lambda *_: Gain(2.0, 2.0, 2e-3, 1e-3))
    samples = [inputs.example("minilm", 0, seed) for seed in range(10)]
    done = opweld.compress(fetch.path("minilm"), samples, max_error=LOST)
    assert 0 < done.error <= LOST
    assert done.size_after < done.size_before and done.flops[1] < done.flops[0]
    assert {method for layer in done.layers for method in layer.methods} >= {"low-rank"}
    peer = onnxruntime.InferenceSession(done.model.SerializeToString())
    ours = opweld.compile(done.model)
    for sample in samples[:2]:
        right = ours.run(sample)
        for output, got in zip(peer.get_outputs(), peer.run(None, sample), strict=True):
            exact, found = np.asarray(right[output.name], np.float64), np.asarray(got, np.float64)
            assert np.linalg.norm(found - exact) <= 1e-4 * np.linalg.norm(exact)
