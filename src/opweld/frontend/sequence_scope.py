"""`SequenceScope`: a graph whose sequences and optionals are replaced by the tensors that they hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from opweld.errors import ModelError, UnspecifiedError, UnsupportedError
from opweld.frontend.nodes import bodies
from opweld.ops.operands import describe

Array = np.ndarray[Any, Any]

MAX_NODES = 100_000
"""The most nodes that unrolling bodies over the elements of sequences may give a model."""

SMALL = 16
"""The most elements of a constant that may determine what a sequence holds."""


DECIDING = frozenset((ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64))
"""Element types of positions, lengths and conditions."""


@dataclass(frozen=True)
class Listed:
    """A list of tensors."""

    values: tuple[ir.Value, ...]


@dataclass(frozen=True)
class Pieces:
    """A tensor split along an axis into pieces of `length`, the last one possibly shorter; without the axis when it is
    dropped, where `length` is 1."""

    whole: ir.Value
    axis: int
    length: int
    dropped: bool


@dataclass(frozen=True)
class Nothing:
    """An optional that holds nothing."""


@dataclass(frozen=True)
class Mapped:
    """A dict for each row of a tensor, whose columns are under these keys."""

    scores: ir.Value
    keys: tuple[int | str, ...]


Held: TypeAlias = Listed | Pieces | Nothing | Mapped
Result: TypeAlias = Held | ir.Value
Handler: TypeAlias = "Callable[[SequenceScope, ir.Node], Result | list[Result] | None]"
"""Returns the replacement of a node's output, a list where it has several; None keeps the node."""

_FOLDED: Mapping[str, Callable[..., Any]] = {
    "Identity": np.asarray, "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or, "Equal": np.equal,
    "Less": np.less, "Greater": np.greater, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
}  # fmt: skip
"""Operators that are folded, because they compute conditions of loops and branches, and positions in sequences."""


ALSO_TENSORS = ("Identity", "If", "Loop")
"""Operators on sequences that occur on tensors alone too."""


