"""The registry of operators: shape inference and lowering to tensors, by domain and name.

An operator family is one file of this package. It defines, side by side,

    @infers("Add", "Sub", ...)
    def infer_binary(scope: Inference, node: ir.Node) -> list[Fact]: ...

    @lowers("Add", "Sub", ...)
    def lower_binary(scope: Lowering, node: ir.Node) -> None: ...

Nodes of ONNX arrive at opset `OPSET`, functions inlined. Facts are complete when lowering starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from opweld import extensions, ir
from opweld.errors import ModelError, OperatorError, OpweldError, UnsupportedError, in_line
from opweld.ops.fact import Fact
from opweld.ops.ratio import Ratio
from opweld.tensor.dim import ONE, Axis, Dim, DimLike
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr
from opweld.tensor.program import Item

OPSET = 28
"""The one opset that graphs are brought to before inference."""


class NeedsSegment(Exception):  # noqa: N818 - control flow, no error
    """Raised for a node that runs as segments of its own."""


class UnknownElementsError(UnsupportedError):
    """A node needs the elements of a small integer value that are not known before the model runs. `sizes`: the symbols
    that determine how many elements the value has."""

    def __init__(self, value: ir.Value, text: str, sizes: frozenset[str] = frozenset()) -> None:
        super().__init__(text)
        self.value, self.sizes = value, sizes


class Inference(Protocol):
    """The scope of an infer function: facts, and assumptions that it may record."""

    def fact(self, value: ir.Value | None) -> Fact:
        """The fact of an input value; ModelError when the optional input is absent."""
        ...

    def ratio(self, value: ir.Value) -> Ratio | None:
        """The exact number in a one-element float value that shape arithmetic made of sizes; None where it is data, or
        may be rounded."""
        ...

    def same(self, a: Dim, b: Dim, node: ir.Node, why: str) -> Dim:
        """Asserts that two dims are equal and returns the simpler one. Provable: nothing happens. Impossible (two
        different constants): ModelError naming the node. Else an assumption, raised as an exception; let it pass."""
        ...

    def broadcast(self, shapes: Sequence[tuple[Dim, ...]], node: ir.Node) -> tuple[Dim, ...]:
        """The NumPy broadcast of shapes; dims that are neither equal nor 1 go through `same`."""
        ...

    def at_least(self, dim: Dim, bound: int, node: ir.Node, why: str) -> None:
        """Records the assumption dim >= bound when it is not provable; ModelError when it is impossible."""
        ...

    def decide(self, condition: Dim, kind: str, node: ir.Node, why: str) -> bool:
        """Whether `condition == 0` (kind "zero") or `condition >= 0` (kind "least"): proved, or decided by this
        variant's recorded assumption (undecided ones fork the compilation into two variants)."""
        ...

    def expect(self, condition: Dim, kind: str, node: ir.Node, why: str) -> bool:
        """`decide` for a condition that nearly always holds: where it does not is a variant only if there is room for
        it, and in that variant all other such conditions hold."""
        ...

    def is_data_dependent(self, dim: Dim) -> bool:
        """Whether a dim depends on elements of fed or computed values, not on sizes alone."""
        ...

    def inline(self, node: ir.Node, graph: ir.Graph) -> list[Fact]:
        """Infers a body without inputs in place of the node: its nodes become nodes of the variant, and the node's
        outputs become aliases of the body's."""
        ...

    def body(self, graph: ir.Graph, inputs: Sequence[Fact]) -> list[Fact]:
        """Infers a body whose inputs have these facts, and returns those of its outputs. Its nodes become nodes of the
        variant; the lowering of the node with the body lowers them."""
        ...


class Lowering(Protocol):
    """The scope of a lower function. Values are identified by `ir.Value`, tensors by generated names."""

    node: ir.Node

    def fact(self, value: ir.Value | None) -> Fact:
        """dtype, shape, elements of any value."""
        ...

    def tensor(self, value: ir.Value) -> str:
        """The name of the tensor, input or constant that holds a value, to load from; lowers it on demand."""
        ...

    def load(
        self, value: ir.Value, indices: Sequence[DimLike], guards: Sequence[Dim] = (), fill: Expr | None = None
    ) -> Expr:
        """A load of an element of a value. Indices are right-aligned as in broadcasting: surplus leading ones are
        dropped, and a dim of size 1 is indexed by 0."""
        ...

    def emit(self, axes: Sequence[Axis], body: Expr, hint: str = "") -> str:
        """Adds a tensor and returns its name."""
        ...

    def constant(self, array: np.ndarray[Any, Any], hint: str = "") -> str:
        """Adds a constant made at compile time and returns its name."""
        ...

    def result(self, value: ir.Value, axes: Sequence[Axis], body: Expr) -> None:
        """Defines an output value of the node."""
        ...

    def alias(self, value: ir.Value, tensor: str) -> None:
        """Makes an output value an alias of an existing tensor (an emitted one, or what `tensor` returned)."""
        ...

    def add(self, item: Item) -> None:
        """Adds a recurrence, or a finished tensor; its outputs are then aliased to values by name."""
        ...

    def body(self, graph: ir.Graph, inputs: Mapping[ir.Value, str]) -> list[Item]:
        """Lowers the nodes of a body whose inputs are these tensors. Their items are returned, not added; outer values
        that the body reads are added."""
        ...

    def extern(
        self,
        function: str,
        operands: Sequence[str],
        results: Sequence[tuple[DType, tuple[Dim, ...]]],
        numbers: Sequence[DimLike],
        rows: Dim = ONE,
    ) -> list[str]:
        """Adds a call of a function of `tensor.externs` on tensors, once for each of `rows` rows; returns the names of
        its results, which have these dtypes and shapes."""
        ...

    def unique(self, hint: str) -> str:
        """A fresh tensor name."""
        ...


