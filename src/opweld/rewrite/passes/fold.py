"""Constant folding: in float64, rounded once, unless the file would grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from opweld.ledger import Alternative, Ledger
from opweld.ops.elements import to_array
from opweld.rewrite.evaluate import Evaluator
from opweld.rewrite.passes.merge import OWN_ANSWER
from opweld.rewrite.scope import Array, Scope, nbytes

NAME = "rewrite.fold"

SMALL = 256
"""Bytes that a folded value may take in any case: as many as a node takes."""


LARGEST = 1 << 26
"""The most elements of an intermediate value that is computed."""

NOT_FOLDED = OWN_ANSWER.union(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "If", "Loop", "Scan"))
"""Operators that are not deterministic, that define how a value is stored, and those with bodies."""


def fold(scope: Scope, ledger: Ledger, pool: int) -> None:
    """Stores known values that have other readers; together they may add `pool` bytes."""
    known = _known(scope)
    for node in list(scope.graph):
        wanted = [value for value in node.outputs if value in known and _is_read(value, known)]
        if not wanted or any(value not in known for value in node.outputs if value.uses() or value.is_graph_output()):
            continue
        if any(value.is_graph_output() for value in node.outputs):
            continue  # an output of the model must be computed by a node
        cost, freed = sum(nbytes(known[value]) for value in wanted), _freed(node, known)
        grown = 0 if cost <= SMALL else max(0, cost - freed)
        allowed = grown <= pool
        taken = scope.decide(
            ledger,
            rule=NAME,
            site=(node.name or "",),
            subject=node.outputs[0].name or "",
            alternatives=[Alternative("as written", bytes=freed), Alternative("computed", bytes=cost)],
            prefer="computed" if allowed else "as written",
            reason="it does not depend on inputs" if allowed else "the file would grow",
            failed=None if allowed else {"bytes": cost, "instead of": freed},
        )
        if taken == "computed":
            pool -= grown
            for value in wanted:
                scope.replace(value, scope.store(node, known[value]))
            scope.drop(node)


def _known(scope: Scope) -> dict[ir.Value, Array]:
    """Values computed by nodes of this graph that do not depend on inputs, rounded to their types."""
    known: dict[ir.Value, Array] = {}
    evaluator = Evaluator(scope, scope.opsets)
    for node in scope.graph:
        if node.op_type in NOT_FOLDED or node.domain not in ("", "ai.onnx"):
            continue
        sizes = [_from_sizes(scope, value) for value in node.outputs]
        if all(array is not None for array in sizes):
            known.update((v, array) for v, array in zip(node.outputs, sizes, strict=True) if array is not None)
            continue
        read = [value for value in _read(node, scope) if value is not None]
        if any(value not in known and scope.constant(value) is None for value in read):
            continue
        if any(_elements(scope, value) > LARGEST for value in node.outputs):
            continue
        made = evaluator.run(node, known)
        if made is not None:
            known.update(made)
    return known


def _read(node: ir.Node, scope: Scope) -> Sequence[ir.Value | None]:
    """The inputs whose elements are read: CastLike reads only the type of its second one."""
    return node.inputs[:1] if node.op_type == "CastLike" and scope.fact(node.outputs[0]) is not None else node.inputs


def _from_sizes(scope: Scope, value: ir.Value) -> Array | None:
    """The data, by inference, of a value that is computed from sizes alone."""
    fact = scope.fact(value)
    if fact is None or value.const_value is not None or fact.dtype.is_float:
        return None
    if fact.elements is not None:
        return to_array(fact.elements, fact.dtype)
    return None if fact.constant is None else np.asarray(fact.constant())


def _elements(scope: Scope, value: ir.Value) -> int:
    shape = scope.shape(value)
    return 0 if shape is None else int(np.prod([dim.constant or 1 for dim in shape], dtype=object))


def _is_read(value: ir.Value, known: Mapping[ir.Value, Array]) -> bool:
    """Whether a node reads it whose result is not known."""
    return any(any(output not in known for output in use.node.outputs) for use in value.uses())


def _freed(node: ir.Node, known: Mapping[ir.Value, Array]) -> int:
    """Bytes of the stored tensors that only this node and those that compute its operands read."""
    inner, pending = {node}, [node]
    stored: dict[ir.Value, None] = {}
    while pending:
        for value in pending.pop().inputs:
            producer = None if value is None else value.producer()
            if value is None or producer in inner:
                continue
            if producer is None:
                stored[value] = None
            elif value in known:
                inner.add(producer)
                pending.append(producer)
    own = [v for v in stored if all(use.node in inner for use in v.uses()) and v.const_value is not None]
    return sum(int(value.const_value.nbytes) for value in own if value.const_value is not None)
