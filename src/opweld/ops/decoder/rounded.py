"""Products of rows rounded to 8 bits, see `tensor/rounded.py`.

RoundRows(x [rows, in])                codes int8 [rows, in], steps [rows, ceil(in / 256)], totals int32 [rows, in / 32]
RoundedMatMul(items [calls, 2], codes, steps, totals, panels uint8 [panels, bytes], units [panels, 16],
              numbers int16 [panels, blocks * 16] or, with minimums, [panels, blocks * 32];
              bits, zero, blocks, out)                                                         [rows, out]
RoundedGather(rows [...], panels, scales float32 [out, blocks], minimums?; bits, added)        [..., in]
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers, required_attribute
from opweld.tensor.dim import Dim, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.rounded import GROUP, ITEM, KINDS, LINE, PANEL, PART, ROWS


@infers("RoundRows", domain=DOMAIN)
def infer_rounded(scope: Inference, node: ir.Node) -> list[Fact]:
    """Codes, a step for each group, a total for each part."""
    rows, size = require_rank(scope.fact(required(node, 0)), 2, node, 2).shape
    groups, parts = as_dim(-(-int(size) // GROUP)), as_dim(_whole(size, PART, node))
    return [Fact(DType.I8, (rows, size)), Fact(DType.F32, (rows, groups)), Fact(DType.I32, (rows, parts))]


@lowers("RoundRows", domain=DOMAIN)
def lower_rounded(scope: Lowering, node: ir.Node) -> None:
    """A call for each row."""
    x = required(node, 0)
    rows, size = scope.fact(x).shape
    groups, parts = as_dim(-(-int(size) // GROUP)), as_dim(_whole(size, PART, node))
    results = [(DType.I8, (rows, size)), (DType.F32, (rows, groups)), (DType.I32, (rows, parts))]
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
    panels, width = scope.fact(required(node, 4)).shape
    blocks = int(required_attribute(node, "blocks"))
    if panels.constant != -(-out // PANEL) or width.constant != int(size) * PANEL * bits // 8:
        raise ModelError(f"{describe(node)}: panels of [{panels}, {width}] are no matrix of [{out}, {size}]")
    if _whole(size, PART, node) % blocks:
        raise ModelError(f"{describe(node)}: {blocks} blocks do not divide a row of {size}")
    if scope.fact(required(node, 6)).shape[1].constant not in (blocks * PANEL, 2 * blocks * PANEL):
        raise ModelError(f"{describe(node)}: numbers are not those of {blocks} blocks")
    return [Fact(DType.F32, (rows, as_dim(out)))]


@lowers("RoundedMatMul", domain=DOMAIN)
def lower_product(scope: Lowering, node: ir.Node) -> None:
    """A call for each item."""
    items, x = required(node, 0), required(node, 1)
    rows, size = scope.fact(x).shape
    out, zero, blocks = (as_dim(int(required_attribute(node, name))) for name in ("out", "zero", "blocks"))
    each = as_dim(_whole(size, PART, node) // int(blocks))
    pairs = int(scope.fact(required(node, 6)).shape[1]) // (int(blocks) * PANEL) - 1
    (name,) = scope.extern(
        KINDS[int(required_attribute(node, "bits"))],
        [scope.tensor(required(node, n)) for n in range(7)],
        [(DType.F32, (rows, out))],
        (rows, out, size, each, zero, as_dim(pairs)),
        scope.fact(items).shape[0],
    )
    scope.alias(node.outputs[0], name)


@infers("RoundedGather", domain=DOMAIN)
def infer_rows(scope: Inference, node: ir.Node) -> list[Fact]:
    """[...] -> [..., in]."""
    rows, panels, scales = (scope.fact(required(node, n)) for n in range(3))
    if rows.dtype is not DType.I64:
        raise ModelError(f"{describe(node)}: rows are {DType.I64!r}, not {rows.dtype!r}")
    size, (out, blocks) = _row_size(scope, node), require_rank(scales, 2, node, 2).shape
    if panels.shape[0].constant != -(-int(out) // PANEL) or _whole(size, PART, node) % int(blocks):
        raise ModelError(f"{describe(node)}: scales of [{out}, {blocks}] are not those of panels of {panels.shape}")
    minimums = given(node, 3)
    if minimums is not None and scope.fact(minimums).shape != scales.shape:
        raise ModelError(f"{describe(node)}: minimums have the shape of scales, [{out}, {blocks}]")
    return [Fact(DType.F32, (*rows.shape, size))]


@lowers("RoundedGather", domain=DOMAIN)
def lower_rows(scope: Lowering, node: ir.Node) -> None:
    """A call for each row; one that is not there is an error of the run."""
    rows, scales, minimums = required(node, 0), required(node, 2), given(node, 3)
    size, (out, blocks), shape = _row_size(scope, node), scope.fact(scales).shape, scope.fact(rows).shape
    each, added = _whole(size, PART, node) // int(blocks), int(required_attribute(node, "added"))
    (name,) = scope.extern(
        ROWS[int(required_attribute(node, "bits"))],
        [scope.tensor(value) for value in (rows, required(node, 1), scales, minimums or scales)],
        [(DType.F32, (*shape, size))],
        (out, size, as_dim(each), as_dim(added), as_dim(int(minimums is not None))),
        product(shape),
    )
    scope.alias(node.outputs[0], name)


def _row_size(scope: Inference | Lowering, node: ir.Node) -> Dim:
    """Of a row of the matrix of a RoundedGather."""
    width = scope.fact(required(node, 1)).shape[1].constant or 0
    return as_dim(width * 8 // (PANEL * int(required_attribute(node, "bits"))))


def _whole(size: Dim, each: int, node: ir.Node) -> int:
    count = size.constant
    if not count or count % LINE:
        raise ModelError(f"{describe(node)}: a row of {size} is no whole lines of {LINE}")
    return count // each
