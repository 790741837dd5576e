"""Zeros that a recurrence begins with by itself."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, attribute, operand

STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""By operator, the inputs that are states it begins with."""

MOVES = ("Expand", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Tile", "Slice", "Concat", "Identity")
"""Operators of which zeros are zeros."""


class Zeros(Rule):
    """A recurrence without states to begin with begins with zeros."""

    name = "rewrite.zero_states"
    operators = tuple(STATES)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        given = [at for at in STATES[node.op_type] if operand(node, at) is not None]
        zero = [at for at in given if _is_zero(operand(node, at), scope)]
        if not zero:
            return None
        makers = [scope.maker(operand(node, at)) for at in zero]

        def apply() -> None:
            for position in zero:
                state = node.inputs[position]
                node.replace_input_with(position, None)
                maker = None if state is None else state.producer()
                if maker is not None:
                    scope.drop(maker)
            scope.touch(node)

        return Proposal("it begins with zeros by itself", apply, tuple(maker for maker in makers if maker is not None))


def _is_zero(value: ir.Value | None, scope: Scope) -> bool:
    """Whether all elements are zero."""
    for _ in range(16):
        known = scope.constant(value)
        if known is not None:
            return known.dtype.kind in "fiu" and not np.any(known)
        maker = scope.maker(value, "ConstantOfShape", *MOVES)
        if maker is None:
            return False
        if maker.op_type == "ConstantOfShape":
            filling = attribute(maker, "value")
            return filling is None or not np.any(filling.numpy())
        if maker.op_type == "Concat" and not all(_is_zero(part, scope) for part in maker.inputs[1:]):
            return False
        value = maker.inputs[0]
    return False
