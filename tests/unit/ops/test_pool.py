from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import check, float64_of, flow_of, integers, make_model, normal, programs_of


def pool(x: Any, kernel: int, stride: int, pads: tuple[int, int], ceil: bool, dilation: int, kind: str) -> Any:
    """A 1-D pool by loops: kind is max, mean (elements only) or padded (elements and padding count)."""
    size, reach = x.shape[2], (kernel - 1) * dilation + 1
    room = size + sum(pads) - reach
    out = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (out - 1) * stride >= size + pads[0]:
        out -= 1
    result = np.zeros((*x.shape[:2], out), x.dtype)
    for place in range(out):
        taps = [place * stride - pads[0] + k * dilation for k in range(kernel)]
        inside = [t for t in taps if 0 <= t < size]
        if kind == "max":
            result[..., place] = x[..., inside].max(-1)
            continue
        counted = len(inside) if kind == "mean" else len([t for t in taps if t < size + pads[1]])
        result[..., place] = (x[..., inside].astype(np.float64).sum(-1) / counted).astype(x.dtype)
    return result


GRID = list(itertools.product([1, 2, 3], [1, 2, 3], [(0, 0), (1, 1), (0, 1)], [0, 1], [1, 2]))


@pytest.mark.parametrize("kind", ["max", "mean", "padded"])
@pytest.mark.parametrize(("kernel", "stride", "pads", "ceil", "dilation"), GRID)
def test_pool(kind: str, kernel: int, stride: int, pads: tuple[int, int], ceil: int, dilation: int) -> None:
    if max(pads) >= kernel:
        return
    attributes: dict[str, Any] = {"count_include_pad": 1} if kind == "padded" else {}
    for size in (7, 10):
        check(
            "MaxPool" if kind == "max" else "AveragePool",
            [normal(2, 3, size) - 5],
            kernel_shape=[kernel],
            strides=[stride],
            pads=pads,
            ceil_mode=ceil,
            dilations=[dilation],
            reference=lambda x: pool(x, kernel, stride, pads, bool(ceil), dilation, kind),
            **attributes,
        )


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_pool_2d(op_type: str, auto_pad: str) -> None:
    options: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": auto_pad}
    x = normal(2, 3, 8, 7)
    check(op_type, [x], reference=float64_of(op_type, [x], **options), **options)


def test_dynamic_pool() -> None:
    for ceil in (0, 1):
        check(
            "MaxPool",
            [normal(1, 2, 9)],
            dims={0: ("N", 2, "L")},
            more=[[normal(2, 2, 8)], [normal(1, 2, 1)], [normal(1, 2, 2)]],
            kernel_shape=[3],
            strides=[2],
            pads=[1, 1],
            ceil_mode=ceil,
            reference=lambda x, ceil=ceil: pool(x, 3, 2, (1, 1), bool(ceil), 1, "max"),
        )


def test_pool_of_integers() -> None:
    x = integers(1, 2, 9, dtype=np.int8)
    check("MaxPool", [x], kernel_shape=[3], pads=[1, 1], reference=lambda x: pool(x, 3, 1, (1, 1), False, 1, "max"))


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (2, 3, 7), (1, 2, 3, 4, 5)])
def test_global_pool(op_type: str, shape: tuple[int, ...]) -> None:
    reduce = np.mean if op_type == "GlobalAveragePool" else np.max
    axes = tuple(range(2, len(shape)))
    check(op_type, [normal(*shape)], reference=lambda x: reduce(x, axis=axes, keepdims=True))


def test_dynamic_global_pool() -> None:
    more = [[normal(2, 3, 1, 1)], [normal(1, 3, 5, 2)]]
    check(
        "GlobalAveragePool",
        [normal(1, 3, 4, 4)],
        dims={0: ("N", 3, "H", "W")},
        more=more,
        reference=lambda x: x.mean(axis=(2, 3), keepdims=True),
    )


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_norm_pool(p: int) -> None:
    def reference(x: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 3, axis=2)[:, :, ::2]
        return ((np.abs(windows) ** p).sum(-1) ** (1 / p)).astype(np.float32)

    check("LpPool", [normal(2, 3, 9)], kernel_shape=[3], strides=[2], p=p, reference=reference)
    check(
        "GlobalLpPool",
        [normal(2, 3, 9)],
        p=p,
        reference=lambda x: ((np.abs(x) ** p).sum(-1, keepdims=True) ** (1 / p)).astype(np.float32),
    )


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 2], "pads": [1, 1, 2, 0]},
        {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 1], "pads": [1, 0, 1, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    ],
)
def test_indices_of_the_largest(options: dict[str, Any], order: int) -> None:
    arrays = [[normal(2, 3, *sizes)] for sizes in ((8, 9), (6, 5), (7, 11))]
    dims = {0: [2, 3, "h", "w"]}
    reference = float64_of("MaxPool", arrays[0], outputs=2, dims=dims, storage_order=order, **options)
    check(
        "MaxPool", arrays[0], outputs=2, dims=dims, more=arrays[1:], reference=reference, storage_order=order, **options
    )


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("sizes", [(9,), (4, 5, 6)])
def test_indices_in_one_and_three_axes(sizes: tuple[int, ...], order: int) -> None:
    options: dict[str, Any] = {"kernel_shape": [3] * len(sizes), "pads": [1] * 2 * len(sizes), "storage_order": order}
    arrays = [normal(2, 3, *sizes)]
    check("MaxPool", arrays, outputs=2, reference=float64_of("MaxPool", arrays, outputs=2, **options), **options)


