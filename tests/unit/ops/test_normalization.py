from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import ModelError
from tests.unit.ops.one_node import check, make_model, normal, programs_of, run

Array = Any


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)


def per_channel(v: Array, rank: int) -> Array:
    return v.astype(np.float64).reshape(-1, *(1,) * (rank - 2))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (4, 3), (2, 3, 7)])
@pytest.mark.parametrize("constant", [(), (1, 2, 3, 4)])
def test_batch_normalization(shape: tuple[int, ...], constant: tuple[int, ...]) -> None:
    c = shape[1]
    arrays = [normal(*shape), normal(c, seed=1), normal(c, seed=2), normal(c, seed=3), np.abs(normal(c, seed=4))]

    def reference(x: Array, s: Array, b: Array, m: Array, v: Array) -> Array:
        s, b, m, v = (per_channel(a, x.ndim) for a in (s, b, m, v))
        return ((x - m) / np.sqrt(v + 1e-3) * s + b).astype(np.float32)

    check("BatchNormalization", arrays, constant=constant, epsilon=1e-3, reference=reference)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3), (1, 3, 1)])
def test_training_takes_the_statistics_of_the_batch(shape: tuple[int, ...]) -> None:
    arrays = [normal(*shape), *(normal(3, seed=seed) for seed in range(3)), np.abs(normal(3, seed=4))]
    check("BatchNormalization", arrays, outputs=3, training_mode=1, momentum=0.8)


def test_statistics_are_outputs_in_training_alone() -> None:
    arrays = [normal(2, 3), *(normal(3, seed=seed) for seed in range(4))]
    with pytest.raises(ModelError, match="training"):
        programs_of(make_model("BatchNormalization", arrays, outputs=3))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 7), (2, 4, 1, 1)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    def reference(x: Array, s: Array, b: Array) -> Array:
        y = normalized(x, tuple(range(2, x.ndim)), 1e-5)
        return (y * per_channel(s, x.ndim) + per_channel(b, x.ndim)).astype(np.float32)

    check("InstanceNormalization", [normal(*shape), normal(shape[1]), normal(shape[1], seed=1)], reference=reference)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_normalization(groups: int) -> None:
    def reference(x: Array, s: Array, b: Array) -> Array:
        y = normalized(x.reshape(x.shape[0], groups, -1), (2,), 1e-5).reshape(x.shape)
        return (y * per_channel(s, x.ndim) + per_channel(b, x.ndim)).astype(np.float32)

    arrays = [normal(2, 6, 3, 5), normal(6), normal(6, seed=1)]
    more = [[normal(1, 6, 1, 4), *arrays[1:]], [normal(3, 6, 7, 2), *arrays[1:]]]
    dims = {0: ("N", 6, "H", "W")}
    check("GroupNormalization", arrays, constant=(1, 2), dims=dims, more=more, num_groups=groups, reference=reference)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("channels", [6, "C"])
def test_scale_and_bias_of_groups(opset: int, channels: int | str) -> None:
    """Those of channels exists since opset 21."""

    def reference(x: Array, s: Array, b: Array) -> Array:
        grouped = x.reshape(x.shape[0], 3, -1)
        y = normalized(grouped, (2,), 1e-3) * per_channel(s, 3) + per_channel(b, 3)
        return y.reshape(x.shape).astype(np.float32)

    arrays = [normal(2, 6, 3, 5), normal(3), normal(3, seed=1)]
    more = [[normal(1, 6, 1, 4), *arrays[1:]]]
    stated: dict[str, Any] = {"opset": opset, "num_groups": 3, "epsilon": 1e-3}
    dims = {0: ("N", channels, "H", "W")}
    check("GroupNormalization", arrays, constant=(1, 2), dims=dims, more=more, reference=reference, **stated)


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ModelError, match="groups"):
        programs_of(make_model("GroupNormalization", [normal(1, 6, 2), normal(6), normal(6)], num_groups=4))


@pytest.mark.parametrize("axis", [-1, 1, 0, -2])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization(axis: int, bias: bool) -> None:
    x = normal(3, 4, 5) * 3 + 100
    scale = normal(*x.shape[axis:], seed=1)
    extra = [normal(*x.shape[axis:], seed=2)] if bias else []

    def reference(x: Array, s: Array, *b: Array) -> tuple[Array, Array, Array]:
        axes = tuple(range(axis % 3, 3))
        wide = x.astype(np.float64)
        mean, variance = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
        inverse = 1 / np.sqrt(variance + 1e-5)
        y = (wide - mean) * inverse * s + (b[0] if b else 0)
        return y.astype(np.float32), mean.astype(np.float32), inverse.astype(np.float32)

    check("LayerNormalization", [x, scale, *extra], outputs=3, axis=axis, reference=reference, tolerance=3e-5)


