"""Moves a number that scales a product into its weights, past a bias, reshapes and splits in between.

    s * (x W + b) is x (s W) + s b, and so are its parts, transposed or reshaped, if s is one number.

Weights are scaled in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, along, linear
from opweld.rewrite.rules.rounding import unfit, unfit_bias
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand, operands

_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that only move elements, with one data operand."""


@dataclass(frozen=True)
class _Path:
    """The nodes between a product and its factor.

    Attributes:
        product: the product by stored weights. bias: the bias added to it, and the node that adds it; None without one.
            between: the operators on that, in order. start, end: the columns of the product that remain.
    """

    product: Linear
    bias: Array | None
    between: tuple[ir.Node, ...]
    start: int
    end: int


class ScalePast(Rule):
    """A number that multiplies a product is folded into its weights, past a bias, a layout or a split."""

    name = "rewrite.scale_past"
    operators = ("Mul", "Div")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for data, other in operands(node):
            values = scope.constant(other)
            if data is None or values is None or values.dtype.kind != "f":
                continue
            found = _path(data, scope)
            if not isinstance(found, _Path):
                return found
            return _proposed(node, data, values, found, scope)
        return None


def _proposed(node: ir.Node, data: ir.Value, values: Array, found: _Path, scope: Scope) -> Proposal | Refusal | None:
    product, inner = found.product, (*found.between[::-1], found.product.node)
    moved = any(step.op_type != "Add" for step in found.between)
    single = values.size == 1 and values.ndim <= 1
    if scope.shape(node.outputs[0]) != scope.shape(data) or scope.shape(data) is None:
        return Refusal("the scaled value is broadcast", {"shape": str(values.shape)}, inner)
    factor = np.full(1, float(values.reshape(-1)[0])) if single else None if moved else along(values, product, scope)
    if factor is None:
        return Refusal("the factor differs from place to place", {"shape": str(values.shape)}, inner)
    columns = np.ones(product.outputs)
    with np.errstate(all="ignore"):
        columns[found.start : found.end] = 1 / factor if node.op_type == "Div" else factor
        scaled = product.scaled(columns)
        bias = None if found.bias is None else found.bias * columns
        stored = [array.astype(product.dtype) for array in (scaled, bias) if array is not None]
    refusal = unfit("weights", scaled, product.dtype, product.weights, inner)
    if refusal is None and bias is not None:
        refusal = unfit_bias(bias, product.dtype, inner)
    if refusal is not None:
        return refusal
    if not scope.replaceable(node.outputs[0], data):
        return Refusal("it names an output of the model", {"output": node.outputs[0].name or ""}, inner)
    return Proposal(
        "one factor for each column of a product",
        lambda: _write(node, found, stored, scope),
        inner,
        scope.traffic(node.outputs[0]),
    )


def _path(data: ir.Value, scope: Scope) -> _Path | Refusal | None:
    """The path from a value back to its product; None if there is none, or if the product follows directly and has its
    own bias, which other rules handle."""
    between, value, part = list[ir.Node](), data, (0, 0)
    bias: Array | None = None
    step = scope.producer(value, *_MOVES, "Split", "Add", "MatMul", "Gemm", "Conv")
    while step is not None and step.op_type not in ("MatMul", "Gemm", "Conv"):
        if not scope.only_reader(value):
            return None
        source = operand(step, 0)
        if step.op_type == "Split":
            columns = _columns(step, value, scope)
            if part != (0, 0) or columns is None:
                return None
            part = columns
        elif step.op_type == "Add":
            added = [other for other in step.inputs if scope.constant(other) is not None]
            bias = scope.constant(added[0]) if len(added) == 1 and bias is None else None
            source = next((other for other in step.inputs if other not in added), None)
            if bias is None:
                return None
        elif bias is not None:
            return None  # a bias that is added in another layout
        if source is None:
            return None
        between.insert(0, step)
        value, step = source, scope.producer(source, *_MOVES, "Split", "Add", "MatMul", "Gemm", "Conv")
    if step is None or (not between and step.op_type != "MatMul"):
        return None
    found = linear(step, scope)
    if not isinstance(found, Linear):
        return (
            found if between and isinstance(found, Refusal) and scope.constant(operand(step, 1)) is not None else None
        )
    return _completed(found, bias, tuple(between), part, scope)


def _completed(
    found: Linear, bias: Array | None, between: Sequence[ir.Node], part: tuple[int, int], scope: Scope
) -> _Path | None:
    if found.node.op_type == "Conv" and any(step.op_type == "Split" for step in between):
        return None  # its last axis is not one of results
    if len(found.node.inputs) > 2 and found.node.inputs[2] is not None:
        bias = found.bias if bias is None else None
        if bias is None:
            return None  # a sum after a bias: one of them comes first
    elif bias is not None:
        values, shape = along(bias, found, scope), scope.shape(found.node.outputs[0])
        if values is None or not shape or bias.ndim > len(shape):
            return None
        bias = values
    start, end = part if part != (0, 0) else (0, found.outputs)
    return _Path(found, bias, tuple(between), start, end)


def _columns(split: ir.Node, value: ir.Value, scope: Scope) -> tuple[int, int] | None:
    """Start and end of a part on the last axis."""
    shape = scope.shape(operand(split, 0))
    if not shape or int(attribute(split, "axis", 0)) % len(shape) != len(shape) - 1:
        return None
    parts = [scope.shape(output) for output in split.outputs]
    sizes = [None if part is None else part[-1].constant for part in parts]
    if None in sizes:
        return None
    known, at = [size or 0 for size in sizes], list(split.outputs).index(value)
    return sum(known[:at]), sum(known[: at + 1])


def _write(node: ir.Node, found: _Path, stored: Sequence[Array], scope: Scope) -> None:
    """The same nodes again, of the scaled weights and bias, in place of the scaled value."""
    product = found.product.node
    values = [scope.store(product, array) for array in stored]
    own = product.inputs[2] if len(product.inputs) > 2 else None
    inputs = [product.inputs[0], *(values if own is not None else values[:1])]
    made = scope.add(product, product.op_type, inputs, **kept(product))
    last = _annotated(made, product.outputs[0], scope)
    replaced = product.outputs[0]
    for step in found.between:
        given: list[ir.Value | None] = [last if value is replaced else value for value in step.inputs]
        if step.op_type == "Add" and own is None and len(values) > 1:
            given = [last, values[1]]
        results = scope.add_several(
            step, step.op_type, given, [bool(value.name) for value in step.outputs], **kept(step)
        )
        arrived = _next(step, found, node)
        for old, new in zip(step.outputs, results, strict=True):
            if not old.name:
                continue
            _annotated(new, old, scope)
            if old is arrived:
                last = new
            else:
                scope.replace(old, new)
        replaced = arrived
    scope.replace(node.outputs[0], last)


def _next(step: ir.Node, found: _Path, node: ir.Node) -> ir.Value:
    """The result of a step that the next one reads."""
    at = found.between.index(step) + 1
    reader = found.between[at] if at < len(found.between) else node
    return next(value for value in step.outputs if value in reader.inputs)


def _annotated(new: ir.Value, old: ir.Value, scope: Scope) -> ir.Value:
    shape = scope.shape(old)
    return new if shape is None else scope.tell(new, shape, old)
