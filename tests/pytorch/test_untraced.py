"""What is said of a module that torch.export cannot trace: why, at which line of it, and what can be done."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import opweld
from opweld.errors import ModelError, UnsupportedError
from tests.pytorch.function import Function

X = torch.ones(4, 3)


def branching(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def counting(x: Tensor) -> Tensor:
    found = x.nonzero()
    return x if len(found) == 0 else found


def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() + 1)


def fixed(x: Tensor) -> Tensor:
    return x.view(4, 3)


def paired(x: Tensor) -> Tensor:
    return x.unflatten(0, (-1, 2))


def doubled(x: Tensor) -> Tensor:
    return x * 2


def refusal(function: Any, dims: Any = None) -> str:
    with pytest.raises(ModelError) as raised:
        opweld.compile(Function(function).eval(), (X,), dynamic_shapes=dims and {"inputs": (dims,)})
    return str(raised.value)


@pytest.mark.parametrize("function", [branching, counting])
def test_what_depends_on_values_is_told_with_its_line_and_compiled_by_parts(function: Any) -> None:
    told = refusal(function)
    assert re.search(rf"data-dependent.*test_untraced\.py:\d+ in {function.__name__}: .*depends on the values", told)
    assert "compiles what is before and after it" in told
    assert "unhinted" not in told


def test_the_module_may_have_failed_by_itself() -> None:
    assert re.search(r"numpy.*test_untraced\.py:\d+ in through_numpy.*where eager mode answers", refusal(through_numpy))


@pytest.mark.parametrize("dim", [Dim("n"), "n"])
def test_a_dim_that_the_module_fixes_is_left_out(dim: Any) -> None:
    told = refusal(fixed, {0: dim})
    assert re.search(r"constant \(4\); leave that dim out of dynamic_shapes", told)
    assert "mark_dynamic" not in told


def test_a_dim_that_may_be_less_takes_what_pytorch_suggests() -> None:
    assert re.search(
        r"% 2\) == 0; PyTorch suggests .*n = 2\*_n; for a text in place of a Dim", refusal(paired, {0: Dim("n")})
    )


def test_dims_that_are_said_of_nothing_need_no_parts() -> None:
    with pytest.raises(ModelError, match=r"arg names \['inputs'\]") as raised:
        opweld.compile(Function(doubled).eval(), (X,), dynamic_shapes={"y": {0: "n"}})
    assert "torch.compile" not in str(raised.value)


def test_tokens_and_sparse_constants_are_told() -> None:
    with pytest.raises(UnsupportedError, match=r"_linalg_check_errors.* does something besides what it returns"):
        opweld.compile(Function(torch.linalg.inv).eval(), (torch.eye(3),))
    sparse = torch.eye(4).to_sparse()
    with pytest.raises(UnsupportedError, match=r"layout torch\.sparse_coo; give a dense one"):
        opweld.compile(Function(lambda x: torch.sparse.mm(sparse, x)).eval(), (X,))