CENTRED: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "LayerNormalization": ((2, 6, 7), (2,), 7, {"epsilon": 1e-5}),
    "InstanceNormalization": ((2, 6, 7), (2,), 6, {"epsilon": 1e-5}),
    "GroupNormalization": ((2, 3, 2, 7), (2, 3), 6, {"epsilon": 1e-5, "num_groups": 3}),
    "MeanVarianceNormalization": ((2, 6, 7), (2,), 0, {"axes": [2]}),
}
"""By operator: how it sees [2, 6, 7], along which axes of that it normalises, how many scales it has, attributes."""


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("operator", CENTRED)
def test_rows_far_from_zero(operator: str, offset: float) -> None:
    """The mean is rounded as the elements are; what they are beyond it is not."""
    seen, axes, scales, attributes = CENTRED[operator]
    x = normal(2, 6, 7) + np.float32(offset)
    expected = normalized(x.reshape(seen), axes, attributes.get("epsilon", 0)).reshape(x.shape)
    arrays = [x, *([np.ones(scales, np.float32), np.zeros(scales, np.float32)] if scales else [])]
    model = make_model(operator, arrays, **attributes)
    feeds = {f"x{position}": array for position, array in enumerate(arrays)}
    for found in (run(programs_of(model), feeds), opweld.compile(model).run(feeds)):
        np.testing.assert_allclose(found["y0"], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("operator", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_constant_rows(operator: str) -> None:
    """Nothing divided by nothing is NaN, as the formula says, and with an epsilon the bias. A tenth is no number of
    float32: seven of them have a mean that is rounded."""
    *_, scales, attributes = CENTRED[operator]
    x = normal(2, 6, 7)
    constant = x.copy()
    constant[0] = 0.1
    arrays = [constant, normal(scales, seed=1), normal(scales, seed=2)]
    feeds = {f"x{position}": array for position, array in enumerate(arrays)}
    for epsilon in (0.0, 1e-5):
        stated: dict[str, Any] = {**attributes, "epsilon": epsilon}
        model = make_model(operator, arrays, **stated)
        for found in (run(programs_of(model), feeds), opweld.compile(model).run(feeds)):
            assert np.isfinite(found["y0"][1]).all()
            if epsilon:
                bias = arrays[2] if operator == "LayerNormalization" else arrays[2][:, None]
                np.testing.assert_allclose(found["y0"][0], np.broadcast_to(bias, (6, 7)), rtol=0, atol=1e-6)
            else:
                assert np.isnan(found["y0"][0]).all()


def test_dynamic_layer_normalization() -> None:
    scale, bias = normal(8, seed=1), normal(8, seed=2)
    more = [[normal(1, 1, 8), scale, bias], [normal(5, 3, 8), scale, bias]]
    programs = check(
        "LayerNormalization", [normal(2, 7, 8), scale, bias], constant=(1, 2), dims={0: ("N", "S", 8)}, more=more
    )
    assert len(programs) == 1


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(axis: int) -> None:
    def reference(x: Array, s: Array) -> Array:
        axes = tuple(range(axis % 3, 3))
        return (x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=axes, keepdims=True) + 1e-5) * s).astype(np.float32)

    x = normal(3, 4, 5)
    check("RMSNormalization", [x, normal(*x.shape[axis:], seed=1)], axis=axis, reference=reference)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(op_type: str, axis: int) -> None:
    check(op_type, [normal(3, 5, 4) * 10], axis=axis)
    check(op_type, [normal(1, 1, 1)], axis=axis)


def test_softmax_of_large_and_masked_numbers() -> None:
    check("Softmax", [np.array([[1e30, 1e30, -1e30], [-np.inf, 0, 1], [1000, 0, -3.4e38]], np.float32)])
    check("Softmax", [np.array([[-np.inf, -np.inf], [np.nan, 0]], np.float32)])


def test_dynamic_softmax() -> None:
    check("Softmax", [normal(2, 7)], dims={0: ("N", "S")}, more=[[normal(1, 1)], [normal(3, 31)]])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 0])
def test_lp_normalization(p: int, axis: int) -> None:
    x = normal(3, 5)
    x[1] = 0

    def reference(x: Array) -> Array:
        norm = (np.abs(x.astype(np.float64)) ** p).sum(axis, keepdims=True) ** (1 / p)
        return np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(np.float32)

    check("LpNormalization", [x], p=p, axis=axis, reference=reference)


def test_mean_variance_normalization() -> None:
    def reference(x: Array) -> Array:
        wide = x.astype(np.float64)
        axes = (0, 2, 3)
        return ((wide - wide.mean(axes, keepdims=True)) / (wide.std(axes, keepdims=True) + 1e-9)).astype(np.float32)

    check("MeanVarianceNormalization", [normal(2, 3, 4, 5)], reference=reference)


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_local_response_normalization(size: int) -> None:
    def reference(x: Array) -> Array:
        wide = x.astype(np.float64)
        before, after = (size - 1) // 2, size // 2
        total = np.zeros_like(wide)
        for c in range(x.shape[1]):
            total[:, c] = (wide[:, max(0, c - before) : c + after + 1] ** 2).sum(1)
        return (wide / (2 + 0.5 / size * total) ** 0.7).astype(np.float32)

    check("LRN", [normal(2, 7, 3, 3)], size=size, alpha=0.5, beta=0.7, bias=2.0, reference=reference)
