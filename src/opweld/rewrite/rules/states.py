"""Removes initial states of zeros, which are the default of a recurrence."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, attribute, operand

STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""By operator, the inputs that are initial states."""

MOVES = ("Expand", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Tile", "Slice", "Concat", "Identity")
"""Operators that map zeros to zeros."""


class Zeros(Rule):
    """A recurrence without initial states begins with zeros."""

    name = "rewrite.zero_states"
    operators = tuple(STATES)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        given = [at for at in STATES[node.op_type] if operand(node, at) is not None]
        zero = [at for at in given if _is_zero(operand(node, at), scope)]
        if not zero:
            return None
        producers = [scope.producer(operand(node, at)) for at in zero]

        def apply() -> None:
            for position in zero:
                state = node.inputs[position]
                node.replace_input_with(position, None)
                producer = None if state is None else state.producer()
                if producer is not None:
                    scope.drop(producer)
            scope.touch(node)

        return Proposal("it begins with zeros by itself", apply, tuple(made for made in producers if made is not None))


def _is_zero(value: ir.Value | None, scope: Scope) -> bool:
    """Whether all elements are zero."""
    for _ in range(16):
        known = scope.constant(value)
        if known is not None:
            return known.dtype.kind in "fiu" and not np.any(known)
        producer = scope.producer(value, "ConstantOfShape", *MOVES)
        if producer is None:
            return False
        if producer.op_type == "ConstantOfShape":
            filling = attribute(producer, "value")
            return filling is None or not np.any(filling.numpy())
        if producer.op_type == "Concat" and not all(_is_zero(part, scope) for part in producer.inputs[1:]):
            return False
        value = producer.inputs[0]
    return False
