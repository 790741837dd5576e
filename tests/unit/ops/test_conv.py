from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opweld.errors import ModelError
from opweld.tensor.dim import FloorDiv, Mod, atoms_of
from opweld.tensor.expr import Reduce, dims_of, walk
from opweld.tensor.program import Tensor, TensorProgram
from tests.unit.ops.one_node import check, make_model, normal, programs_of


def conv(x: Any, w: Any, *bias: Any, **options: Any) -> Any:
    """torch's convolution of 1 to 3 spatial axes; pads as ONNX writes them, in float64, rounded."""
    rank = x.ndim - 2
    pads = options.pop("pads", (0,) * 2 * rank)
    amounts = [p for axis in reversed(range(rank)) for p in (pads[axis], pads[rank + axis])]
    data = torch.nn.functional.pad(torch.tensor(x, dtype=torch.float64), amounts)
    function = getattr(torch.nn.functional, f"conv{rank}d")
    tensors = [torch.tensor(t, dtype=torch.float64) for t in (w, *bias)]
    return function(data, *tensors, **options).numpy().astype(np.float32)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1), (2, 0)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_conv_1d(bias: bool, kernel: int, stride: int, pads: tuple[int, int], dilation: int) -> None:
    arrays = [normal(2, 3, 11), normal(4, 3, kernel), *([normal(4)] if bias else [])]
    check(
        "Conv",
        arrays,
        strides=[stride],
        pads=pads,
        dilations=[dilation],
        reference=lambda *a: conv(*a, pads=pads, stride=stride, dilation=dilation),
    )


