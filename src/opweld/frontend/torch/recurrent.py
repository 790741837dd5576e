"""LSTM, GRU and RNN of `torch.nn`, which are traced whole: PyTorch would write out their steps, and fix how many."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import _VF  # pyright: ignore[reportPrivateUsage] - what the modules call
from torch.nn.modules import rnn

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import operator
from opweld.tensor.dtype import DType


class _Kind(NamedTuple):
    """A recurrence. gates: where ONNX's stand among PyTorch's."""

    op_type: str
    gates: tuple[int, ...]
    activation: str | None = None


_KINDS: Mapping[str, _Kind] = {
    "lstm": _Kind("LSTM", (0, 3, 1, 2)),
    "gru": _Kind("GRU", (1, 0, 2)),
    "rnn_tanh": _Kind("RNN", (0,), "Tanh"),
    "rnn_relu": _Kind("RNN", (0,), "Relu"),
}
_FUNCTIONS: Any = _VF


@torch.library.custom_op("opweld::recurrent", mutates_args=())
def recurrent(
    kind: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[torch.Tensor]:
    """What PyTorch's function of that name returns: x [time, batch, features], or with the batch first, states
    [layers * directions, batch, hidden]."""
    given = tuple(states) if kind == "lstm" else states[0]
    found = getattr(_FUNCTIONS, kind)(x, given, list(weights), biases, layers, 0.0, False, bidirectional, batch_first)
    return [own.clone() for own in cast("Sequence[torch.Tensor]", found)]


@recurrent.register_fake
def _(
    kind: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[torch.Tensor]:
    every = x.new_empty((*x.shape[:2], states[0].shape[2] * (2 if bidirectional else 1)))
    return [every, *(torch.empty_like(state) for state in states)]


@contextmanager
def recurrences_kept() -> Generator[None]:
    """Modules that are traced here call `recurrent`."""
    modules: Any = rnn
    modules._VF = _Kept()
    try:
        yield
    finally:
        modules._VF = _FUNCTIONS


class _Kept:
    """PyTorch's functions, of which recurrences are kept."""

    def __getattr__(self, name: str) -> Any:
        return partial(_call, name) if name in _KINDS else getattr(_FUNCTIONS, name)


def _call(kind: str, x: torch.Tensor, given: Any, *others: Any) -> Any:
    function: Callable[..., Any] = getattr(_FUNCTIONS, kind)
    states: tuple[torch.Tensor, ...] = tuple(given) if kind == "lstm" else (given,)
    weights = others[0]
    packed = isinstance(weights, torch.Tensor)  # (data, lengths, states, ...)
    if packed or len({state.shape[2] for state in states}) > 1:  # a projection is no part of ONNX's
        return function(x, given, *others)
    _, biases, layers, _, _, bidirectional, batch_first = others
    return tuple(recurrent(kind, x, states, weights, biases, layers, bidirectional, batch_first))


@operator("opweld", "recurrent.default")
def row(
    b: Builder,
    kind: str,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    biases: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    """A node for each layer."""
    told, directions = _KINDS[kind], 2 if bidirectional else 1
    each = 4 if biases else 2
    hidden = b.static(b.shape(weights[1])[1], "a hidden size")
    every = b.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    sizes = [b.size(x, 1 if batch_first else 0), b.size(x, 0 if batch_first else 1), hidden * directions]
    parts = [_parts(b, state, layers, directions) for state in states]
    lasts: list[list[Value]] = []
    for layer in range(layers):
        first = layer * directions * each
        own = [weights[first + direction * each :][:each] for direction in range(directions)]
        w, r, *halves = (
            _stacked(b, [_ordered(b, tensors[place], told.gates, hidden) for tensors in own]) for place in range(each)
        )
        made = b.ops(
            told.op_type,
            every,
            w,
            r,
            b.op("Concat", *halves, axis=1) if halves else None,
            None,
            *(part[layer] for part in parts),
            dtypes=[None] * (1 + len(states)),
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hidden,
            activations=[told.activation] * directions if told.activation else None,
            linear_before_reset=1 if kind == "gru" else None,
        )
        every = b.reshape(b.op("Transpose", made[0], perm=[0, 2, 1, 3]), sizes)
        lasts.append(made[1:])
    if batch_first:
        every = b.op("Transpose", every, perm=[1, 0, 2])
    return [every, *(_joined(b, list(own)) for own in zip(*lasts, strict=True))]


def _ordered(b: Builder, weight: Value, gates: Sequence[int], hidden: int) -> Value:
    """A weight whose gates come in another order."""
    if len(gates) == 1:
        return weight
    sizes = b.ints([hidden] * len(gates))
    parts = b.ops("Split", weight, sizes, dtypes=[None] * len(gates), axis=0)
    return b.op("Concat", *(parts[gate] for gate in gates), axis=0)


def _stacked(b: Builder, values: Sequence[Value]) -> Value:
    """Values of each direction along a new first axis."""
    return _joined(b, [b.op("Unsqueeze", value, b.constant([0], DType.I64)) for value in values])


def _joined(b: Builder, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else b.op("Concat", *values, axis=0)


def _parts(b: Builder, state: Value, layers: int, directions: int) -> list[Value]:
    """The state of each layer."""
    if layers == 1:
        return [state]
    return b.ops("Split", state, b.ints([directions] * layers), dtypes=[None] * layers, axis=0)
