"""`Builder`: the graph under construction, as rows see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opweld.errors import UnsupportedError
from opweld.frontend.torch.dtypes import dtype_of
from opweld.ir import Node, Stored, Value
from opweld.tensor.dtype import DType

Array = np.ndarray[Any, Any]
Number: TypeAlias = "int | float | bool"
Scalar: TypeAlias = "Number | Value"
"""A number, or a symbolic one: a value of rank 0."""


@dataclass
class Builder:
    """Adds nodes for one node of PyTorch's graph after another.

    Attributes:
        nodes: so far. stored: constants and parameters so far.
        name: of the node of PyTorch's graph whose row is at work: that of its nodes.
        made: what the node of PyTorch's graph makes, without data: a tensor, a symbolic number, or several of them.
        complex: whether it makes complex numbers; `made` is then one of their parts.
        asserted: whether the program reads it in assertions alone.
        wide: the types in which a row computes what is made of narrow numbers.
        known: what each value is, likewise.
        bases: the value in whose memory another lies, by strides of its own.
    """

    nodes: list[Node] = field(default_factory=list[Node])
    stored: list[Value] = field(default_factory=list[Value])
    name: str = ""
    made: Any = None
    complex: bool = False
    asserted: bool = False
    wide: Mapping[DType, DType] = field(default_factory=dict[DType, DType])
    known: dict[Value, Any] = field(default_factory=dict[Value, Any])
    bases: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _constants: dict[tuple[DType, tuple[int, ...], bytes], Value] = field(default_factory=dict[Any, Value])
    _taken: dict[str, int] = field(default_factory=dict[str, int])

    # ---------------------------------------------------------------------------------------------------------- nodes

    def op(
        self, op_type: str, *inputs: Value | None, dtype: DType | None = None, domain: str = "", **attributes: Any
    ) -> Value:
        """The only output of a new node, of the dtype of its first input unless one is given."""
        return self.ops(op_type, *inputs, dtypes=[dtype], domain=domain, **attributes)[0]

    def ops(
        self,
        op_type: str,
        *inputs: Value | None,
        dtypes: Sequence[DType | None],
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """The outputs of a new node, one for each dtype; None is the dtype of the first input."""
        name = self.unique(self.name)
        first = next((value.dtype for value in inputs if value is not None), None)
        outputs = [
            Value(name if len(dtypes) == 1 else f"{name}:{number}", dtype or first)
            for number, dtype in enumerate(dtypes)
        ]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(Node(op_type, inputs, outputs, given, domain=domain, name=name))
        return outputs

    def unique(self, name: str) -> str:
        """A name that nothing has yet."""
        number = self._taken.get(name, 0)
        self._taken[name] = number + 1
        return self.unique(f"{name}.{number}") if number else name

    # ------------------------------------------------------------------------------------------------------ constants

    def constant(self, array: Array | Number | Sequence[Any], dtype: DType | None = None) -> Value:
        """A stored tensor; small ones are stored once."""
        made = np.asarray(array, None if dtype is None else dtype.numpy)
        key = (DType.of_numpy(made.dtype), made.shape, made.tobytes()) if made.size <= 64 else None
        if key is not None and key in self._constants:
            return self._constants[key]
        value = Value(self.unique("constant"), DType.of_numpy(made.dtype), made.shape, Stored.of(made))
        self.stored.append(value)
        if key is not None:
            self._constants[key] = value
        return value

    def ints(self, numbers: Sequence[int | Value]) -> Value:
        """Integers, fixed or symbolic, as a tensor of one axis."""
        if all(isinstance(number, int) for number in numbers):
            return self.constant(np.array(numbers, np.int64))
        parts: list[Value] = []
        fixed: list[int] = []
        for number in numbers:
            if isinstance(number, Value):
                if fixed:
                    parts.append(self.constant(np.array(fixed, np.int64)))
                    fixed = []
                parts.append(self.op("Unsqueeze", number, self.constant([0], DType.I64)))
            else:
                fixed.append(int(number))
        if fixed:
            parts.append(self.constant(np.array(fixed, np.int64)))
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    # --------------------------------------------------------------------------------------------------------- dtypes

    @property
    def dtype(self) -> DType:
        """That in which what is made is computed; of the first tensor, if it is several."""
        return self._computed(_dtype(elements(self.made)[0]))

    def dtype_of_made(self, number: int) -> DType:
        """That of one of several tensors that are made."""
        return self._computed(_dtype(self.made[number]))

    def _computed(self, dtype: DType) -> DType:
        return self.wide.get(dtype, dtype)

    def dtype_of(self, value: Scalar) -> DType:
        """That of a value, or of a number as PyTorch takes it for a tensor."""
        if isinstance(value, Value):
            assert isinstance(value.dtype, DType)
            return value.dtype
        return _dtype(value)

    def promoted(self, *operands: Scalar) -> DType:
        """The type in which operands are compared or combined, by PyTorch's rules."""
        found = [_plain(self.known.get(o, o) if isinstance(o, Value) else o) for o in operands]
        first = found[0]
        if len(found) == 1:
            return _dtype(first)
        result = torch.result_type(first, found[1])
        for operand in found[2:]:
            result = torch.promote_types(result, torch.result_type(torch.empty((), dtype=result), operand))
        return dtype_of(result)

    def cast(self, value: Scalar, dtype: DType) -> Value:
        """A value, or a number, in a dtype."""
        if not isinstance(value, Value):
            return self.constant(number(value, dtype))
        if value.dtype is dtype:
            return value
        return self.op("Cast", value, dtype=dtype, to=dtype.onnx)

    # --------------------------------------------------------------------------------------------------------- shapes

    def shape(self, value: Value) -> Sequence[Any]:
        """The sizes of a tensor of PyTorch's graph: integers, or symbolic ones of PyTorch."""
        return self.known[value].shape

    def rank(self, value: Value) -> int:
        """The rank of a tensor of PyTorch's graph."""
        return len(self.shape(value))

    def sizes(self, value: Value) -> list[int | Value]:
        """The sizes of a tensor of PyTorch's graph, symbolic ones as values."""
        return [
            size if isinstance(size, int) else self.size(value, axis) for axis, size in enumerate(self.shape(value))
        ]

    def size(self, value: Value, axis: int) -> Value:
        """The size along an axis, as a value of rank 0."""
        axis %= max(self.rank(value), 1)
        found = self.op("Shape", value, dtype=DType.I64, start=axis, end=axis + 1)
        return self.op("Squeeze", found, self.constant([0], DType.I64))

    def reshape(self, value: Value, sizes: Sequence[int | Value]) -> Value:
        """A tensor with other sizes, of as many elements."""
        return self.op("Reshape", value, self.ints(sizes), allowzero=1)

    def expanded(self, value: Value, sizes: Sequence[int | Value]) -> Value:
        """A tensor broadcast to sizes."""
        return self.op("Expand", value, self.ints(sizes))

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        return axis % max(rank, 1)

    def each(self, given: Sequence[int | Value], count: int, what: str) -> list[int]:
        """Fixed integers, one for each of so many axes; a single one is that of all."""
        found = [self.static(number, what) for number in given]
        return found * count if len(found) == 1 else found

    def static(self, number: Any, what: str) -> int:
        """An integer that must be known; UnsupportedError where it is symbolic."""
        if isinstance(number, Value | torch.SymInt):
            raise UnsupportedError(f"node {self.name!r}: {what} is a symbolic size; only a fixed one is supported")
        return int(number)