def test_of_equal_elements_the_first_is_told() -> None:
    x = np.zeros((1, 2, 4, 4), np.float32)
    options: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    check("MaxPool", [x], outputs=2, reference=float64_of("MaxPool", [x], outputs=2, **options), **options)
    lowest = np.full((1, 2, 4, 4), -np.inf, np.float32)
    (_, indices) = interpret_flow(flow_of(make_model("MaxPool", [x], outputs=2, **options)), {"x0": lowest}).values()
    assert indices.min() >= 0 and indices.max() < lowest.size, "never on padding"


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_a_window_larger_than_its_input_that_may_hang_over_the_end(op_type: str) -> None:
    options: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    arrays = [normal(1, 1, 2)]
    more = [[normal(1, 1, 5)], [normal(1, 1, 8)]]
    reference = float64_of(op_type, arrays, dims={0: [1, 1, "n"]}, **options)
    check(op_type, arrays, dims={0: [1, 1, "n"]}, more=more, reference=reference, **options)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("pads", [[-1, 0, 0, 0], [3, 3, 3, 3], [0, 0, 5, 0]])
def test_pads_are_smaller_than_the_window(op: str, pads: list[int]) -> None:
    with pytest.raises(ModelError, match=rf"the_{op}.*pads"):
        programs_of(make_model(op, [normal(1, 1, 8, 8)], kernel_shape=[3, 3], pads=pads))


def test_a_window_that_is_mostly_padding_costs_what_lies_on_the_data() -> None:
    x = normal(1, 1, 8, 8)
    huge: dict[str, Any] = {"kernel_shape": [100_000, 100_000], "pads": [50_000] * 4}
    check("MaxPool", [x], reference=lambda x: np.full((1, 1, 9, 9), x.max(), np.float32), **huge)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (8, 8)))
    means = [padded[..., i : i + 9].sum((2, 3)) / (8 * min(i + 1, 8, 16 - i)) for i in range(0, 16, 3)]
    check(
        "AveragePool",
        [x],
        reference=lambda _: np.stack(means, -1)[:, :, None].astype(np.float32),
        kernel_shape=[60, 9],
        pads=[26, 8, 26, 8],
        strides=[1, 3],
    )


def test_a_window_without_end_is_refused() -> None:
    x, kernel = normal(1, 1, 8, 8), [100_000, 100_000]
    with pytest.raises(UnsupportedError, match=r"the_AveragePool.*10,000,000,000"):
        programs_of(make_model("AveragePool", [x], kernel_shape=kernel, pads=[99_999] * 4))
    with pytest.raises(UnsupportedError, match="--dim"):
        programs_of(make_model("MaxPool", [x], dims={0: [1, 1, "h", "w"]}, kernel_shape=kernel, pads=[50_000] * 4))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("ceil", [0, 1])
def test_a_window_that_lacks_less_than_a_stride_has_a_place_still(op: str, ceil: int) -> None:
    pads = [] if op == "LpPool" else [(0, 1), (1, 1)]
    for size, kernel, stride in ((2, 3, 3), (1, 3, 3), (1, 3, 2), (2, 3, 1), (5, 7, 2), (5, 7, 4), (2, 5, 4)):
        for before, after in [(0, 0), *pads]:
            options: dict[str, Any] = {"kernel_shape": [kernel], "strides": [stride], "ceil_mode": ceil}
            options |= {"pads": [before, after]}
            for counted in (0, 1) if op == "AveragePool" else ():
                options["count_include_pad"] = counted
                check(op, [normal(1, 2, size)], reference=float64_of(op, [normal(1, 2, size)], **options), **options)
            arrays = [normal(1, 2, size)]
            check(op, arrays, reference=float64_of(op, arrays, **options), **options)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_that_lacks_more_is_refused(op: str) -> None:
    with pytest.raises(ModelError, match="must fit"):
        programs_of(make_model(op, [normal(1, 2, 1)], kernel_shape=[7], strides=[2]))
