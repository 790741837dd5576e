"""Trained models, quantised: what they lose, and that another runtime gives the same."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import opweld
from benchmarks.zoo import fetch, inputs

pytestmark = pytest.mark.models

LOST = {"silero-vad-16k": 0.05, "magika": 0.001, "minilm": 0.1}
"""By model, what its outputs may lose of their size; about twice what they do."""


@pytest.mark.parametrize("name", LOST)
def test_a_trained_model_keeps_its_answers(name: str) -> None:
    samples = [inputs.example(name, 0, seed) for seed in range(4)]
    done = opweld.quantize(fetch.path(name), samples)
    assert done.error is not None and done.error < LOST[name]
    assert done.size_after < done.size_before
    peer = onnxruntime.InferenceSession(done.model.SerializeToString())
    plain = opweld.compile(fetch.path(name))
    for sample in samples:
        right = plain.run(sample)
        for output, got in zip(peer.get_outputs(), peer.run(None, sample), strict=True):
            exact, found = np.asarray(right[output.name], np.float64), np.asarray(got, np.float64)
            assert np.linalg.norm(found - exact) <= 3 * LOST[name] * np.linalg.norm(exact)
