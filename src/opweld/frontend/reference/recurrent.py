"""DynamicQuantizeLSTM: an LSTM of 8-bit weights, whose input and hidden states are quantised dynamically.

Products of quantised data and weights are sums of integers, in units of both scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.reference.quantized import along, centred, in_units, rounded
from opweld.frontend.reference.standard import MICROSOFT, Array, sigmoid
from opweld.ops.registry import computes

Formula = Callable[[Array], Array]


@computes("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_lstm(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None,
    lengths: Array | None,
    first_h: Array | None,
    first_c: Array | None,
    peepholes: Array | None,
    w1: Array,
    w0: Array | None,
    r1: Array,
    r0: Array | None,
    *,
    result: Formula = lambda x: x,
    **attributes: Any,
) -> tuple[Array, Array, Array]:
    """X [T, B, I], W [D, I, 4 * H], R [D, H, 4 * H] -> Y [T, D, B, H], Y_h and Y_c [D, B, H]

    `result`: what each float on the way is taken for, of gates, activations and states; a test may round them."""
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    steps, batch, _ = x.shape
    hidden = r.shape[1]
    ends = np.full(batch, steps) if lengths is None else lengths
    whole, unit = rounded(x)
    results: list[tuple[Array, Array, Array]] = []
    for d, back in enumerate(backwards[attributes.get("direction") or "forward"]):
        weights = [_Weights.of(q[d], s[d], None if z is None else z[d]) for q, s, z in ((w, w1, w0), (r, r1, r0))]
        inputs = weights[0].times(whole, unit)
        if bias is not None:
            inputs = inputs + (bias[d, : 4 * hidden] + bias[d, 4 * hidden :])
        state = [np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in (first_h, first_c)]
        own = [_then(formula, result) for formula in _activations(attributes, d)]
        cell = _Cell(hidden, None if peepholes is None else peepholes[d], own, result, attributes)
        results.append(_run(cell, inputs, weights[1], state, ends, back))
    y, h, c = zip(*results, strict=True)
    return np.stack(y, 1), np.stack(h), np.stack(c)


@dataclass(frozen=True)
class _Weights:
    """Weights minus their zero points, int64, and their scale, for all or each column."""

    whole: Array
    scale: Array | int

    @staticmethod
    def of(weights: Array, scale: Array, zero: Array | None) -> _Weights:
        return _Weights(centred(weights, zero, 1), along(scale, 2, 1))

    def times(self, whole: Array, unit: Array) -> Array:
        """The product with rounded data."""
        return in_units(whole @ self.whole, unit * self.scale)


@dataclass(frozen=True)
class _Cell:
    hidden: int
    peepholes: Array | None
    activations: Sequence[Formula]
    result: Formula
    attributes: dict[str, Any]

    def after(self, gates: Array, c: Array) -> tuple[Array, Array]:
        """The states after a step, from the gates i, o, f, c before their activations."""
        i, o, f, g = np.split(self.result(gates), 4, axis=-1)
        p_i, p_o, p_f = (0, 0, 0) if self.peepholes is None else np.split(self.peepholes, 3)
        sigma, squash, squash_cell = self.activations
        update = sigma(self._clip(i + p_i * c))
        keep = 1 - update if self.attributes.get("input_forget") else sigma(self._clip(f + p_f * c))
        c = self.result(keep * c + update * squash(self._clip(g)))
        return self.result(sigma(self._clip(o + p_o * c)) * squash_cell(c)), c

    def _clip(self, x: Array) -> Array:
        limit = self.attributes.get("clip")
        return x if limit is None else np.clip(x, -limit, limit)


def _run(
    cell: _Cell, inputs: Array, recurrent: _Weights, state: Sequence[Array], ends: Array, back: bool
) -> tuple[Array, Array, Array]:
    """All steps of a direction. Sequences that have ended keep their states; their outputs are zero."""
    h, c = state
    batch = np.arange(len(ends))
    y = np.zeros((len(inputs), *h.shape), h.dtype)
    for t in range(len(inputs)):
        alive = t < ends
        place = np.where(alive, ends - 1 - t if back else t, 0)
        new_h, new_c = cell.after(inputs[place, batch] + recurrent.times(*rounded(h)), c)
        h, c = np.where(alive[:, None], new_h, h), np.where(alive[:, None], new_c, c)
        y[place[alive], batch[alive]] = h[alive]
    return y, h, c


def _then(formula: Formula, after: Formula) -> Formula:
    return lambda x: after(formula(x))


def _activations(attributes: dict[str, Any], direction: int) -> Sequence[Formula]:
    names = [name.lower() for name in attributes.get("activations") or ()] or ["sigmoid", "tanh", "tanh"] * 2
    formulas: dict[str, Formula] = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
    own = names[3 * direction : 3 * direction + 3]
    if not formulas.keys() >= set(own):
        raise UnsupportedError(f"DynamicQuantizeLSTM has no reference with activations {', '.join(own)}")
    return [formulas[name] for name in own]
