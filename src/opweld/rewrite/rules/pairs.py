"""Two nodes in a row of which the second undoes the first, or which one node can replace."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from opweld.rewrite.dtypes import TYPED_BY_NUMBER, cast_type, dtype_of
from opweld.rewrite.rule import Proposal, Refusal, Rule, handed_on
from opweld.rewrite.rules.bounds import bounds_of
from opweld.rewrite.rules.target import SINCE
from opweld.rewrite.scope import Scope, attribute, kept, operand
from opweld.tensor.dim import product

_MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Reshape-like operators: the same elements in the same order."""

_HOLDS: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    ir.DataType.FLOAT16: (ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.BFLOAT16: (ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.FLOAT: (ir.DataType.DOUBLE,),
    ir.DataType.BOOL: (
        ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT32, ir.DataType.INT64,
        ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
    ),
    ir.DataType.UINT8: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.INT8: (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE),
    ir.DataType.INT32: (ir.DataType.INT64, ir.DataType.DOUBLE),
}  # fmt: skip
"""For each element type, the types that represent all of its values."""


class Transposes(Rule):
    """Transpose(Transpose(x)) is one Transpose, or x."""

    name = "rewrite.transposes"
    operators = ("Transpose",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = scope.producer(operand(node, 0), "Transpose")
        if first is None or first.inputs[0] is None:
            return None
        source, outer, inner = first.inputs[0], attribute(node, "perm"), attribute(first, "perm")
        rank = len(outer or inner or scope.shape(source) or ())
        if not rank:
            return None
        outer, inner = (list(order) if order is not None else [*range(rank)][::-1] for order in (outer, inner))
        order, output = [inner[axis] for axis in outer], node.outputs[0]
        if order == list(range(rank)):
            return handed_on(node, source, scope, "the second transposition undoes the first", first)

        def apply() -> None:
            scope.replace(output, scope.add(node, "Transpose", [source], perm=order))

        return Proposal("two transpositions are one", apply, (first,), scope.traffic(output))


class TransposedBatch(Rule):
    """Transposed matrices whose other axes are reshaped to one in between are a transposition of all axes."""

    name = "rewrite.transposed_batch"
    operators = ("Reshape",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        swap = scope.producer(operand(node, 0), "Transpose")
        first = None if swap is None else scope.producer(operand(swap, 0), *_MOVES)
        source = None if first is None else operand(first, 0)
        if swap is None or first is None or source is None or not scope.only_reader(swap.outputs[0]):
            return None
        before, between, after = (scope.shape(value) for value in (source, first.outputs[0], node.outputs[0]))
        perm = [int(axis) for axis in attribute(swap, "perm", ())]
        if before is None or between is None or after is None or not perm or perm[0] != 0:
            return None
        outer = len(before) - (len(between) - 1)
        if outer < 1 or between[1:] != before[outer:]:
            return None
        order = [*range(outer), *(outer - 1 + axis for axis in perm[1:])]
        if after != tuple(before[axis] for axis in order):
            return None
        output = node.outputs[0]

        def apply() -> None:
            scope.replace(output, scope.add(node, "Transpose", [source], perm=order))

        return Proposal("the axes before it stay as they are", apply, (swap, first), scope.traffic(output))


class Reshapes(Rule):
    """A reshape of a reshape is a reshape of its input, or the input itself."""

    name = "rewrite.reshapes"
    operators = _MOVES

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = scope.producer(operand(node, 0), *_MOVES)
        if first is None or first.inputs[0] is None:
            return None
        source, output = first.inputs[0], node.outputs[0]
        shape = scope.shape(output)
        if shape is None or scope.opset < SINCE:
            return None
        if shape == scope.shape(source):
            return handed_on(node, source, scope, "the second restores the shape that the first changed", first)
        sizes = [dim.constant for dim in shape]
        if sizes.count(None) > 1:
            return Refusal("more than one size is not known", {"shape": "x".join(map(str, shape))}, (first,))
        if 0 in sizes:
            return Refusal("it has no elements", {"shape": "x".join(map(str, shape))}, (first,))
        if not scope.only_reader(first.outputs[0]):
            return None  # the first remains, and one reshape costs as much as another
        before = scope.shape(source)
        if None in sizes and (before is None or product(before) != product(shape)):
            return Refusal("the first may fail, which -1 would hide", {"shape": "x".join(map(str, shape))}, (first,))
        wanted = np.array([-1 if size is None else size for size in sizes], np.int64)

        def apply() -> None:
            scope.replace(output, scope.add(node, "Reshape", [source, scope.store(node, wanted)]))

        return Proposal("only the last shape matters", apply, (first,), scope.traffic(output))


class Casts(Rule):
    """Cast(Cast(x)) is one Cast, or x, where the type between holds all numbers of x."""

    name = "rewrite.casts"
    operators = ("Cast",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = scope.producer(operand(node, 0), "Cast")
        if first is None or first.inputs[0] is None:
            return None
        source, output = first.inputs[0], node.outputs[0]
        before = dtype_of(source, scope)
        if before is None:
            return None
        between, after = cast_type(first), cast_type(node)
        if between != before and between not in _HOLDS.get(before, ()):
            return Refusal(
                "the type between cannot hold all numbers", {"from": before.name, "to": between.name}, (first,)
            )
        if after == before:
            return handed_on(node, source, scope, f"{between.name} holds all numbers of {before.name}", first)

        def apply() -> None:
            to = int(after) if scope.opset >= TYPED_BY_NUMBER else after.name
            scope.replace(output, scope.add(node, "Cast", [source], to=to, **kept(node, "to")))

        return Proposal(f"{between.name} holds all numbers of {before.name}", apply, (first,), scope.traffic(output))


class SplitConcat(Rule):
    """Concat of all parts that a Split made, in their order along the same axis, is the value that was split."""

    name = "rewrite.split_concat"
    operators = ("Concat",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        split = scope.producer(operand(node, 0), "Split")
        if split is None or split.inputs[0] is None or len(split.outputs) != len(node.inputs):
            return None
        if any(part is not made for part, made in zip(node.inputs, split.outputs, strict=True)):
            return None
        source = split.inputs[0]
        shape = scope.shape(source)
        axes = {int(attribute(split, "axis", 0)), int(attribute(node, "axis", 1))}
        axes = {axis % len(shape) for axis in axes} if shape else axes
        if len(axes) > 1:
            return Refusal("it joins along another axis", {"axes": ", ".join(map(str, sorted(axes)))}, (split,))
        return handed_on(node, source, scope, "the parts are joined as they were split", split)


class ConcatSlice(Rule):
    """A Slice of a Concat that takes exactly one of its parts is that part."""

    name = "rewrite.concat_slice"
    operators = ("Slice",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        joined = scope.producer(operand(node, 0), "Concat")
        if joined is None:
            return None
        shape, output = scope.shape(joined.outputs[0]), node.outputs[0]
        bounds = None if shape is None else bounds_of(node, len(shape), scope)
        if shape is None or bounds is None or bounds.steps != [1]:
            return None
        axis = int(attribute(joined, "axis", 1)) % len(shape)
        parts = [value for value in joined.inputs if value is not None]
        shapes = [scope.shape(part) for part in parts]
        sizes = [None if found is None else found[axis].constant for found in shapes]
        if bounds.axes != [axis] or any(size is None for size in sizes):
            return None
        edges = [0, *itertools.accumulate(int(size or 0) for size in sizes)]
        start, end = (min(max(n + edges[-1] if n < 0 else n, 0), edges[-1]) for n in (bounds.starts[0], bounds.ends[0]))
        for part, low, high in zip(parts, edges, edges[1:], strict=False):
            if (start, end) == (low, high) and scope.replaceable(output, part):
                reason = "the slice is one of the parts that were joined"
                return Proposal(reason, lambda part=part: scope.replace(output, part), (joined,), scope.traffic(output))
        return Refusal("the slice is not one of the parts that were joined", {"from": start, "to": end}, (joined,))
