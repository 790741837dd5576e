"""Products of rows rounded to 8 bits, see `tensor/rounded.py`.

RoundRows(x [rows, in])                  codes int8 [rows, in], steps, sums, totals [rows, in / 32]
RoundedMatMul(items [calls, 2], codes, steps, sums, totals, panels uint8 [panels, bytes],
              scales, minimums? [panels, blocks * 16]; bits, zero, out)                        [rows, out]
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers, required_attribute
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.rounded import GROUP, ITEM, KINDS, PANEL


@infers("RoundRows", domain=DOMAIN)
def infer_rounded(scope: Inference, node: ir.Node) -> list[Fact]:
    """Codes, and three numbers for each group."""
    rows, size = require_rank(scope.fact(required(node, 0)), 2, node, 2).shape
    groups = (rows, as_dim(_groups(size, node)))
    return [Fact(DType.I8, (rows, size)), Fact(DType.F32, groups), Fact(DType.F32, groups), Fact(DType.I32, groups)]


@lowers("RoundRows", domain=DOMAIN)
def lower_rounded(scope: Lowering, node: ir.Node) -> None:
    """A call for each row."""
    x = required(node, 0)
    rows, size = scope.fact(x).shape
    groups = as_dim(_groups(size, node))
    results = [(DType.I8, (rows, size)), *[(DType.F32, (rows, groups))] * 2, (DType.I32, (rows, groups))]
    made = scope.extern("round_rows", [scope.tensor(x)], results, (size,), rows)
    for output, name in zip(node.outputs, made, strict=True):
        scope.alias(output, name)


@infers("RoundedMatMul", domain=DOMAIN)
def infer_product(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, in] x [out, in] -> [rows, out]."""
    items = require_rank(scope.fact(required(node, 0)), 2, node, 2)
    scope.same(items.shape[1], as_dim(ITEM), node, "numbers of a call")
    rows, size = require_rank(scope.fact(required(node, 1)), 2, node, 2).shape
    out, bits = int(required_attribute(node, "out")), int(required_attribute(node, "bits"))
    panels, width = scope.fact(required(node, 5)).shape
    blocks = _blocks(scope, node)
    if panels.constant != -(-out // PANEL) or width.constant != int(size) * PANEL * bits // 8:
        raise ModelError(f"{describe(node)}: panels of [{panels}, {width}] are no matrix of [{out}, {size}]")
    if _groups(size, node) % blocks:
        raise ModelError(f"{describe(node)}: {blocks} scales do not divide a row of {size}")
    return [Fact(DType.F32, (rows, as_dim(out)))]


@lowers("RoundedMatMul", domain=DOMAIN)
def lower_product(scope: Lowering, node: ir.Node) -> None:
    """A call for each item."""
    items, x, scales, minimums = required(node, 0), required(node, 1), required(node, 6), given(node, 7)
    rows, size = scope.fact(x).shape
    out, zero = as_dim(int(required_attribute(node, "out"))), as_dim(int(required_attribute(node, "zero")))
    each = as_dim(_groups(size, node) // _blocks(scope, node))
    # Where there are none, a tensor that is not read stands for them.
    operands = [*(required(node, n) for n in range(7)), scales if minimums is None else minimums]
    (name,) = scope.extern(
        KINDS[int(required_attribute(node, "bits")), scope.fact(scales).dtype],
        [scope.tensor(value) for value in operands],
        [(DType.F32, (rows, out))],
        (rows, out, size, each, zero, as_dim(int(minimums is not None))),
        scope.fact(items).shape[0],
    )
    scope.alias(node.outputs[0], name)


def _groups(size: Dim, node: ir.Node) -> int:
    count = size.constant
    if not count or count % GROUP:
        raise ModelError(f"{describe(node)}: a row of {size} is no whole groups of {GROUP}")
    return count // GROUP


def _blocks(scope: Inference | Lowering, node: ir.Node) -> int:
    return int(scope.fact(required(node, 6)).shape[1]) // PANEL
