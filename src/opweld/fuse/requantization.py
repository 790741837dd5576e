"""Scales that meet: what scales a sum of products and what the result is divided by become one factor.

    round(min(max(sum * m[c] + b[c] + x * r, low), high) / s)
      = round(min(max(sum * (m[c] / s) + b[c] / s + x * (r / s), low / s), high / s))
    u8(i32(round(min(max(y, low), high))) + z)
      = u8(round(min(max(y + z, low + z), high + z)))    with an even z, which is added to b[c] / s

A layer between quantized values ends so: the sum of its products has both operands' scales and a bias, an activation
clamps it, and QuantizeLinear divides by the scale of what is written. Constants are divided when the model is compiled,
so that of three roundings of each result one is left; where a quotient was a product and a correction, which is three
instructions, none is. Either way the result is what real numbers give but for some 2 ** -23 of it: only what lies as
near to the middle between two codes can become the other one. Nobody else reads what is divided and rounded here.

So end sums of two quantized values, products of them, and a chain of these that is computed together, where each value
between is rounded to what a byte holds.

An odd z stays where it is: halves are rounded to the even one of two codes, and an odd number more would change which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from opweld.fuse.integers import BYTES
from opweld.fuse.prologues import folded
from opweld.fuse.use_def import UseDef
from opweld.ledger import Alternative
from opweld.tensor.dim import Atom, Axis, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Unary,
    binary,
    cast,
    const,
    free_atoms,
    load,
    loads,
    substitute,
    transform,
    unary,
    walk,
)
from opweld.tensor.program import Constant, Tensor, unused
from opweld.tensor.rounding import rounded_integer

RULE = "fuse.requantize"
"""The rule of every decision here."""

SMALLEST, LARGEST = 2.0**-100, 2.0**100
"""Magnitudes of factors, 0 apart, between which they and their products by a scale are ordinary floats."""


def merge_scales(graph: UseDef) -> None:
    """Divides what scales and shifts sums by the scale that the result is divided by, each a decision in the ledger."""
    merging = _Merging(graph)
    made: list[Tensor] = []
    for name in graph.items:
        tensor = graph.tensor(name)
        if tensor is None:
            continue
        body = transform(tensor.body, lambda node, tensor=tensor: merging.merged(tensor, node))
        if body is not tensor.body and _decided(graph, tensor) == "one factor":
            made.append(replace(tensor, body=body))
    read = {node.tensor for tensor in made for node in loads(tensor.body)}
    graph.add_constants(constant for name, constant in merging.made.items() if name in read)
    for tensor in made:
        graph.put(tensor)


class _Merging:
    def __init__(self, graph: UseDef) -> None:
        self._graph = graph
        program = graph.program()
        self._constants: dict[str, Constant] = {constant.name: constant for constant in program.constants}
        self._taken = {*program.signatures}
        self._names: dict[tuple[Expr, tuple[Axis, ...]], str] = {}
        self.made: dict[str, Constant] = {}
        """The constants that merged expressions read, and some on the way to these."""

    def merged(self, tensor: Tensor, node: Expr) -> Expr | None:
        """A rounded quotient of a scaled sum with one factor; a byte of one and an even zero point with none."""
        if isinstance(node, Unary) and node.op == "round" and node.dtype is DType.F32:
            quotient = node.x
            if not isinstance(quotient, Binary) or not _is_scaled(quotient):
                return None
            if not self._is_of_integers(quotient):
                return None
            found = self._scaled(tensor, quotient.x, quotient)
            return None if found is None else unary("round", found)
        if isinstance(node, Cast) and node.dtype in BYTES:
            return self._shifted(tensor, node)
        return None

    # ------------------------------------------------------------------------------------------------------ the sums

    def _scaled(self, tensor: Tensor, value: Expr, quotient: Binary) -> Expr | None:
        """A value scaled as in a quotient, or a product, by a literal, with constants scaled instead; None where it has
        no factors."""
        if self._is_fixed(value):
            return self._constant(tensor, binary(quotient.op, value, quotient.y))
        if not isinstance(value, Binary) or value.dtype is not DType.F32:
            return None
        if value.op in ("add", "sub", "min", "max"):
            x, y = (self._scaled(tensor, operand, quotient) for operand in (value.x, value.y))
            return None if x is None or y is None else binary(value.op, x, y)
        if value.op == "mul":
            for factor, other in ((value.y, value.x), (value.x, value.y)):
                if self._is_fixed(factor):
                    made = self._constant(tensor, binary(quotient.op, factor, quotient.y))
                    return None if made is None else binary("mul", _unsigned_zero(other), made)
            for factor, other in ((value.y, value.x), (value.x, value.y)):
                if (made := self._scaled(tensor, factor, quotient)) is not None:
                    return binary("mul", other, made)
        return None

    def _shifted(self, tensor: Tensor, node: Cast) -> Expr | None:
        """A byte of a clamped, rounded number that an even one is added to, which is added before."""
        rounded, zero = rounded_integer(node.x)
        if rounded is None or rounded is node.x or rounded.dtype is not DType.F32 or zero % 2 or abs(zero) > 256:
            return None
        found = self._moved(tensor, rounded.x, float(zero))
        return None if found is None else cast(unary("round", found), node.dtype)

    def _moved(self, tensor: Tensor, value: Expr, zero: float) -> Expr | None:
        """A value plus a number, which is added to a constant that is there; of clamps, to both ends."""
        if self._is_fixed(value):
            return self._constant(tensor, binary("add", value, const(zero, DType.F32)))
        if not isinstance(value, Binary) or value.dtype is not DType.F32:
            return None
        if value.op in ("min", "max"):
            x, y = (self._moved(tensor, operand, zero) for operand in (value.x, value.y))
            return None if x is None or y is None else binary(value.op, x, y)
        if value.op == "add":
            for term, other in ((value.y, value.x), (value.x, value.y)):
                made = self._moved(tensor, term, zero)
                if made is not None:
                    return binary("add", other, made)
        return None

    def _is_of_integers(self, value: Expr) -> bool:
        """Whether a value is made of a sum of products, or of bytes and constants alone."""
        nodes = tuple(walk(value))
        if any(isinstance(node, Reduce) for node in nodes):
            return True
        read = [node for node in nodes if isinstance(node, Load) and node.tensor not in self._constants]
        return bool(read) and all(node.dtype in BYTES for node in read)

    # ------------------------------------------------------------------------------------------------- the constants

    def _is_fixed(self, value: Expr) -> bool:
        """Whether a value is made of constants and of nothing else."""
        nodes = tuple(walk(value))
        return not any(isinstance(node, Reduce | Index) for node in nodes) and all(
            node.tensor in self._constants and not node.guards for node in nodes if isinstance(node, Load)
        )

    def _constant(self, tensor: Tensor, value: Expr) -> Expr | None:
        """A value of constants as a literal, or as an element of a constant of its own; None where it has numbers that
        are no ordinary floats, or more of them than what it is made of."""
        own = tuple(axis for axis in tensor.axes if axis in free_atoms(value))
        if any(isinstance(atom, Axis) and atom not in own for atom in free_atoms(value)):
            return None
        read = {node.tensor: self._constants[node.tensor] for node in loads(value)}
        count = product(axis.extent for axis in own).constant
        if count is None or count > max((math.prod(map(int, one.shape)) for one in read.values()), default=1):
            return None
        axes = tuple(Axis(f"i{number}", axis.extent) for number, axis in enumerate(own))
        mapping: Mapping[Atom, object] = {old: new.dim for old, new in zip(own, axes, strict=True)}
        body = substitute(value, mapping)  # pyright: ignore
        key = body, axes
        if key not in self._names:
            name = unused(f"{tensor.name}_merged", self._taken)
            self._taken.add(name)
            made = folded(Tensor(name, value.dtype, axes, body, tensor.origin), read)
            numbers = np.abs(made.read())
            if not ((numbers == 0) | ((numbers >= SMALLEST) & (numbers <= LARGEST))).all():
                return None
            if not read:
                return const(float(made.read().item()), value.dtype)
            self._names[key] = name
            self._graph.ledger.set_label(name, f"{self._graph.ledger.label(tensor.name)} merged")
            self._constants[name] = self.made[name] = made
        return load(self._names[key], value.dtype, tuple(axis.dim for axis in own))


def _decided(graph: UseDef, tensor: Tensor) -> str:
    return graph.ledger.decide(
        rule=RULE,
        site=tensor.origin,
        subject=(tensor.name,),
        alternatives=(Alternative("one after the other"), Alternative("one factor")),
        prefer="one factor",
        reason="constants are divided when the model is compiled, and results are rounded once",
    )


def _unsigned_zero(value: Expr) -> Expr:
    """A rounded number that 0 is added to, lest it be -0, without: what a byte is rounded from may have either."""
    if isinstance(value, Binary) and value.op == "add" and isinstance(value.y, Const) and value.y.value == 0:
        return value.x
    return value


def _is_scaled(value: Binary) -> bool:
    """Whether a value is divided or multiplied by a positive literal that is an ordinary float."""
    return value.op in ("div", "mul") and isinstance(value.y, Const) and SMALLEST <= value.y.value <= LARGEST
