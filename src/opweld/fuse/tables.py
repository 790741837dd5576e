"""Tables: what is a function of one byte is looked up among its 256 values.

    h u8 = u8(round(div(erf(div(mul(f32(x), 0.13), 1.41)), 0.0078)) + 128)        x u8, from memory or computed

Models that others quantised round to bytes between all operators: a GELU of such a model is an erf and five roundings,
all of them functions of the byte that the product before is rounded to. Tables are computed as the expressions would
be, in the types that these have, when the model is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opweld.fuse.integers import BYTES
from opweld.fuse.prologues import folded
from opweld.fuse.use_def import UseDef
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Const,
    Expr,
    Load,
    Lookup,
    Reduce,
    bitcast,
    load,
    lookup,
    transform,
    walk,
)
from opweld.tensor.program import Constant, Tensor


@dataclass(frozen=True)
class Tabulated:
    """A function of a byte: the expression, and the byte."""

    value: Expr
    byte: Expr


def tabulate(graph: UseDef) -> None:
    """Functions of bytes become tables where that is predicted to take less, each tensor a decision in the ledger."""
    for name in list(graph.items):
        tensor = graph.tensor(name)
        if tensor is None:
            continue
        body = tensor.body
        for item in functions_of_bytes(body):
            if graph.prices.is_worth_a_table(_nodes(item)):
                body = transform(body, lambda node, item=item: _looked_up(item) if node is item.value else None)
        made = replace(tensor, body=body)
        if body is not tensor.body and graph.tables(tensor, made):
            graph.put(made)


def functions_of_bytes(body: Expr) -> list[Tabulated]:
    """The largest parts of an expression, outside of reductions, that are bytes and depend on a single other byte.
    Outer ones come before those that make their bytes."""
    sources = _sources(body)
    found: list[Tabulated] = []
    todo, seen = [body], set[Expr]()
    while todo:
        node = todo.pop()
        if node in seen or isinstance(node, Reduce):
            continue
        seen.add(node)
        byte = sources.get(node)
        if node.dtype in BYTES and byte is not None and byte is not node and not isinstance(node, Lookup):
            found.append(Tabulated(node, byte))
            todo.append(byte)
        else:
            todo += node.operands
    return found


def _sources(body: Expr) -> dict[Expr, Expr | None]:
    """For each node the byte that it is a function of, itself where that is none other; None: there is no such byte,
    or nothing that varies."""
    sources: dict[Expr, Expr | None] = {}
    fixed: set[Expr] = set()
    for node in walk(body):
        operands = {operand for operand in node.operands if operand not in fixed}
        if isinstance(node, Const) or (node.operands and not operands and not isinstance(node, Load | Reduce)):
            fixed.add(node)
            sources[node] = None
            continue
        found = {sources[operand] for operand in operands}
        own = node if node.dtype in BYTES else None
        pure = len(found) == 1 and not isinstance(node, Load | Reduce)
        sources[node] = (next(iter(found)) or own) if pure else own
    return sources


def _looked_up(item: Tabulated) -> Expr:
    return bitcast(lookup(table_of(item), bitcast(item.byte, DType.U8)), item.value.dtype)


def table_of(item: Tabulated) -> bytes:
    """The values of a function at the bytes 0 to 255; of a signed byte, at those of the same bits."""
    axis = Axis("i0", 256)
    element = load("byte", item.byte.dtype, (axis.dim,))
    body = transform(item.value, lambda node: element if node is item.byte else None)
    values = np.arange(256, dtype=np.uint8).view(item.byte.dtype.numpy)
    known = Constant("byte", item.byte.dtype, (256,), lambda: values, ())
    table = folded(Tensor("table", item.value.dtype, (axis,), body, ()), {"byte": known}).read()
    return np.ascontiguousarray(table).view(np.uint8).tobytes()


def _nodes(item: Tabulated) -> list[Expr]:
    """What a function computes, without what makes its byte."""
    todo, found = [item.value], dict[Expr, None]()
    while todo:
        node = todo.pop()
        if node is not item.byte and node not in found:
            found[node] = None
            todo += node.operands
    return list(found)
