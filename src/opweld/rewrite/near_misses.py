"""Finds near misses of rules without their help: the single condition that keeps a rule from matching a node.

The rule is matched again with the graph changed temporarily at one place that it visited: Casts removed, other readers
of a value ignored, operands of a node swapped, a number stored or changed. If it then matches, that condition alone
prevented it, and the ledger names it. So near misses follow from the pattern of any rule."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule, read_elsewhere
from opweld.rewrite.scope import Scope, Visited, attribute, qualified
from opweld.tensor.dim import ONE

ORDERED = ("Sub", "Div", "MatMul", "Concat")
"""Operators of two operands that are not commutative."""

ROUNDS = 4
"""How many times the Casts that a rule visits are removed, so that it gets further: there may be chains of Casts."""

SOME = 1.25
"""A number that no formula contains: if a rule matches with it, any number does."""

MANY = 64
"""Readers of a value: with more of them, a number is changed for the visited ones only."""

_Look = Callable[[], tuple[Proposal | Refusal | None, Visited]]


def near_miss(rule: Rule, node: ir.Node, scope: Scope) -> Refusal | None:
    """The single condition that keeps a rule from matching a node; None where there is none. The graph is restored."""

    def look() -> tuple[Proposal | Refusal | None, Visited]:
        visited = scope.visited = Visited({node: None})
        try:
            return rule.look(node, scope), visited
        finally:
            scope.visited = None

    found, visited = look()
    if found is not None:
        return None
    for search in (_shared, _casts, _swapped, _numbers):
        refusal = search(visited, look, scope)
        if refusal is not None:
            return refusal
    return None


def _shared(visited: Visited, look: _Look, scope: Scope) -> Refusal | None:
    """A value that must have no other reader has some."""
    for value in (shared for shared in visited.shared if shared.producer() is not next(iter(visited.nodes))):
        scope.alone = value
        try:
            found, _ = look()
        finally:
            scope.alone = None
        if isinstance(found, Refusal) and found.failed.get("value") == value.name:
            return found
        if isinstance(found, Proposal):
            return read_elsewhere(value, len(value.uses()) - 1, found.nodes)
    return None


def _casts(visited: Visited, look: _Look, scope: Scope) -> Refusal | None:
    """Casts between floating-point types. They come in pairs and are removed together; those that matter are named."""
    left_out, found = dict[ir.Node, ExitStack](), None
    with ExitStack() as stack:
        for _ in range(ROUNDS):
            met = [cast for cast in _casts_before(visited.nodes, scope) if cast not in left_out]
            for cast in met:
                left_out[cast] = stack.enter_context(ExitStack())
                left_out[cast].enter_context(_without(cast))
            found, visited = look() if met else (None, visited)
            if not met or isinstance(found, Proposal):
                break
        if not isinstance(found, Proposal):
            return None
        for cast in list(left_out) if len(left_out) > 1 else ():
            left_out[cast].close()
            if isinstance(look()[0], Proposal):
                del left_out[cast]
            else:
                left_out[cast].enter_context(_without(cast))
    named = list(reversed(left_out))  # the one that is computed first comes first
    failed: dict[str, int | str] = {
        "from": ", ".join(dict.fromkeys(_float_before(cast, scope) or "" for cast in named)),
        "to": ", ".join(dict.fromkeys(ir.DataType(int(attribute(cast, "to"))).name for cast in named)),
        "values": ", ".join(cast.outputs[0].name or "" for cast in named),
    }
    reason = "there is a Cast in between" if len(named) == 1 else "there are Casts in between"
    return Refusal(reason, failed, (*found.nodes, *named))


def _casts_before(nodes: Mapping[ir.Node, None], scope: Scope) -> Sequence[ir.Node]:
    """The Casts from floating point whose results nodes read."""
    producers = (scope.producer(value, "Cast") for node in nodes for value in node.inputs)
    return [cast for cast in dict.fromkeys(producers) if cast is not None and _float_before(cast, scope)]


def _float_before(cast: ir.Node, scope: Scope) -> str | None:
    """The name of the type that a Cast reads, where it is a floating one."""
    fact = scope.fact(cast.inputs[0])
    return ir.DataType(fact.dtype.onnx).name if fact is not None and fact.dtype.is_float else None


def _swapped(visited: Visited, look: _Look, scope: Scope) -> Refusal | None:
    """Operands in the wrong order."""
    for node in visited.nodes:
        if qualified(node) not in ORDERED or len(node.inputs) != 2:
            continue
        with _rewired({(node, 0): node.inputs[1], (node, 1): node.inputs[0]}):
            found, _ = look()
        if isinstance(found, Proposal):
            failed = {"value": node.outputs[0].name or ""}
            return Refusal(f"the operands of {node.op_type} are the other way round", failed, (*found.nodes, node))
    return None


@dataclass(frozen=True)
class _Number:
    """A number that a rule may have read: a scalar or an attribute of a node; None if unknown.

    Attributes:
        is_now: a context manager in which it has another value.
    """

    title: str
    known: float | None
    is_now: Callable[[float], AbstractContextManager[None]]


def _numbers(visited: Visited, look: _Look, scope: Scope) -> Refusal | None:
    """A number that differs from the required one, or is not known at compile time."""
    for number in _numbers_of(visited.nodes, scope):
        wanted, failed = visited.numbers, dict[str, int | str](value=number.title)
        if number.known is None:
            with number.is_now(SOME):
                found, further = look()
            if isinstance(found, Proposal):
                return Refusal("a number is not stored", failed, found.nodes)
            wanted = further.numbers
        for trial in _trials(SOME if number.known is None else number.known, wanted):
            with number.is_now(trial):
                found, _ = look()
            if isinstance(found, Proposal) and number.known is None:
                return Refusal("a number is not stored", {**failed, "wanted": f"{trial:g}"}, found.nodes)
            if isinstance(found, Proposal):
                failed |= {"is": f"{number.known:g}", "wanted": f"{trial:g}"}
                return Refusal("a number is not the one of the formula", failed, found.nodes)
    return None


def _trials(number: float, wanted: Mapping[tuple[float, float], None]) -> Sequence[float]:
    """The values of a number for which others that depend on it, by a factor, its inverse or a difference, have the
    required values."""
    made = list[float]()
    for has, target in wanted:
        if has and target:
            made += [number * target / has, number * has / target]
        made.append(number + target - has)
    return [trial for trial in dict.fromkeys(made) if np.isfinite(np.float32(trial))]


def _numbers_of(nodes: Mapping[ir.Node, None], scope: Scope) -> Iterator[_Number]:
    places = dict[ir.Value, list[tuple[ir.Node, int]]]()
    for node in nodes:
        for position, value in enumerate(node.inputs):
            shape = scope.shape(value)
            if value is not None and shape is not None and len(shape) <= 1 and all(dim is ONE for dim in shape):
                places.setdefault(value, []).append((node, position))
        for name, held in node.attributes.items():
            if held.type == ir.AttributeType.FLOAT or name == "axis":
                yield _Number(f"{node.outputs[0].name}.{name}", float(held.value), _attributes(node, name))
    for value, uses in places.items():
        number = scope.single(value)
        if number is None and len(value.uses()) <= MANY:  # it may occur several times in the formula
            uses = [(use.node, use.idx) for use in value.uses()]
        yield _Number(value.name or "", number, _scalars(value, uses, scope))


def _scalars(
    value: ir.Value, uses: Sequence[tuple[ir.Node, int]], scope: Scope
) -> Callable[[float], AbstractContextManager[None]]:
    fact, rank = scope.fact(value), len(scope.shape(value) or ())
    dtype = np.dtype(np.float32) if fact is None else fact.dtype.numpy

    def is_now(number: float) -> AbstractContextManager[None]:
        stored = ir.Value(const_value=ir.tensor(np.full((1,) * rank, number, dtype)))
        return _rewired(dict.fromkeys(uses, stored))

    return is_now


def _attributes(node: ir.Node, name: str) -> Callable[[float], AbstractContextManager[None]]:
    @contextmanager
    def is_now(number: float) -> Generator[None]:
        before = node.attributes[name]
        whole = before.type == ir.AttributeType.INT
        node.attributes[name] = ir.AttrInt64(name, round(number)) if whole else ir.AttrFloat32(name, number)
        try:
            yield
        finally:
            node.attributes[name] = before

    return is_now


def _without(cast: ir.Node) -> AbstractContextManager[None]:
    """A context manager in which readers of a Cast read its input instead."""
    changes: dict[tuple[ir.Node, int], ir.Value | None] = {(cast, 0): None}
    changes |= {(use.node, use.idx): cast.inputs[0] for use in cast.outputs[0].uses()}
    return _rewired(changes)


@contextmanager
def _rewired(changes: Mapping[tuple[ir.Node, int], ir.Value | None]) -> Generator[None]:
    """A context manager in which nodes read other values."""
    before = {(node, position): node.inputs[position] for node, position in changes}
    for (node, position), value in changes.items():
        node.replace_input_with(position, value)
    try:
        yield
    finally:
        for (node, position), value in before.items():
            node.replace_input_with(position, value)
