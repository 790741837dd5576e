"""A kernel of Triton as another package would bring it, and a rule that has it measured: rows from their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from opweld.ir import Node
from opweld.operators import (
    Fact,
    Inference,
    Lowering,
    TritonKernel,
    computes,
    infers,
    kernel,
    lowers,
    product,
    required,
)
from opweld.rewrite import Proposal, Rule

TEXT = """
    @triton.jit
    def bench_reverse(x, y, n, rows):
        row = tl.program_id(0)
        for first in range(0, n, 1024):
            i = first + tl.arange(0, 1024)
            value = tl.load(x + row * n + i, mask=i < n)
            tl.store(y + row * n + n - 1 - i, value, mask=i < n)
"""


class Reversed(Rule):
    """A slice of step -1 is the row from its end."""

    name = "bench.reversed"
    operators = ("Slice",)
    measured = True

    def look(self, node: onnx_ir.Node, scope: Any) -> Proposal:
        """See `Rule`."""

        def apply() -> None:
            scope.replace(node.outputs[0], scope.add(node, "Reverse", [node.inputs[0]], domain="com.bench"))

        return Proposal("it is the row from its end", apply)


@infers("Reverse", domain="com.bench")
def infer(scope: Inference, node: Node) -> list[Fact]:
    """The fact of the input."""
    fact = scope.fact(required(node, 0))
    return [Fact(fact.dtype, fact.shape)]


@kernel(
    "bench_reverse",
    triton=lambda numbers, rows: TritonKernel(TEXT, grid=rows),
    parts=lambda numbers: (numbers[0], numbers[0]),
    work=lambda numbers: numbers[0],
)
def reverse(x: Any, y: Any, n: int) -> None:
    """A row."""
    y[:] = x[::-1]


@lowers("Reverse", domain="com.bench")
def lower(scope: Lowering, node: Node) -> None:
    """Calls the kernel."""
    fact = scope.fact(required(node, 0))
    *rows, n = fact.shape
    (made,) = scope.extern(
        "bench_reverse", [scope.tensor(required(node, 0))], [(fact.dtype, fact.shape)], [n], product(rows)
    )
    scope.alias(node.outputs[0], made)


@computes("Reverse", domain="com.bench")
def compute(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All rows."""
    return x[:, ::-1]