def settled(size: Any) -> int | None:
    """The number that a symbolic size is whenever the graph is called: PyTorch calls it where its guards hold only, and
    one of these is what it has found out of a size on its way, as that an axis is broadcast."""
    if not isinstance(size, torch.SymInt):
        return None
    node = cast("Any", size).node
    if node.hint is None or node.expr.is_symbol:
        return None
    return int(node.hint) if statically_known_true(size == node.hint) else None


def number(value: Number, dtype: DType) -> Array:
    """A number in a dtype: an integer type wraps around, a float16 overflows, as PyTorch's do."""
    with np.errstate(all="ignore"):
        if dtype.is_integer and isinstance(value, int):
            return np.asarray(dtype.wrapped(value), dtype.numpy)
        return np.asarray(value).astype(dtype.numpy)


def elements(value: Any) -> list[Any]:
    """What a list or a tuple holds; anything else alone."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def _dtype(made: Any) -> DType:
    if isinstance(made, torch.Tensor):
        return dtype_of(made.dtype)
    if isinstance(made, bool | torch.SymBool):
        return DType.BOOL
    if isinstance(made, int | torch.SymInt):
        return DType.I64
    if isinstance(made, torch.SymFloat):
        return DType.F64
    if isinstance(made, float):
        return dtype_of(torch.get_default_dtype())
    raise UnsupportedError(f"{type(made).__name__} is no tensor and no number")


def _plain(operand: Any) -> Any:
    """For type promotion: a number stands for each symbolic one, which promotes as it does."""
    for symbolic, number in ((torch.SymBool, True), (torch.SymInt, 1), (torch.SymFloat, 1.0)):
        if isinstance(operand, symbolic):
            return number
    if isinstance(operand, torch.Tensor):
        return torch.empty((1,) * min(operand.dim(), 1), dtype=operand.dtype)
    return operand


__all__ = ["Array", "Builder", "DType", "Number", "Scalar", "Value", "elements", "settled"]