CASES_2D: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((1, 3, 7, 5), (8, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 8, 9), (5, 3, 3, 3), {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
    ((2, 3, 8, 9), (5, 3, 5, 1), {"pads": [2, 0, 2, 0], "strides": [1, 2]}),
    ((1, 6, 7, 7), (6, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 6}),
    ((1, 6, 7, 7), (12, 1, 3, 3), {"group": 6, "strides": [2, 2]}),
    ((2, 6, 7, 7), (9, 2, 3, 3), {"group": 3, "dilations": [2, 1]}),
    ((1, 4, 13, 11), (4, 2, 2, 4), {"group": 2, "pads": [3, 1, 0, 2], "strides": [3, 2], "dilations": [1, 2]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CASES_2D)
def test_conv_2d(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    options = dict(attributes)
    torch_options = {
        "pads": options.get("pads", [0, 0, 0, 0]),
        "stride": options.get("strides", [1, 1]),
        "dilation": options.get("dilations", [1, 1]),
        "groups": options.get("group", 1),
    }
    arrays = [normal(*x), normal(*w), normal(w[0])]
    check("Conv", arrays, constant=(1, 2), reference=lambda *a: conv(*a, **torch_options), **attributes)


def test_conv_3d() -> None:
    check(
        "Conv",
        [normal(1, 2, 5, 6, 7), normal(3, 2, 3, 2, 1), normal(3)],
        pads=[1, 0, 0, 1, 1, 0],
        strides=[1, 2, 1],
        reference=lambda *a: conv(*a, pads=[1, 0, 0, 1, 1, 0], stride=[1, 2, 1]),
    )


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad(auto_pad: str, size: int, stride: int) -> None:
    kernel = 4
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0) if auto_pad != "VALID" else 0
    small = total // 2
    pads = (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
    arrays = [normal(1, 2, size), normal(3, 2, kernel)]
    check("Conv", arrays, auto_pad=auto_pad, strides=[stride], reference=lambda *a: conv(*a, pads=pads, stride=stride))


def test_dynamic_sizes_are_one_program() -> None:
    def arrays(n: int, h: int, w: int) -> list[Any]:
        return [normal(n, 3, h, w), normal(4, 3, 3, 3, seed=1)]

    programs = check(
        "Conv",
        arrays(1, 8, 8),
        constant=(1,),
        dims={0: ("N", 3, "H", "W")},
        more=[arrays(2, 7, 9), arrays(1, 1, 1), arrays(3, 13, 2)],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        reference=lambda *a: conv(*a, pads=[1, 1, 1, 1], stride=2),
    )
    assert len(programs) == 1


def test_dynamic_auto_pad() -> None:
    def arrays(size: int) -> list[Any]:
        return [normal(1, 2, size), normal(3, 2, 3, seed=1)]

    def reference(x: Any, w: Any) -> Any:
        total = max((-(-x.shape[2] // 2) - 1) * 2 + 3 - x.shape[2], 0)
        return conv(x, w, pads=(total // 2, total - total // 2), stride=2)

    more = [arrays(5), arrays(6), arrays(1)]
    check("Conv", arrays(8), dims={0: (1, 2, "L")}, more=more, auto_pad="SAME_UPPER", strides=[2], reference=reference)


def divisions(program: TensorProgram) -> int:
    """How many floor divisions and remainders the indices of a program hold."""
    nodes = {node for item in program.items if isinstance(item, Tensor) for node in walk(item.body)}
    atoms = {atom for node in nodes for dim in dims_of(node) for atom in atoms_of(dim)}
    return sum(isinstance(atom, FloorDiv | Mod) for atom in atoms)


def test_depthwise_indexes_without_division() -> None:
    (program,) = programs_of(make_model("Conv", [normal(1, 8, 9, 9), normal(8, 1, 3, 3)], group=8))
    assert divisions(program) == 0


def test_channels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="the_Conv"):
        programs_of(make_model("Conv", [normal(1, 4, 9, 9), normal(8, 3, 3, 3)]))
    with pytest.raises(ModelError, match="the_Conv"):
        programs_of(make_model("Conv", [normal(1, 3, 2, 2), normal(8, 3, 3, 3)]))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_negative_pads_are_refused(op: str) -> None:
    with pytest.raises(ModelError, match=f"the_{op}.*pads"):
        programs_of(make_model(op, [normal(1, 3, 9, 9), normal(3, 3, 3, 3)], pads=[-1, -1, -1, -1]))


def transposed(x: Any, w: Any, *bias: Any, **options: Any) -> Any:
    """torch's transposed convolution without padding, cropped by the ONNX pads."""
    rank = x.ndim - 2
    pads, extra = options.pop("pads", (0,) * 2 * rank), options.pop("extra", (0,) * rank)
    tensors = [torch.tensor(t, dtype=torch.float64) for t in (x, w)]
    full = getattr(torch.nn.functional, f"conv_transpose{rank}d")(*tensors, **options).numpy()
    full = np.pad(full, [(0, 0), (0, 0), *((0, e) for e in extra)])
    crop = [slice(pads[a], full.shape[2 + a] - pads[rank + a]) for a in range(rank)]
    result = full[(slice(None), slice(None), *crop)]
    if bias:
        result = result + bias[0].reshape(-1, *(1,) * rank)
    return result.astype(np.float32)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 2)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("extra", [0, 1])
def test_conv_transpose_1d(kernel: int, stride: int, pads: tuple[int, int], dilation: int, extra: int) -> None:
    if extra >= max(stride, dilation):
        return
    length = (6 - 1) * stride + (kernel - 1) * dilation + 1 + extra - sum(pads)
    assert length > 0
    check(
        "ConvTranspose",
        [normal(2, 3, 6), normal(3, 4, kernel), normal(4)],
        strides=[stride],
        pads=pads,
        dilations=[dilation],
        output_padding=[extra],
        reference=lambda *a: transposed(*a, stride=stride, dilation=dilation, pads=pads, extra=[extra]),
    )


def test_conv_transpose_groups() -> None:
    check(
        "ConvTranspose",
        [normal(2, 6, 5, 4), normal(6, 2, 3, 3), normal(6)],
        group=3,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        reference=lambda *a: transposed(*a, stride=2, groups=3, pads=(1, 1, 1, 1)),
    )


def test_conv_transpose_of_kernel_equal_to_stride_has_one_tap() -> None:
    def arrays(h: int, w: int) -> list[Any]:
        return [normal(1, 3, h, w), normal(3, 4, 2, 2, seed=1)]

    programs = check(
        "ConvTranspose",
        arrays(5, 4),
        constant=(1,),
        dims={0: (1, 3, "H", "W")},
        more=[arrays(1, 1), arrays(3, 7)],
        strides=[2, 2],
        reference=lambda *a: transposed(*a, stride=2),
    )
    bodies = [item.body for item in programs[0].items if isinstance(item, Tensor)]
    (reduction,) = [node for body in bodies for node in walk(body) if isinstance(node, Reduce)]
    assert len(reduction.axes) == 1


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_conv_transpose_output_shape_of_symbolic_sizes(auto_pad: str) -> None:
    """What is cut off depends on the size, and where the output is longer than what is reached, nothing is."""

    def reference(x: Any, w: Any) -> Any:
        total = max((x.shape[2] - 1) * 2 + 4 - 9, 0)
        small = total // 2
        pads = (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
        y = transposed(x, w, stride=2, pads=pads)
        return np.pad(y, ((0, 0), (0, 0), (0, 9 - y.shape[2])))

    w = normal(2, 3, 4)
    check(
        "ConvTranspose",
        [normal(1, 2, 5), w],
        constant=(1,),
        dims={0: ("N", 2, "L")},
        more=[[normal(2, 2, 4), w], [normal(1, 2, 3), w]],
        strides=[2],
        output_shape=[9],
        auto_pad=auto_pad,
        reference=reference,
    )


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_conv_transpose_output_shape(auto_pad: str) -> None:
    total = (5 - 1) * 2 + 4 - 9
    small = total // 2
    pads = (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
    check(
        "ConvTranspose",
        [normal(1, 2, 5), normal(2, 3, 4)],
        strides=[2],
        output_shape=[9],
        auto_pad=auto_pad,
        reference=lambda *a: transposed(*a, stride=2, pads=pads),
    )


def test_half_precision_sums_in_fp32_and_rounds_once() -> None:
    """Wide enough that its products are those of a matrix, and as Winograd's algorithm makes them."""
    x, w = (normal(*shape, dtype=np.float16, seed=n) for n, shape in enumerate([(1, 40, 9, 8), (33, 40, 3, 3)]))
    exact = conv(x, w, pads=(1, 1, 1, 1)).astype(np.float16)
    check("Conv", [x, w], pads=[1, 1, 1, 1], reference=lambda *_: exact, tolerance=1e-3)
