"""Linear layers against float64, forward and backward, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import linear
from opweld.kernels.activations import ACTIVATIONS
from opweld.kernels.product import Configuration, configuration, is_described, product
from tests.kernels.compared import assert_close, compare, random

REFERENCES = {
    "none": lambda z: z,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_linear(activation: str, dtype: torch.dtype) -> None:
    def reference(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return REFERENCES[activation](F.linear(x, weight, bias)) + residual

    inputs = [random(5, 33, dtype=dtype), random(17, 33, dtype=dtype) / 4, random(17, dtype=dtype)]
    inputs.append(random(5, 17, dtype=dtype))
    compare(lambda x, w, b, r: linear(x, w, b, activation=activation, residual=r), reference, inputs, roundings=8)


@pytest.mark.parametrize("shape", [(1, 1, 1), (123, 5, 129), (129, 123, 1), (2, 300, 40)], ids=str)
def test_shapes(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    compare(linear, F.linear, [random(m, k), random(n, k)], roundings=16)


CONFIGURATIONS = (
    Configuration(16, 32, 16, 4, 2, parts=1),
    Configuration(16, 32, 16, 4, 2, parts=2, group=2),
    Configuration(16, 64, 16, 4, 2, parts=4),
    Configuration(16, 32, 16, 4, 2, split=3),
    Configuration(16, 32, 16, 4, 2, tma=True),
    Configuration(32, 64, 32, 4, 2, tma=True, parts=4),
    Configuration(32, 64, 32, 4, 2, tma=True, parts=4, flat=False, stores_tma=True),
    Configuration(16, 32, 16, 4, 2, tma=True, parts=1, programs=0, stores_tma=True),
)


@pytest.mark.parametrize("chosen", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("shape", [(64, 64, 96), (40, 72, 56)], ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, True)], ids=str)
def test_configurations(chosen: Configuration, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, n, k = shape
    a, b = random(m, k, dtype=torch.float16), random(n, k, dtype=torch.float16)
    bias, residual = random(n, dtype=torch.float16), random(m, n, dtype=torch.float16)
    z = a.double() @ b.double().t() + bias.double()
    a = a.t().contiguous().t() if turned[0] else a
    b = b.t().contiguous().t() if turned[1] else b
    assert is_described(a)
    assert is_described(b)
    options: dict[str, Any] = {"bias": bias, "residual": residual, "activation": "relu", "save": True}
    out, saved = product(a, b, torch.float16, chosen=chosen, **options)
    assert_close(saved, z)
    assert_close(out, F.relu(z) + residual.double())


def test_strides_that_descriptors_do_not_take_go_through_pointers() -> None:
    a, b = random(20, 70, dtype=torch.float16)[:, 3:67:2], random(24, 32, dtype=torch.float16)
    assert not is_described(a)
    out, _ = product(a, b, torch.float16, chosen=CONFIGURATIONS[4])
    assert_close(out, a.double() @ b.double().t())
    compare(linear, F.linear, [random(4, 6, 40)[:, ::2, 3:20], random(17, 24)[:, 5:22]], roundings=8)


def test_nothing() -> None:
    x, weight = random(0, 8).requires_grad_(), random(5, 8).requires_grad_()
    linear(x, weight).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(5, 8))
    bias = random(5)
    assert torch.equal(linear(random(3, 0), random(5, 0), bias), bias.expand(3, 5))


def test_only_what_is_asked_for_is_differentiated() -> None:
    x, weight, bias = random(4, 9), random(7, 9).requires_grad_(), random(7)
    linear(x, weight, bias, activation="silu").sum().backward()
    assert weight.grad is not None
    with torch.no_grad():
        assert not linear(x, weight, bias, activation="silu").requires_grad


def test_operator() -> None:
    x, weight = random(4, 9).requires_grad_(), random(7, 9).requires_grad_()
    torch.library.opcheck(torch.ops.opweld.linear.default, (x, weight, None, None, "gelu", "ieee", True))


@pytest.mark.parametrize("arch", [80, 90])
def test_sums_are_split_where_multiprocessors_would_have_nothing(arch: int) -> None:
    large = configuration(arch, torch.bfloat16, (4096, 4096, 4096), 108, "ieee")
    assert large.split == 1
    assert large.tma == (arch >= 90)
    assert configuration(arch, torch.bfloat16, (16, 4096, 4096), 108, "ieee").split > 1
    assert configuration(arch, torch.bfloat16, (16, 4096, 64), 108, "ieee").split == 1


def test_what_does_not_fit_is_named() -> None:
    x, weight = random(4, 9), random(7, 9)
    with pytest.raises(InputError, match=r"weight has shape \(7, 8\), expected \(7, 9\)"):
        linear(x, random(7, 8))
    with pytest.raises(InputError, match=r"weight is torch.float16 on cpu, x is torch.float32 on cpu.*weight.to\(x\)"):
        linear(x, weight.half())
    with pytest.raises(InputError, match=r"residual has shape \(4, 9\), expected \(4, 7\)"):
        linear(x, weight, residual=x)
    with pytest.raises(InputError, match="activation is 'swish', expected one of none, relu"):
        linear(x, weight, activation="swish")
    with pytest.raises(InputError, match="precision is 'bf16'"):
        linear(x, weight, precision="bf16")  # pyright: ignore[reportArgumentType]
