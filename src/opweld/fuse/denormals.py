"""Denormal weights: sums of products by constants of which some are denormal, below 2 ** -126, multiply by larger ones.

    sum<k>(mul(x[i, k], w[k, j]))   becomes   mul(sum<k>(mul(x[i, k], w_scaled[k, j])), 2 ** -23)

where w_scaled is 2 ** 23 times w, to the bit, and holds no denormal number. Training lets channels die, whose weights
end at 1e-40, and processors of Intel take a hundred times as long to multiply by one of these.

What a channel that died computes is denormal, too, and so is all that the next product multiplies it by. Of a channel k
all of whose weights are tiny, x is scaled as well:

    x_scaled[i, k] = mul(x[i, k], scales[k])       scales[k] = 2 ** 23 of such channels, else 1

and w_scaled by 2 ** 46 / scales[k]. Whoever computes x scales it in registers, as a rule.

The result is that of the same sum, rounded as it was: a power of two changes no digit. What is less than 2 ** -126 on
the way is rounded less. What can differ is where numbers end: a sum of more than 2 ** 81 may become infinite. Where any
weight is more than 2 ** 80, all are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opweld.fuse.region import is_zero, reductions
from opweld.ledger import Alternative, Ledger
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Expr, Load, Reduce, binary, const, load, reduce, transform
from opweld.tensor.program import Constant, Item, Scan, Tensor, TensorProgram, item_inputs, unused
from opweld.tensor.semantics import Array

RULE = "fuse.denormal"
"""The rule of every decision here."""

FACTOR = 2.0**23
"""What makes the least denormal float32, 2 ** -149, the least normal one."""
LEAST = float(np.finfo(np.float32).smallest_normal)
TINY = 2.0**-80
"""A channel all of whose weights are less, and not 0, has died."""
MOST = 2.0**80
CHUNK = 1 << 16
"""Weights that are looked at together, so that both passes over them find them in cache."""


def scale_denormals(program: TensorProgram, ledger: Ledger) -> TensorProgram:
    """The program with denormal weights of sums of products of float32 scaled, each a decision in the ledger."""
    return _Scaling(program, ledger).run()


@dataclass(frozen=True)
class _Channels:
    """Where both operands of a sum are indexed by what is summed: the position in x and in w; which channels died."""

    x: int
    w: int
    dead: tuple[bool, ...]


class _Scaling:
    def __init__(self, program: TensorProgram, ledger: Ledger) -> None:
        self._program = program
        self._ledger = ledger
        self._constants = {constant.name: constant for constant in program.constants}
        self._signatures = program.signatures
        self._names = set(self._signatures)
        self._denormals: dict[str, tuple[int, float]] = {}
        self._made: dict[tuple[str, _Channels | None], Constant] = {}
        self._scales: dict[tuple[bool, ...], Constant] = {}
        self._operands: dict[tuple[str, int, tuple[bool, ...]], Tensor] = {}

    def run(self) -> TensorProgram:
        """The program as decided."""
        items: list[Item] = []
        for item in self._program.items:
            begun = len(self._operands)
            made = self._item(item)
            items += (*list(self._operands.values())[begun:], made)
        if not self._made:
            return self._program
        read = {name for item in items for name in item_inputs(item)} | {value for _, value in self._program.outputs}
        sources = {source for source, _ in self._made}
        kept = (c for c in self._program.constants if c.name in read or c.name not in sources)
        constants = (*kept, *self._made.values(), *self._scales.values())
        return replace(self._program, items=tuple(items), constants=constants)

    def _item(self, item: Item) -> Item:
        if isinstance(item, Tensor):
            return self._tensor(item)
        if isinstance(item, Scan):
            steps = tuple(self._tensor(step, within=True) for step in item.steps)
            changed = any(new is not old for new, old in zip(steps, item.steps, strict=True))
            return replace(item, steps=steps) if changed else item
        return item

    def _tensor(self, item: Tensor, within: bool = False) -> Tensor:
        """The tensor with sums by scaled weights. `within`: it is a step of a recurrence, as its operands may be."""
        sums = reductions(item.body)
        scaled: dict[Expr, Expr] = {s: made for s in sums if (made := self._scaled(item, s, within)) is not None}
        return replace(item, body=transform(item.body, lambda node: scaled.get(node))) if scaled else item

    def _scaled(self, item: Tensor, summed: Reduce, within: bool) -> Expr | None:
        """A sum of products by weights with these scaled, where it is decided so."""
        body = summed.body
        if summed.kind != "sum" or not isinstance(body, Binary) or body.op != "mul":
            return None
        w = next((factor for factor in (body.y, body.x) if self._is_weight(factor)), None)
        if not isinstance(w, Load) or not self._decided(item, w):
            return None
        x = body.x if w is body.y else body.y
        channels = None if within or not isinstance(x, Load) else self._channels(x, w, summed.axes)
        if channels is not None and isinstance(x, Load):
            name = self._operand(x.tensor, channels, item.origin).name
            x = load(name, x.dtype, x.indices, x.guards, x.fill)
        name = self._weights(w.tensor, channels).name
        products = binary("mul", x, load(name, w.dtype, w.indices, w.guards, w.fill))
        factor = FACTOR if channels is None else FACTOR**2
        return binary("mul", reduce("sum", summed.axes, products), const(1 / factor, DType.F32))

    def _is_weight(self, factor: Expr) -> bool:
        """Whether a factor is an element of a constant of float32, or 0 beyond its edges."""
        if not isinstance(factor, Load) or factor.dtype is not DType.F32 or factor.tensor not in self._constants:
            return False
        return is_zero(factor.fill)

    def _decided(self, item: Tensor, w: Load) -> bool:
        """Whether weights with denormal ones among them are scaled; nothing is decided about others."""
        constant = self._constants[w.tensor]
        if w.tensor not in self._denormals:
            self._denormals[w.tensor] = denormals(constant.read())
        count, most = self._denormals[w.tensor]
        if not count:
            return False
        failed: dict[str, int | str] = {} if most <= MOST else {"largest": f"{most:.3g}", "most": f"{MOST:.3g}"}
        taken = self._ledger.decide(
            rule=RULE,
            site=item.origin,
            subject=(item.name, w.tensor),
            alternatives=(Alternative("as they are"), Alternative("scaled")),
            prefer="as they are" if failed else "scaled",
            reason=f"{count} of {math.prod(constant.shape)} weights are below the least normal number",
            failed=failed,
        )
        return taken == "scaled"

    # ---------------------------------------------------------------------------------------------------- the result

    def _channels(self, x: Load, w: Load, axes: Sequence[Axis]) -> _Channels | None:
        """The channels that died: None where none has, or where operands are not indexed by them."""
        if not is_zero(x.fill) or x.dtype is not DType.F32:
            return None
        for axis in axes:
            of_x = [n for n, index in enumerate(x.indices) if index.atom is axis]
            of_w = [n for n, index in enumerate(w.indices) if index.atom is axis]
            uses = sum(index.depends_on(axis) for index in (*x.indices, *w.indices))
            if len(of_x) != 1 or len(of_w) != 1 or uses > 2:
                continue
            held = np.abs(np.moveaxis(self._constants[w.tensor].read(), of_w[0], 0))
            most = held.reshape(len(held), -1).max(axis=1, initial=0.0)
            dead = (most > 0) & (most < TINY)
            if self._signatures[x.tensor][1][of_x[0]].constant == len(dead) and dead.any():
                return _Channels(of_x[0], of_w[0], tuple(dead.tolist()))
        return None

    def _operand(self, source: str, channels: _Channels, origin: tuple[str, ...]) -> Tensor:
        """An operand by the scales of its channels."""
        key = (source, channels.x, channels.dead)
        if key not in self._operands:
            shape = self._signatures[source][1]
            axes = tuple(Axis(f"i{number}", extent) for number, extent in enumerate(shape))
            scale = load(self._scales_of(channels.dead).name, DType.F32, (axes[channels.x].dim,))
            body = binary("mul", load(source, DType.F32, tuple(axis.dim for axis in axes)), scale)
            self._operands[key] = Tensor(self._named(source), DType.F32, axes, body, origin)
        return self._operands[key]

    def _scales_of(self, dead: tuple[bool, ...]) -> Constant:
        if dead not in self._scales:
            scales = np.where(dead, np.float32(FACTOR), np.float32(1))
            name = unused("scales_of_dead_channels", self._names)
            self._names.add(name)
            self._scales[dead] = Constant(name, DType.F32, (len(dead),), lambda: scales)
        return self._scales[dead]

    def _weights(self, source: str, channels: _Channels | None) -> Constant:
        key = (source, channels)
        if key not in self._made:
            constant = self._constants[source]
            self._made[key] = replace(
                constant, name=self._named(source), read=lambda: _scaled_weights(constant.read(), channels)
            )
        return self._made[key]

    def _named(self, source: str) -> str:
        """What a scaled value is called."""
        name = unused(f"{source}_scaled", self._names)
        self._names.add(name)
        self._ledger.set_label(name, f"{self._ledger.label(source)} scaled")
        return name


def denormals(weights: Array) -> tuple[int, float]:
    """How many elements of a float32 array are denormal, and the largest magnitude where any is."""
    flat, count = weights.reshape(-1), 0
    for first in range(0, flat.size, CHUNK):
        size = np.abs(flat[first : first + CHUNK])
        if not size.min() >= LEAST:
            count += int(np.count_nonzero((size < LEAST) & (size != 0)))
    return count, float(np.abs(flat).max()) if count else 0.0


def _scaled_weights(weights: Array, channels: _Channels | None) -> Array:
    if channels is None:
        return weights * np.float32(FACTOR)
    factors = np.where(channels.dead, np.float32(FACTOR), np.float32(FACTOR**2))
    return weights * factors.reshape([-1 if n == channels.w else 1 for n in range(weights.ndim)])
