"""Softmax between two contractions, found in the tensors of a row: what a block can compute some columns at a time.

    m = max(s);  e = exp(s - m);  l = sum(e);  weights = e / l;  result = sum(weights v)

The result is sum(e v) / l, and with more columns all of m, l and sum(e v) go on from what they were: exp(old m - new m)
of it. So no row of scores needs to be there as a whole.

Sums are divided last, so that sum(e v) may be larger than the result: up to the number of columns times the largest v.
What overflows then is infinite (`--disable schedule.columns`); other roundings are no worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.fuse.region import Member, reductions
from opweld.fuse.rows import RowSpace
from opweld.tensor.dim import Atom, Axis, Dim
from opweld.tensor.expr import Binary, Const, Expr, Load, Reduce, Select, Unary, loads, substitute
from opweld.tensor.program import Tensor


@dataclass(frozen=True, eq=False)
class Softmax:
    """The tensors of a row that are one softmax.

    Attributes:
        maximum, total: one value a row. shares: exp of what is less than the maximum, not yet divided by the total.
        column: the axis of `shares` that is the column, of which there is one.
        guarded: whether shares that are NaN are 0 instead, as exporters write it for rows that are all masked. They are
            all NaN or none, as the total is.
        masked: whether shares of rows that are all -inf are 0 instead, and no others, as PyTorch has them.
    """

    maximum: Tensor
    total: Tensor
    shares: Tensor
    column: Axis
    guarded: bool = False
    masked: bool = False


def softmax_of(member: Member) -> tuple[Softmax | None, str]:
    """The softmax that a rowwise member is, or why it is none. Other tensors may come before it: masks, say."""
    space = member.space
    assert space is not None
    if len(space.columns) != 1:
        return None, "a row has several axes of columns"
    if any(space.picks(tensor) for tensor in member.tensors):
        return None, "a column is looked up"
    reducing = [tensor for tensor in member.tensors if reductions(tensor.body)]
    if [_kind(tensor) for tensor in reducing] != ["max", "sum"]:
        return None, "its reductions are not a maximum and then a sum"
    maximum, total = reducing
    summed = reductions(total.body)[0].body
    known = {tensor.name: tensor for tensor in member.tensors}
    shares = known.get(summed.tensor) if isinstance(summed, Load) else None
    if shares is None or not _is_exp(shares, maximum, space):
        return None, "what is summed is not exp of the difference to the maximum"
    column = next(a for a, p in zip(shares.axes, space.places[shares.name], strict=True) if p == ("column", 0))
    last = member.tensors[-1]
    quotient, guarded = _unguarded(last.body)
    own = {maximum.name, total.name, shares.name}
    unmasked, test = _unmasked(quotient, maximum, known)
    masked = unmasked is not quotient
    quotient = unmasked
    own |= {test} if test else set()
    if isinstance(quotient, Load) and quotient.tensor in known.keys() - own:
        own.add(quotient.tensor)
        quotient = known[quotient.tensor].body
    if not _is_quotient(quotient, shares, total):
        return None, "the result is not what is summed divided by the sum"
    others = [tensor for tensor in member.tensors if tensor.name not in {*own, last.name}]
    if any(node.tensor in own for tensor in others for node in loads(tensor.body)):
        return None, "something else reads a part of it"
    return Softmax(maximum, total, shares, column, guarded, masked), ""


def _kind(tensor: Tensor) -> str:
    """The kind of the reduction that a tensor is, and nothing else."""
    return tensor.body.kind if isinstance(tensor.body, Reduce) else ""


def _is_exp(shares: Tensor, maximum: Tensor, space: RowSpace) -> bool:
    """exp(scores - maximum), of the same scores that the maximum is of. Tensors of a row read each other at their own
    place in it, unless they look a column up (`RowSpace.picks`), so that their names say which element."""
    body = shares.body
    if not isinstance(body, Unary) or body.op != "exp" or not isinstance(body.x, Binary) or body.x.op != "sub":
        return False
    if not isinstance(body.x.y, Load) or body.x.y.tensor != maximum.name or maximum.dtype is not shares.dtype:
        return False
    rows, column = tuple(Axis(f"r{n}", extent) for n, extent in enumerate(space.rows)), Axis("c", space.columns[0])
    own = _own(shares, space, rows, column)
    return scores_of(maximum, space, rows, column) is substitute(body.x.x, own)


def scores_of(maximum: Tensor, space: RowSpace, rows: Sequence[Axis], column: Axis) -> Expr:
    """What the maximum is of, by axes that stand for the rows and for the column."""
    node = reductions(maximum.body)[0]
    return substitute(node.body, _own(maximum, space, rows, column) | {node.axes[0]: column.dim})


def _own(tensor: Tensor, space: RowSpace, rows: Sequence[Axis], column: Axis) -> dict[Atom, Dim]:
    """What a tensor's own axes are by those."""
    places = zip(tensor.axes, space.places[tensor.name], strict=True)
    return {axis: (rows[p[1]] if p[0] == "row" else column).dim for axis, p in places if p is not None}


def _unguarded(body: Expr) -> tuple[Expr, bool]:
    """A value without the test that makes its NaN 0, and whether there is one."""
    if isinstance(body, Select) and isinstance(body.x, Const) and body.x.value == 0:
        test = body.condition
        if isinstance(test, Unary) and test.op == "isnan" and test.x is body.y:
            return body.y, True
    return body, False


def _unmasked(body: Expr, maximum: Tensor, known: Mapping[str, Tensor]) -> tuple[Expr, str]:
    """A value without the test that makes it 0 where the maximum is -inf, and the tensor that is the test, if there is
    one."""
    if not isinstance(body, Select) or not isinstance(body.x, Const) or body.x.value != 0:
        return body, ""
    test, name = body.condition, ""
    if isinstance(test, Load) and test.tensor in known:
        test, name = known[test.tensor].body, test.tensor
    if not isinstance(test, Binary) or test.op != "eq" or not isinstance(test.y, Const) or test.y.value != -math.inf:
        return body, ""
    return (body.y, name) if isinstance(test.x, Load) and test.x.tensor == maximum.name else (body, "")


def _is_quotient(body: Expr, shares: Tensor, total: Tensor) -> bool:
    if not isinstance(body, Binary) or body.op != "div":
        return False
    parts = [part.tensor for part in (body.x, body.y) if isinstance(part, Load)]
    return parts == [shares.name, total.name]
