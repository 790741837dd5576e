"""LSTM, GRU and RNN: of any number of steps, through `opweld.compile`."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils import _pytree as pytree

import opweld

pytestmark = pytest.mark.usefixtures("interpreter", "inference")

KINDS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
FORMS = [
    {"num_layers": layers, "bidirectional": both, "batch_first": first, "bias": bias}
    for (layers, both), (first, bias) in itertools.product([(1, False), (2, True)], [(True, True), (False, False)])
]


def right(module: torch.nn.Module, model: opweld.Model, *inputs: torch.Tensor) -> None:
    fed = {info.name: x.numpy() for info, x in zip(model.inputs, inputs, strict=True)}
    expected = pytree.tree_leaves(module(*inputs))
    for own, answer in zip(model.run(fed).values(), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(own), answer)


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_steps(kind: str, form: int) -> None:
    module = KINDS[kind](4, 3, **FORMS[form]).eval()
    model = opweld.compile(module, (torch.randn(2, 5, 4),), dynamic_shapes=({0: "n", 1: "m"},), target="interpret")
    for sizes in ((2, 5), (3, 7)):
        right(module, model, torch.randn(*sizes, 4))


def test_states_that_are_fed() -> None:
    module = torch.nn.LSTM(4, 3, 2).eval()
    states = torch.randn(2, 2, 3), torch.randn(2, 2, 3)
    model = opweld.compile(module, (torch.randn(5, 2, 4), states), target="interpret")
    x = torch.randn(5, 2, 4)
    found = model.run({"input": x.numpy(), "hx_0": states[0].numpy(), "hx_1": states[1].numpy()})
    y, (h, c) = module(x, states)
    for own, answer in zip(found.values(), (y, h, c), strict=True):
        torch.testing.assert_close(torch.as_tensor(own), answer)


def test_one_sequence_without_a_batch() -> None:
    module = torch.nn.RNN(4, 3, nonlinearity="relu").eval()
    model = opweld.compile(module, (torch.randn(5, 4),), dynamic_shapes=({0: "steps"},), target="interpret")
    right(module, model, torch.randn(8, 4))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_are_written_out() -> None:
    module = torch.nn.LSTM(4, 3, proj_size=2).eval()
    model = opweld.compile(module, (torch.randn(5, 2, 4),), target="interpret")
    right(module, model, torch.randn(5, 2, 4))


def test_verified_in_float64() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GRU(4, 3, batch_first=True)).eval()
    model = opweld.compile(module, (torch.randn(2, 5, 4),), dynamic_shapes=({1: "steps"},), target="interpret")
    assert model.verify().passed
