from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opweld.errors import ModelError
from tests.unit.ops.one_node import Array, check, feeds_of, make_model, normal, programs_of, run

MANY = (400, 250)


def drawn(op_type: str, inputs: Any = (), **attributes: Any) -> Array:
    programs = programs_of(make_model(op_type, list(inputs), **attributes))
    return run(programs, feeds_of(list(inputs), ()))["y0"]


def splitmix64(seed: int, count: int) -> list[int]:
    """The generator as published."""
    state, found = seed, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(z ^ (z >> 31))
    return found


def test_the_generator() -> None:
    seed = int.from_bytes(np.float64(3.0).tobytes(), "little")
    expected = np.array([bits >> 11 for bits in splitmix64(seed, 7)], np.float64) * 2.0**-53
    found = drawn("RandomUniform", shape=[7], seed=3.0, dtype=TensorProto.DOUBLE)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_uniform(dtype: int) -> None:
    x = drawn("RandomUniform", shape=list(MANY), seed=1.0, low=-2.0, high=4.0, dtype=dtype)
    assert x.dtype == helper.tensor_dtype_to_np_dtype(dtype) and x.shape == MANY
    wide = x.astype(np.float64)
    assert wide.min() >= -2 and wide.max() <= 4
    counts, _ = np.histogram(wide, 30, (-2, 4))
    # 29 degrees of freedom: more than 64 has a chance of 2e-4.
    assert ((counts - wide.size / 30) ** 2 / (wide.size / 30)).sum() < 64
    assert abs(np.corrcoef(wide[:, :-1].ravel(), wide[:, 1:].ravel())[0, 1]) < 0.015


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_normal(dtype: int) -> None:
    x = drawn("RandomNormal", shape=list(MANY), seed=5.0, mean=3.0, scale=2.0, dtype=dtype).astype(np.float64)
    z = (x - 3) / 2
    assert abs(z.mean()) < 0.015 and abs(z.std() - 1) < 0.01
    assert abs((z**3).mean()) < 0.04 and abs((z**4).mean() - 3) < 0.08
    assert np.isfinite(z).all() and 3.5 < np.abs(z).max() < 7


def test_seeds() -> None:
    """The same seed draws the same, another one and a node without one something else, all of it again each time."""
    first, again, other, unseeded, unseeded_again = (
        drawn("RandomUniform", shape=[100], **options)
        for options in ({"seed": 1.0}, {"seed": 1.0}, {"seed": 2.0}, {}, {})
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(unseeded, unseeded_again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.4 and abs(np.corrcoef(first, unseeded)[0, 1]) < 0.4


def test_nodes_without_seeds_draw_differently() -> None:
    nodes = [helper.make_node("RandomNormal", [], [f"y{i}"], shape=[50]) for i in (0, 1)]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [50]) for i in (0, 1)]
    graph = helper.make_graph(nodes, "two", [], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    found = run(programs_of(model), {})
    assert np.abs(found["y0"] - found["y1"]).min() > 0


@pytest.mark.parametrize("op_type", ["RandomUniformLike", "RandomNormalLike"])
def test_like(op_type: str) -> None:
    model = make_model(op_type, [normal(2, 3)], dims={0: ("a", "b")}, seed=1.0, dtype=TensorProto.DOUBLE)
    programs = programs_of(model)
    for shape in ((2, 3), (1, 1), (5, 40)):
        found = run(programs, {"x0": normal(*shape)})["y0"]
        assert found.shape == shape and found.dtype == np.float64
    assert drawn(op_type, [normal(4).astype(np.float16)]).dtype == np.float16


def test_bernoulli() -> None:
    chances = np.broadcast_to(np.array([0, 0.1, 0.5, 0.9, 1], np.float32)[:, None], (5, 20000)).copy()
    found = drawn("Bernoulli", [chances], seed=2.0)
    assert set(np.unique(found)) == {0, 1} and found.dtype == np.float32
    np.testing.assert_allclose(found.mean(1), chances[:, 0], atol=0.012)
    assert drawn("Bernoulli", [chances], dtype=TensorProto.BOOL).dtype == np.bool_


def test_multinomial() -> None:
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0, 0.5]], np.float32)
    with np.errstate(divide="ignore"):
        found = drawn("Multinomial", [np.log(chances)], seed=2.0, sample_size=20000, dtype=TensorProto.INT64)
    assert found.dtype == np.int64 and found.shape == (2, 20000)
    for row, expected in zip(found, chances, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, expected, atol=0.015)
    with pytest.raises(ModelError, match="there is a class"):
        drawn("Multinomial", [np.zeros((2, 0), np.float32)])


def test_dropout_keeps_everything() -> None:
    check("Dropout", [normal(2, 3)], outputs=2)
    no = np.array(False)
    check("Dropout", [normal(2, 3), np.array(0.5, np.float32), no], outputs=2, constant=(1, 2))


@pytest.mark.parametrize("constant", [(), (1, 2)])
def test_dropout_in_training(constant: tuple[int, ...]) -> None:
    x = np.abs(normal(100, 200)) + 1
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    programs = programs_of(make_model("Dropout", inputs, outputs=2, constant=constant, seed=1))
    found = run(programs, feeds_of(inputs, constant))
    kept = found["y1"]
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_allclose(found["y0"], np.where(kept, x / np.float32(0.75), 0), rtol=1e-6)
    if not constant:
        feeds = feeds_of([x, inputs[1], np.array(False)], ())
        np.testing.assert_array_equal(run(programs, feeds)["y0"], x)
        feeds = feeds_of([x, np.array(0, np.float32), np.array(True)], ())
        np.testing.assert_array_equal(run(programs, feeds)["y0"], x)
