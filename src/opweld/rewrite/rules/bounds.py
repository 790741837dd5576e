"""The bounds of a Slice: attributes until opset 9, inputs since."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.scope import Scope, operand

BY_INPUT = 10
"""The opset in which the bounds of Slice became inputs."""


@dataclass(frozen=True)
class Bounds:
    """Starts and ends of a Slice by axis, axes counted from the front, and its steps."""

    starts: list[int]
    ends: list[int]
    axes: list[int]
    steps: list[int]


def bounds_of(node: ir.Node, rank: int, scope: Scope) -> Bounds | None:
    """The bounds of a Slice for data of the given rank; None if one is not known."""
    starts, ends = scope.integers(node, "starts", 1), scope.integers(node, "ends", 2)
    if starts is None or ends is None or not rank:
        return None
    named = "axes" in node.attributes or operand(node, 3) is not None
    axes = scope.integers(node, "axes", 3) if named else list(range(len(starts)))
    steps = [1] * len(starts) if operand(node, 4) is None else scope.integers(node, "steps", 4)
    if axes is None or steps is None:
        return None
    return Bounds(starts, ends, [axis % rank for axis in axes], steps)