class SequenceScope:
    """One graph, whose operators on sequences and optionals are replaced.

    Attributes:
        graph: the graph.
        held: the contents of values that are not tensors, those of enclosing graphs included.
        numbers: known small results, such as the trip count of an unrolled body.
        fed: values that would be known if an input were constant, and the name of that input.
    """

    def __init__(self, graph: ir.Graph, handlers: Mapping[tuple[str, str], Handler]) -> None:
        self.graph = graph
        self.held: dict[ir.Value, Held] = {}
        self.numbers: dict[ir.Value, Array] = {}
        self.fed: dict[ir.Value, str] = {}
        self._handlers = handlers
        self._replaced: list[ir.Node] = []
        self._written: list[ir.Graph] = []
        self._instead: dict[ir.Value, ir.Value] = {}

    def inner(self, graph: ir.Graph) -> SequenceScope:
        """The scope of a body."""
        made = SequenceScope(graph, self._handlers)
        made.held, made.numbers, made.fed = dict(self.held), dict(self.numbers), dict(self.fed)
        return made

    def results(self) -> list[Result]:
        """The outputs of the graph after replacement."""
        for node in list(self.graph):
            self.visit(node)
        return [self.result(value) for value in self.graph.outputs]

    def result(self, value: ir.Value) -> Result:
        """The contents of a value, or the value itself if it is a tensor."""
        value = self._instead.get(value, value)
        return self.held.get(value, value)

    def finish(self, outputs: Sequence[ir.Value]) -> None:
        """Sets the outputs of the graph, and removes replaced nodes."""
        self.graph.outputs[:] = outputs
        for body in self._written:
            for inner in ir.traversal.RecursiveGraphIterator(body):
                for position in range(len(inner.inputs)):
                    inner.replace_input_with(position, None)
        self.graph.remove(reversed(self._replaced), safe=True)

    def visit(self, node: ir.Node) -> None:
        """Replaces a node, or looks into its bodies."""
        handler = self._handlers.get(
            ("" if node.domain == "ai.onnx" else node.domain, node.op_type), SequenceScope.look_into
        )
        found = handler(self, node)
        if found is None:
            self._fold(node)
            return
        self._replaced.append(node)
        for output, made in zip(node.outputs, found if isinstance(found, list) else [found], strict=True):
            self._stands_for(node, output, made)

    def look_into(self, node: ir.Node) -> None:
        """Keeps a node, and replaces the operators of its bodies, whose outputs must be tensors."""
        for value in node.inputs:
            if value in self.held:
                raise UnsupportedError(
                    f"{describe(node)}: its input {value.name!r} is a sequence or an empty optional, which is not "
                    "supported here. Export the model with tensors in its place."
                )
        for body in bodies(node):
            scope = self.inner(body)
            tensors = [result for result in scope.results() if isinstance(result, ir.Value)]
            if len(tensors) < len(body.outputs):
                raise UnsupportedError(f"{describe(node)}: its body gives a sequence, which is not supported here")
            scope.finish(tensors)

    def concerns(self, body: ir.Graph) -> bool:
        """Whether a body uses values that are not tensors."""
        inner = ir.traversal.RecursiveGraphIterator(body)
        return any(v in self.held for v in body.outputs) or any(
            ((node.domain, node.op_type) in self._handlers and node.op_type not in ALSO_TENSORS)
            or any(v in self.held for v in node.inputs)
            for node in inner
        )

    def _stands_for(self, node: ir.Node, output: ir.Value, made: Result) -> None:
        """Replaces an output by its result in all users, through an Identity where it is an output of the graph."""
        if not isinstance(made, ir.Value):
            self.held[output] = made
            return
        if output.is_graph_output():
            (made,) = self.new(node, "Identity", [made])
            made.name, made.type, made.shape = output.name, output.type, output.shape
        for known in (self.numbers, self.fed):
            if made in known:
                known[output] = known[made]  # type: ignore[assignment]
        self._instead[output] = made
        output.replace_all_uses_with(made, replace_graph_outputs=True)

    def _fold(self, node: ir.Node) -> None:
        """Notes the result of a node of known numbers, or the input on which it depends."""
        compute = _FOLDED.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        values = [value for value in node.inputs if value is not None]
        if compute is None or len(node.outputs) != 1:
            return
        known = [array for value in values if (array := self._small(value)) is not None]
        if len(known) == len(values):
            with contextlib.suppress(ValueError):  # shapes that do not fit: inference names the node
                self.numbers[node.outputs[0]] = compute(*known)
            return
        name = next((self.fed[value] for value in values if value in self.fed), None)
        if name is not None:
            self.fed[node.outputs[0]] = name

    def _small(self, value: ir.Value) -> Array | None:
        """The elements of a few integers or truth values. Weights are not read."""
        if value in self.numbers:
            return self.numbers[value]
        tensor = ir.convenience.get_const_tensor(value)
        return None if tensor is None or tensor.size > SMALL or tensor.dtype not in DECIDING else tensor.numpy()

    # -------------------------------------------------------------------------------------------- what handlers need

    def new(
        self,
        node: ir.Node | None,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: int = 1,
        attributes: Mapping[str, Any] | None = None,
    ) -> Sequence[ir.Value]:
        """The outputs of a new node before the one that it replaces, or at the end of the graph."""
        name = f"{node.name}_{op_type}" if node is not None else op_type
        made = ir.node(op_type, inputs, attributes, num_outputs=outputs, name=name)
        if node is None:
            self.graph.append(made)
        else:
            self.graph.insert_before(node, made)
        return made.outputs

    def constant(self, node: ir.Node | None, numbers: bool | int | Sequence[int]) -> ir.Value:
        """Integers, or a truth value, as a tensor."""
        array = np.array(numbers, np.bool_ if isinstance(numbers, bool) else np.int64)
        (made,) = self.new(node, "Constant", [], attributes={"value": ir.tensor(array)})
        self.numbers[made] = array
        return made

    def number(self, value: ir.Value) -> Array | None:
        """The elements of a value, where they are known."""
        if value in self.numbers:
            return self.numbers[value]
        tensor = ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    def known(self, node: ir.Node, value: ir.Value, what: str) -> Array:
        """The elements of a value that determines the contents of a sequence.

        Raises UnspecifiedError when they depend on an input, UnsupportedError when they are only known at run time
        them."""
        found = self.number(value)
        if found is not None:
            if found.dtype.kind not in "biu" or not found.size:
                raise ModelError(f"{describe(node)}: {what} {value.name!r} must be integers, not {found.dtype}")
            return found
        name = self.fed.get(value)
        if name is None:
            raise UnsupportedError(
                f"{describe(node)}: {what} {value.name!r} determines the contents of a sequence; it must be a constant"
            )
        raise UnspecifiedError(
            f"{describe(node)}: {what} {value.name!r} determines the contents of a sequence, and depends on {name!r}. "
            f"Make that a constant: constants={{{name!r}: its value}} (--constant {name}=VALUE)",
            "constants",
            name,
        )

    def drop(self, *graphs: ir.Graph) -> None:
        """Detaches the bodies of a replaced node from the values they read; copies replace it."""
        self._written += graphs

    def written_out(self, node: ir.Node, body: ir.Graph, inputs: Sequence[Result], number: int) -> list[Result]:
        """Inserts a copy of the body before the node, for these inputs, and returns its outputs."""
        if self.graph.num_nodes() > MAX_NODES:
            raise UnsupportedError(f"{describe(node)}: written out, the model has more than {MAX_NODES:,} nodes")
        if len(body.inputs) != len(inputs):
            raise ModelError(f"{describe(node)}: its body has {len(body.inputs)} inputs, expected {len(inputs)}")
        try:
            copy = body.clone(allow_outer_scope_values=True)
        except (RuntimeError, ValueError) as error:  # raised by onnx_ir for a graph with undefined outputs
            raise ModelError(f"{describe(node)}: an output of its body is not defined in it") from error
        outputs = list(copy.outputs)
        for own, value in zip(copy.inputs, inputs, strict=True):
            if isinstance(value, ir.Value):
                self._instead[own] = value
                own.replace_all_uses_with(value, replace_graph_outputs=True)
            else:
                self.held[own] = value
        copy.outputs.clear()
        prefix = f"{node.name}_{number}"
        for name, value in list(copy.initializers.items()):
            del copy.initializers[name]
            value.name = f"{prefix}_{name}"
            self.graph.register_initializer(value)
        nodes = list(copy)
        copy.remove(nodes)
        self.graph.insert_before(node, nodes)
        for inner in nodes:
            inner.name = f"{prefix}_{inner.name}"
            for value in inner.outputs:
                value.name = f"{prefix}_{value.name}"
            self.visit(inner)
        return [self.result(output) for output in outputs]
