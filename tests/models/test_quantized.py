"""Trained models, quantised: what they lose, that another runtime gives the same, that rows answer for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import opweld
from benchmarks import quantized
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


THREADS, BATCHES = (1, 2, 3), (1, 4, 8)
OURS, THEIRS = "opweld.quantize", "quantize_static"


@pytest.mark.parametrize(
    ("name", "by"),
    [("minilm", OURS), ("ppocrv4-rec", OURS), ("minilm", THEIRS), ("magika", THEIRS)],
)
def test_a_row_answers_the_same_bits_on_any_threads_in_any_batch(name: str, by: str, tmp_path: Path) -> None:
    """Whoever else asks, and how many cores there are, decides nothing: integers are exact in any order, and floats
    are added up in one order for each row."""
    rows = [dict(inputs.example(name, 0, seed)) for seed in range(max(BATCHES))]
    if by == OURS:
        file = tmp_path / "int8.onnx"
        opweld.quantize(fetch.path(name), rows[:4], ranges="minmax").save(file)
    else:
        file = quantized.path(QUANTISED[name])
    alone = opweld.compile(file, threads=1)
    right = [alone.run(row) for row in rows]
    for threads in THREADS:
        compiled = opweld.compile(file, threads=threads)
        for batch in BATCHES:
            found = compiled.run({key: np.concatenate([row[key] for row in rows[:batch]]) for key in rows[0]})
            for output, answers in found.items():
                for i in range(batch):
                    one, same = np.asarray(answers)[i : i + 1], np.asarray(right[i][output])
                    where = f"{output}: row {i} of {batch} on {threads} threads"
                    assert one.shape == same.shape and one.tobytes() == same.tobytes(), where


QUANTISED = {"minilm": "minilm-qdq-u8s8-channel", "magika": "magika-qoperator-s8s8-tensor"}
"""By model of the zoo, the file that ONNX Runtime's quantiser makes of it."""


def test_weights_left_in_floats_are_compared_with_as_floats(tmp_path: Path) -> None:
    """ONNX Runtime rounds weights of a ConvTranspose between bytes to bytes, unless it is told not to: these differ by
    many steps, as one is 100 times the others."""
    weights = np.random.default_rng(6).normal(size=(8, 6, 2, 2)).astype(np.float32)
    weights[0, 0, 0, 0] = 300
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (uint8[1, 8, 12, 10] x) => (uint8[1, 6, 24, 20] y)
        <float s = {0.02}, float t = {0.1}, uint8 z = {120}> {
            a = DequantizeLinear (x, s, z)
            b = ConvTranspose <strides = [2, 2]> (a, w)
            y = QuantizeLinear (b, t, z)
        }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, file := tmp_path / "left.onnx")
    feed = {"x": np.random.default_rng(7).integers(0, 256, (1, 8, 12, 10)).astype(np.uint8)}
    (away,) = quantized.steps_apart(file, [feed])
    assert away.most == 0
