"""Sequences and optionals, replaced by the tensors that they hold.

The contents of a sequence follow from the graph, and from what callers specify about inputs (`specialise.py`): lists of
tensors, and the pieces into which a tensor is split. So operators on them become Split, Slice, Gather, Concat and
aliases of tensors before inference. A sequence that is an output becomes several outputs. Bodies are in
`sequence_bodies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from opweld import interface
from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.check import ML
from opweld.frontend.nodes import attribute
from opweld.frontend.sequence_bodies import branch, loop, sequence_map
from opweld.frontend.sequence_scope import (
    ALSO_TENSORS,
    DECIDING,
    Handler,
    Held,
    Listed,
    Mapped,
    Nothing,
    Pieces,
    Result,
    SequenceScope,
)
from opweld.ops.operands import describe, given, required

MAX_PIECES = 10_000
"""The most pieces into which a tensor may be split."""

MAX_CHOICES = 16
"""The most tensors of a sequence from which one is taken at a run-time position."""


def resolve_sequences(model: ir.Model) -> list[Result]:
    """Replaces operators on sequences and optionals in place; outputs that are not tensors become outputs for the
    tensors that they hold. Returns the contents of each output.

    Raises ModelError for positions out of range, UnspecifiedError for contents that depend on an input,
    UnsupportedError for sequences that are only known at run time."""
    graph = model.graph
    scope = SequenceScope(graph, _HANDLERS)
    scope.fed |= {value: value.name or "" for value in graph.inputs if value.dtype in DECIDING}
    outputs = [_output(scope, value, result) for value, result in zip(graph.outputs, scope.results(), strict=True)]
    scope.finish([tensor for output in outputs for tensor in tensors(output)])
    return outputs


def tensors(result: Result) -> tuple[ir.Value, ...]:
    """The tensors of an output."""
    match result:
        case Listed(values):
            return values
        case Mapped(scores):
            return (scores,)
        case ir.Value():
            return (result,)
        case _:
            return ()


def form_of(result: Result) -> interface.Form:
    """The form of an output for callers."""
    match result:
        case Listed(values):
            return interface.Listed(tuple(interface.Tensor(value.name or "") for value in values))
        case Mapped(scores, keys):
            return interface.Mapped(scores.name or "", keys)
        case ir.Value():
            return interface.Tensor(result.name or "")
        case _:
            return None


def _output(scope: SequenceScope, value: ir.Value, result: Result) -> Result:
    """The contents of an output, with its tensors as outputs under names of their own."""
    if isinstance(result, ir.Value):
        return result
    taken = {own.name for node in scope.graph for own in node.outputs} | {own.name for own in scope.graph.inputs}

    def named(tensor: ir.Value, name: str) -> ir.Value:
        (made,) = scope.new(None, "Identity", [tensor])
        while name in taken:
            name += "_"
        taken.add(name)
        made.name = name
        return made

    match result:
        case Mapped(scores, keys):
            return Mapped(named(scores, value.name or ""), keys)
        case Nothing():
            return result
        case _:
            found = listed(scope, None, result, f"output {value.name!r}")
            return Listed(tuple(named(tensor, f"{value.name}[{i}]") for i, tensor in enumerate(found)))


# ------------------------------------------------------------------------------------------------ contents of sequences
# -


def _sequence(scope: SequenceScope, node: ir.Node) -> Listed | Pieces:
    """The contents of the first input; UnsupportedError when unknown."""
    value = required(node, 0)
    found = scope.held.get(value)
    if not isinstance(found, Listed | Pieces):
        raise UnsupportedError(
            f"{describe(node)}: the contents of the sequence {value.name!r} are only known at run time, which is "
            "not supported. Export the model with tensors in its place."
        )
    return found


def _listed(scope: SequenceScope, node: ir.Node) -> tuple[ir.Value, ...]:
    """The tensors of the first input."""
    return listed(scope, node, _sequence(scope, node), describe(node))


def _position(scope: SequenceScope, node: ir.Node, place: int) -> int | None:
    """A position that is known; None when the input is absent."""
    value = given(node, place)
    if value is None:
        return None
    numbers = scope.known(node, value, "position")
    if numbers.size != 1:
        raise ModelError(f"{describe(node)}: position {value.name!r} must be one number")
    return int(numbers.flat[0])


def _within(node: ir.Node, position: int, count: int) -> int:
    if not -count <= position < count:
        raise ModelError(f"{describe(node)}: position {position} is out of range for a sequence of {count}")
    return position % count


# ---------------------------------------------------------------------------------------------------------- operators


def _construct(_: SequenceScope, node: ir.Node) -> Listed:
    return Listed(tuple(required(node, position) for position in range(len(node.inputs))))


def _empty(_: SequenceScope, __: ir.Node) -> Listed:
    return Listed(())


def _insert(scope: SequenceScope, node: ir.Node) -> Listed:
    values, position = _listed(scope, node), _position(scope, node, 2)
    at = len(values) if position is None else position
    if not -len(values) <= at <= len(values):
        raise ModelError(f"{describe(node)}: position {at} is out of range for a sequence of {len(values)}")
    at += len(values) if at < 0 else 0
    return Listed((*values[:at], required(node, 1), *values[at:]))


def _erase(scope: SequenceScope, node: ir.Node) -> Listed:
    values, position = _listed(scope, node), _position(scope, node, 1)
    at = _within(node, -1 if position is None else position, len(values))
    return Listed((*values[:at], *values[at + 1 :]))


def _at(scope: SequenceScope, node: ir.Node) -> ir.Value:
    found, value = _sequence(scope, node), required(node, 1)
    if isinstance(found, Pieces) and found.length == 1:
        shape = scope.constant(node, [] if found.dropped else [1])
        (place,) = scope.new(node, "Reshape", [value, shape])
        return scope.new(node, "Gather", [found.whole, place], attributes={"axis": found.axis})[0]
    if isinstance(found, Listed) and scope.number(value) is None:
        return _chosen(scope, node, found.values, value)
    position = _position(scope, node, 1)
    assert position is not None
    if isinstance(found, Listed):
        return found.values[_within(node, position, len(found.values))]
    if position < 0:
        raise UnsupportedError(f"{describe(node)}: position {position} from the end of pieces of unknown number")
    bounds = [scope.constant(node, [n]) for n in (position * found.length, (position + 1) * found.length, found.axis)]
    return scope.new(node, "Slice", [found.whole, *bounds])[0]


def _chosen(scope: SequenceScope, node: ir.Node, values: Sequence[ir.Value], position: ir.Value) -> ir.Value:
    """The tensor at a position known at run time: a branch for each."""
    if not 0 < len(values) <= MAX_CHOICES:
        raise UnsupportedError(
            f"{describe(node)}: position {position.name!r} is only known at run time, and the sequence holds "
            f"{len(values)} tensors; there may be 1 to {MAX_CHOICES}"
        )
    # A look-up in a table makes it non-negative, and detects positions out of range.
    (scalar,) = scope.new(node, "Reshape", [position, scope.constant(node, [])])
    (place,) = scope.new(node, "Gather", [scope.constant(node, list(range(len(values)))), scalar])
    *others, chosen = values
    for i, value in reversed(list(enumerate(others))):
        (here,) = scope.new(node, "Equal", [place, scope.constant(node, i)])
        branches = {"then_branch": _passing(value), "else_branch": _passing(chosen)}
        (chosen,) = scope.new(node, "If", [here], attributes=branches)
    return chosen


def _passing(value: ir.Value) -> ir.Graph:
    """A branch that returns a value of the enclosing graph."""
    identity = ir.node("Identity", [value])
    return ir.Graph([], identity.outputs, nodes=[identity])


def _length(scope: SequenceScope, node: ir.Node) -> ir.Value:
    found = _sequence(scope, node)
    if isinstance(found, Listed):
        return scope.constant(node, len(found.values))
    (shape,) = scope.new(node, "Shape", [found.whole])
    (size,) = scope.new(node, "Gather", [shape, scope.constant(node, found.axis)])
    (rounded,) = scope.new(node, "Add", [size, scope.constant(node, found.length - 1)])
    return scope.new(node, "Div", [rounded, scope.constant(node, found.length)])[0]


def _split(scope: SequenceScope, node: ir.Node) -> Listed | Pieces:
    whole, sizes = required(node, 0), given(node, 1)
    axis, keeps = int(attribute(node, "axis", 0)), bool(attribute(node, "keepdims", 1))
    if sizes is None:
        return Pieces(whole, axis, 1, dropped=not keeps)
    count = _extent(sizes, 0) if sizes.shape is not None and len(sizes.shape) == 1 else None
    must = count is None or scope.number(sizes) is not None
    numbers = scope.known(node, sizes, "the size of the pieces") if must else None
    if numbers is not None and numbers.ndim == 0:
        if int(numbers) < 1:
            raise ModelError(f"{describe(node)}: pieces of {int(numbers)} elements")
        return Pieces(whole, axis, int(numbers), dropped=False)
    count = count if numbers is None else numbers.size
    assert count is not None
    if not 0 < count <= MAX_PIECES:
        raise UnsupportedError(f"{describe(node)}: {count:,} pieces; there may be 1 to {MAX_PIECES:,}")
    return Listed(tuple(scope.new(node, "Split", [whole, sizes], outputs=count, attributes={"axis": axis})))


def _extent(value: ir.Value, axis: int) -> int | None:
    """The size of a tensor along an axis, where it is declared as a number."""
    shape = value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    extent = shape[axis]
    return extent if isinstance(extent, int) else None


def listed(scope: SequenceScope, node: ir.Node | None, found: Listed | Pieces, title: str) -> tuple[ir.Value, ...]:
    """The tensors of a sequence; UnsupportedError where their number is unknown."""
    if isinstance(found, Listed):
        return found.values
    extent = _extent(found.whole, found.axis)
    if extent is None or not 0 < extent <= MAX_PIECES * found.length:
        raise UnsupportedError(
            f"{title}: how many pieces {found.whole.name!r} is split into is unknown before its shape is. "
            "Export the model with the sizes of the pieces as constants."
        )
    sizes = [min(found.length, extent - start) for start in range(0, extent, found.length)]
    inputs = [found.whole, scope.constant(node, sizes)]
    values = tuple(scope.new(node, "Split", inputs, outputs=len(sizes), attributes={"axis": found.axis}))
    if found.dropped:
        place = scope.constant(node, [found.axis])
        values = tuple(scope.new(node, "Squeeze", [value, place])[0] for value in values)
    return values


def _concat(scope: SequenceScope, node: ir.Node) -> ir.Value:
    found, axis, stacks = _sequence(scope, node), int(attribute(node, "axis", 0)), bool(attribute(node, "new_axis", 0))
    if isinstance(found, Pieces) and found.axis == axis and found.dropped == stacks:
        return found.whole
    if isinstance(found, Pieces) and found.dropped and found.axis == axis == 0:
        return _first_axes_joined(scope, node, found.whole)
    values = _listed(scope, node)
    if not values:
        raise ModelError(f"{describe(node)}: the sequence is empty")
    if stacks:
        place = scope.constant(node, [axis])
        values = tuple(scope.new(node, "Unsqueeze", [value, place])[0] for value in values)
    return scope.new(node, "Concat", values, attributes={"axis": axis})[0]


def _first_axes_joined(scope: SequenceScope, node: ir.Node, whole: ir.Value) -> ir.Value:
    """[n, k, ...] as [n * k, ...]"""
    (rest,) = scope.new(node, "Shape", [whole], attributes={"start": 2})
    (shape,) = scope.new(node, "Concat", [scope.constant(node, [-1]), rest], attributes={"axis": 0})
    return scope.new(node, "Reshape", [whole, shape])[0]


def _identity(scope: SequenceScope, node: ir.Node) -> Held | None:
    return scope.held.get(required(node, 0))


def _optional(scope: SequenceScope, node: ir.Node) -> Result:
    value = given(node, 0)
    return Nothing() if value is None else scope.held.get(value, value)


def _has_element(scope: SequenceScope, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    return scope.constant(node, value is not None and not isinstance(scope.held.get(value), Nothing))


def _get_element(scope: SequenceScope, node: ir.Node) -> Result:
    value = required(node, 0)
    found = scope.held.get(value, value)
    if isinstance(found, Nothing):
        raise ModelError(f"{describe(node)}: {value.name!r} is empty")
    return found


def _zip_map(_: SequenceScope, node: ir.Node) -> Mapped:
    numbers, texts = attribute(node, "classlabels_int64s", None), attribute(node, "classlabels_strings", None)
    if (numbers is None) == (texts is None):
        raise ModelError(f"{describe(node)}: expected either classlabels_int64s or classlabels_strings")
    return Mapped(required(node, 0), tuple(numbers if texts is None else texts))


_HANDLERS: Mapping[tuple[str, str], Handler] = {
    ("", "SequenceConstruct"): _construct,
    ("", "SequenceEmpty"): _empty,
    ("", "SequenceInsert"): _insert,
    ("", "SequenceErase"): _erase,
    ("", "SequenceAt"): _at,
    ("", "SequenceLength"): _length,
    ("", "SplitToSequence"): _split,
    ("", "SequenceMap"): sequence_map,
    ("", "ConcatFromSequence"): _concat,
    ("", "Optional"): _optional,
    ("", "OptionalHasElement"): _has_element,
    ("", "OptionalGetElement"): _get_element,
    (ML, "ZipMap"): _zip_map,
    ("", "Identity"): _identity,
    ("", "If"): branch,
    ("", "Loop"): loop,
}

RESOLVED = frozenset(_HANDLERS) - {("", name) for name in ALSO_TENSORS}
"""The operators that are replaced, by domain and name."""
