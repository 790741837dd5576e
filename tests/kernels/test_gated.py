"""SwiGLU and GEGLU against float64, forward and backward, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import geglu, swiglu
from tests.kernels.compared import compare, random


def swiglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def geglu_reference(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(gate, approximate=approximate) * up


FORMS = {
    "swiglu": (swiglu, swiglu_reference),
    "geglu": (geglu, geglu_reference),
    "geglu tanh": (partial(geglu, approximate="tanh"), partial(geglu_reference, approximate="tanh")),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1,), (5, 123), (3, 2, 129), (2, 2049)], ids=str)
def test_gated(form: tuple[Callable[..., Any], Callable[..., Any]], dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    compare(*form, [random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=1)])


def test_halves_of_one_tensor_strides_and_nothing() -> None:
    compare(
        lambda both: swiglu(*both.chunk(2, -1)), lambda both: swiglu_reference(*both.chunk(2, -1)), [random(3, 246)]
    )
    compare(swiglu, swiglu_reference, [random(9, 4).t(), random(8, 20)[::2, 3:12]])
    for shape in ((0, 4), (4, 0)):
        gate = random(*shape).requires_grad_()
        swiglu(gate, gate).sum().backward()
        assert gate.grad is not None


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # the interpreter is NumPy
def test_what_has_no_exponential() -> None:
    """silu of large negative numbers is 0, not 0 times infinity."""
    gate = torch.tensor([-1e4, -89.0, 89.0, 1e4])
    torch.testing.assert_close(swiglu(gate, torch.ones(4)), torch.tensor([0.0, 0.0, 89.0, 1e4]), rtol=0, atol=1e-30)


def test_gradcheck_and_operators() -> None:
    inputs = [random(3, 5, dtype=torch.float64, seed=seed).requires_grad_() for seed in (0, 1)]
    assert torch.autograd.gradcheck(swiglu, inputs)
    assert torch.autograd.gradcheck(geglu, inputs)
    torch.library.opcheck(torch.ops.opweld.swiglu.default, tuple(inputs))
    torch.library.opcheck(torch.ops.opweld.geglu.default, (*inputs, "gelu_tanh"))


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"up has shape \(4,\), expected \(5,\)"):
        swiglu(random(5), random(4))
    with pytest.raises(InputError, match=r"up is torch\.float16 on cpu, gate is torch.float32"):
        geglu(random(5), random(5).half())
    with pytest.raises(InputError, match=r"approximate is 'sigmoid', expected none or tanh"):
        geglu(random(5), random(5), approximate="sigmoid")  # pyright: ignore[reportArgumentType]