InferFunction: TypeAlias = Callable[[Inference, ir.Node], list[Fact]]
LowerFunction: TypeAlias = Callable[[Lowering, ir.Node], None]
Reference: TypeAlias = Callable[..., Any]
"""A function of NumPy arrays, None for absent ones, and of attributes by name; gives an array, or a tuple of them."""
_Function = TypeVar("_Function", bound=Callable[..., Any])

_infer: dict[tuple[str, str], InferFunction] = {}
_lower: dict[tuple[str, str], LowerFunction] = {}
_compute: dict[tuple[str, str], Reference] = {}

_PACKAGE = __name__.partition(".")[0]


def infers(*names: str, domain: str = "") -> Callable[[_Function], _Function]:
    """Registers the inference of operators. ValueError where another module has registered it."""
    return _registers(_infer, names, domain, lambda function: function)


def lowers(*names: str, domain: str = "") -> Callable[[_Function], _Function]:
    """Registers the lowering of operators. ValueError where another module has registered it."""
    return _registers(_lower, names, domain, _named)


def computes(*names: str, domain: str) -> Callable[[_Function], _Function]:
    """Registers the NumPy reference of operators of another domain, which computes in its arguments' precision, for
    comparisons. ValueError where another module has registered it."""
    return _registers(_compute, names, domain, lambda function: function)


def _registers(
    table: dict[tuple[str, str], Any], names: Iterable[str], domain: str, guarded: Callable[[Any], Any]
) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        own = function.__module__.partition(".")[0] == _PACKAGE
        for name in names:
            before = table.get((domain, name), function).__module__
            if before != function.__module__:
                raise ValueError(f"operator {domain}::{name} is that of {before}; {function.__module__} has it too")
            table[domain, name] = function if own else guarded(function)
        if not own:
            extensions.note(function.__module__)
        return function

    return register


def _named(function: LowerFunction) -> LowerFunction:
    """Wraps a lower function of another package, so that its errors name the node."""

    @wraps(function)
    def call(scope: Lowering, node: ir.Node) -> None:
        try:
            function(scope, node)
        except OpweldError:
            raise
        except Exception as error:
            raise OperatorError(
                f"node {node.name!r} ({in_line(node.op_type)}): the operator of {function.__module__} failed: "
                f"{type(error).__name__}: {error}"
            ) from error

    return call


def inference_of(node: ir.Node) -> InferFunction:
    """The inference of a node; UnsupportedError names operator and node."""
    return _find(_infer, node)


def lowering_of(node: ir.Node) -> LowerFunction:
    """The lowering of a node; UnsupportedError names operator and node."""
    return _find(_lower, node)


def supported() -> list[str]:
    """The operators that can be compiled, sorted."""
    return sorted(f"{domain}::{name}" if domain else name for domain, name in _infer)


def is_supported(domain: str, op_type: str) -> bool:
    """Whether operators of the name can be compiled."""
    return ("" if domain == "ai.onnx" else domain, op_type) in _infer


def load_installed() -> None:
    """Registers the operators of installed packages."""
    extensions.load(extensions.OPERATORS)


def references(operators: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Reference]:
    """The NumPy references of the given operators (domain, name), of those that other packages registered."""
    wanted = set(operators)
    if not all(is_supported(*operator) or operator[0] in ("", "ai.onnx") for operator in wanted):
        load_installed()
    return {operator: _compute[operator] for operator in sorted(wanted) if operator in _compute}


def _find(table: Mapping[tuple[str, str], _Function], node: ir.Node) -> _Function:
    domain = "" if node.domain == "ai.onnx" else node.domain
    found = table.get((domain, node.op_type))
    if found is None:
        load_installed()
        found = table.get((domain, node.op_type))
    if found is None:
        qualified = f"{domain}::{node.op_type}" if domain else node.op_type
        raise UnsupportedError(
            f"node {node.name!r}: operator {in_line(qualified)} is not supported yet. "
            f"Write it with other operators before export, install a package that has it, "
            f"or run this model with another runtime."
        )
    return found


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or the default when it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found


def required_attribute(node: ir.Node, name: str) -> Any:
    """The value of an attribute that the operator must have; ModelError otherwise."""
    found = node.attributes.get(name)
    if found is None:
        raise ModelError(f"node {node.name!r} ({in_line(node.op_type)}): attribute {name!r} is missing")
    return found


def fresh_axes(shape: Sequence[Dim], prefix: str = "i") -> tuple[Axis, ...]:
    """One new axis for each dim."""
    return tuple(Axis(f"{prefix}{position}", dim) for position, dim in enumerate(shape))


__all__ = [
    "OPSET",
    "DType",
    "Inference",
    "Lowering",
    "attribute",
    "computes",
    "fresh_axes",
    "inference_of",
    "infers",
    "is_supported",
    "lowering_of",
    "lowers",
    "required_attribute",
    "supported",
]
