"""Cross-entropy, of logits and of a linear layer, against float64 in Triton's interpreter."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import cross_entropy, linear_cross_entropy
from opweld.kernels.linear_cross_entropy import chunk_rows
from tests.kernels.compared import assert_close, compare, random


def targets(rows: int, classes: int, ignored: int = -100) -> Tensor:
    target = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(rows))
    target[::3] = ignored
    target[0] = classes - 1
    return target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(dtype: torch.dtype, reduction: Any, smoothing: float) -> None:
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    for rows, classes in ((1, 1), (5, 123), (7, 129)):
        ours = partial(cross_entropy, target=targets(rows, classes), **options)
        theirs = partial(F.cross_entropy, target=targets(rows, classes), **options)
        compare(ours, theirs, [3 * random(rows, classes, dtype=dtype)], scale=1.0)


def test_more_classes_than_a_block() -> None:
    target = targets(3, 10007)
    logits = random(3, 10007)
    logits[1] += torch.arange(10007) / 64  # the largest is met last
    options: dict[str, Any] = {"label_smoothing": 0.2}
    compare(lambda x: cross_entropy(x, target, **options), lambda x: F.cross_entropy(x, target, **options), [logits])


def test_the_gradient_takes_the_place_of_the_logits() -> None:
    base, target = random(5, 123), targets(5, 123)
    expected = base.double().requires_grad_()
    F.cross_entropy(expected, target).backward()
    leaf = base.clone().requires_grad_()
    logits = leaf * 1.0
    loss = cross_entropy(logits, target, reuse_logits=True)
    loss.backward(retain_graph=True)
    assert leaf.grad is not None
    assert expected.grad is not None
    assert_close(leaf.grad, expected.grad)
    assert_close(logits.detach(), expected.grad)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_gradient_takes_the_place_of_logits_that_nothing_computed() -> None:
    logits, target = random(5, 123).requires_grad_(), targets(5, 123)
    exact = logits.detach().double().requires_grad_()
    F.cross_entropy(exact, target).backward()
    (gradient,) = torch.autograd.grad(cross_entropy(logits, target, reuse_logits=True), logits)
    assert exact.grad is not None
    assert_close(gradient, exact.grad)
    assert gradient.data_ptr() == logits.data_ptr()


def test_rows_that_are_ignored_may_hold_anything() -> None:
    logits = random(3, 9)
    logits[1] = float("nan")
    logits.requires_grad_()
    loss = cross_entropy(logits, torch.tensor([3, 7, 1]), ignore_index=7)
    loss.backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad[1], torch.zeros(9))
    assert loss.isfinite()


def test_masked_classes_and_targets_that_are_none() -> None:
    logits = random(2, 10007)
    logits[:, :9000] = float("-inf")  # all of two blocks
    loss = cross_entropy(logits, torch.tensor([9001, 10006]))
    assert_close(loss, F.cross_entropy(logits.double(), torch.tensor([9001, 10006])))
    losses = cross_entropy(logits, torch.tensor([-1, 10007]), reduction="none")
    assert losses.isnan().all()


def test_strides_dimensions_and_nothing() -> None:
    target = targets(8, 20).view(4, 2)
    compare(
        lambda x: cross_entropy(x, target),
        lambda x: F.cross_entropy(x.reshape(8, 20), target.flatten()),
        [random(4, 4, 40)[:, ::2, 5:25]],
    )
    nothing = random(0, 5).requires_grad_()
    total = cross_entropy(nothing, torch.zeros(0, dtype=torch.int64), reduction="sum")
    total.backward()
    assert total == 0
    assert cross_entropy(random(2, 5), torch.full((2,), -100)).isnan()


def test_gradcheck_and_operator() -> None:
    logits, target = random(3, 5, dtype=torch.float64).requires_grad_(), targets(3, 5)
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, target, label_smoothing=0.1), [logits])
    torch.library.opcheck(torch.ops.opweld.cross_entropy.default, (logits, target, -100, 0.1, False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_linear_cross_entropy(dtype: torch.dtype, reduction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[chunk_rows.__module__], "LEAST_ROWS", 2)
    target = targets(9, 37)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1}

    def reference(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight, bias), target, **options)

    inputs = [random(9, 5, dtype=dtype), random(37, 5, dtype=dtype), random(37, dtype=dtype)]
    compare(
        lambda h, w, b: linear_cross_entropy(h, w, target, b, **options), reference, inputs, roundings=8, within=dtype
    )


def test_linear_cross_entropy_computes_what_is_wanted() -> None:
    hidden, weight, target = random(2, 3, 5), random(11, 5).requires_grad_(), targets(6, 11).view(2, 3)
    loss = linear_cross_entropy(hidden, weight, target)
    (2 * loss).backward()
    exact = weight.detach().double().requires_grad_()
    (2 * F.cross_entropy(hidden.double().view(6, 5) @ exact.t(), target.flatten())).backward()
    assert weight.grad is not None
    assert exact.grad is not None
    assert_close(weight.grad, exact.grad, 8)
    assert_close(linear_cross_entropy(hidden, weight.detach(), target), loss.detach().double())


def test_what_does_not_fit_is_named() -> None:
    logits, target = random(3, 5), targets(3, 5)
    with pytest.raises(InputError, match=r"target has shape \(2,\), expected \(3,\): one class for each row of logits"):
        cross_entropy(logits, target[:2])
    with pytest.raises(InputError, match="target is int32, expected int64: convert it"):
        cross_entropy(logits, target.int())
    with pytest.raises(InputError, match="reduction is 'none', expected one of mean, sum"):
        linear_cross_entropy(logits, random(4, 5), target, reduction="none")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"label_smoothing is 1\.5"):
        cross_entropy(logits, target, label_smoothing=1.5)
    with pytest.raises(InputError, match=r"weight has shape \(4, 6\), expected \(4, 5\)"):
        linear_cross_entropy(logits, random(4, 6), target)
