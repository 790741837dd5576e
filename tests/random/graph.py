"""A graph while it grows: every value is known at every choice of sizes, so that a proposal that does not fit is seen.

Families propose nodes freely; what the reference cannot compute at each choice of sizes, what would grow beyond bounds
or overflow, is rejected and leaves no trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.random.evaluate import IR_VERSION, OPSET, Step, widened

Array = NDArray[Any]
Extent = tuple[int, ...]
"""One dim at every choice of sizes."""

MOST_ELEMENTS = 1 << 14
LARGEST = {np.dtype(np.float16): 1e3}
F16, F32, F64, I32, I64, BOOL = (
    np.dtype(t) for t in (np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_)
)


class Rejected(Exception):  # noqa: N818 - control flow, no error
    """A proposal that does not fit what is there."""


@dataclass(eq=False)
class Value:
    """A value of the graph: its dtype in the model, and what it is (floats in float64) at every choice of sizes."""

    name: str
    dtype: np.dtype[Any]
    data: list[Array]
    constant: bool = False

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return self.data[0].ndim

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Each dim at every choice of sizes."""
        return tuple(zip(*(array.shape for array in self.data), strict=True))

    def static(self, axis: int) -> bool:
        """Whether the dim is the same at every choice of sizes."""
        return len(set(self.extents[axis])) == 1

    def size(self, axis: int) -> int:
        """The dim, which must be static."""
        if not self.static(axis):
            raise Rejected
        return self.extents[axis][0]

    @property
    def floating(self) -> bool:
        """Whether its elements are floats."""
        return self.dtype.kind == "f"


@dataclass(frozen=True, eq=False)
class Scaling:
    """What codes stand for: (code - zero) * scale, of all, of each index of an axis, or of each block along it."""

    scale: Value
    zero: Value | None
    axis: int | None = None
    block: int = 0


@dataclass
class Graph:
    """Nodes so far and what they made. `choices` are the sizes of the symbols, one dict a choice; `scalings` says of
    values that are codes, by name, what these stand for."""

    random: random.Random
    choices: list[dict[str, int]]
    values: list[Value] = field(default_factory=list[Value])
    inputs: list[tuple[Value, tuple[int | str, ...]]] = field(default_factory=list[tuple[Value, tuple[int | str, ...]]])
    initializers: list[tuple[str, Array]] = field(default_factory=list[tuple[str, Array]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    scalings: dict[str, Scaling] = field(default_factory=dict[str, Scaling])
    _count: int = 0

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.random.getrandbits(63))

    # ---- chance ------------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True with the probability."""
        return self.random.random() < probability

    def choose(self, options: Sequence[Any]) -> Any:
        """One of the options; a graph without any has no use for the proposal."""
        if not options:
            raise Rejected
        return self.random.choice(options)

    def between(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.random.randint(low, high)

    def name(self, stem: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}{self._count}"

    # ---- operands ----------------------------------------------------------------------------------------------------

    def pick(self, fits: Callable[[Value], bool] = lambda value: value.floating) -> Value:
        """A value that fits, more likely a recent one."""
        found = [value for value in self.values if fits(value)]
        if not found:
            raise Rejected
        return found[-1 - min(int(self.random.expovariate(0.5)), len(found) - 1)]

    def input(self, dims: Sequence[int | str], dtype: Any = F32) -> Value:
        """A new graph input; a dim that is text is symbolic."""
        dtype = np.dtype(dtype)
        data: list[Array] = []
        for sizes in self.choices:
            shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)
            data.append(self.draw(shape, dtype))
        return self._fed(data, dims)

    def fed(self, array: Array) -> Value:
        """A new graph input of this shape that is fed with this array, at every choice of sizes."""
        return self._fed([array] * len(self.choices), array.shape)

    def _fed(self, data: Sequence[Array], dims: Sequence[int | str]) -> Value:
        value = Value(self.name("x"), data[0].dtype, [widened(array) for array in data])
        self.inputs.append((value, tuple(dims)))
        self.values.append(value)
        return value

    def draw(self, shape: Sequence[int], dtype: Any) -> Array:
        """Normal floats, small integers, coin tosses."""
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.numbers.random(tuple(shape)) < 0.5
        if dtype.kind in "iu":
            return self.numbers.integers(0 if dtype.kind == "u" else -4, 7, tuple(shape)).astype(dtype)
        return self.numbers.standard_normal(tuple(shape)).astype(dtype)

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """An initializer, or now and then a Constant node."""
        array = np.array(array, dtype)
        value = Value(self.name("c"), array.dtype, [widened(array)] * len(self.choices), constant=True)
        if self.chance(0.15):
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=numpy_helper.from_array(array)))
        else:
            self.initializers.append((value.name, array))
        return value

    def weights(self, *shape: int, dtype: Any = F32, scale: float = 1.0) -> Value:
        """Random numbers known when compiling; now and then fed instead."""
        if self.chance(0.08) and np.dtype(dtype) == F32 and scale == 1.0:
            return self.input(shape)
        return self.constant((self.draw(shape, dtype) * scale).astype(dtype))

    def integers(self, values: Sequence[int], dtype: Any = I64) -> Value:
        """A constant vector of integers."""
        return self.constant(np.array(values, dtype))

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def node(
        self,
        op_type: str,
        *operands: Value | None,
        outputs: int = 1,
        dtype: Any = None,
        domain: str = "",
        **attributes: Any,
    ) -> Value:
        """Adds a node and returns its first output; see `several`."""
        return self.several(op_type, *operands, outputs=outputs, dtype=dtype, domain=domain, **attributes)[0]

    def several(
        self,
        op_type: str,
        *operands: Value | None,
        outputs: int = 1,
        dtype: Any = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Adds a node and returns its outputs. Floats get `dtype`, by default that of the first float operand.

        Raises Rejected when the reference cannot compute it at every choice of sizes, or when it grows too large."""
        names = [self.name("v") for _ in range(outputs)]
        inputs = ["" if operand is None else operand.name for operand in operands]
        attributes = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op_type, inputs, names, self.name(f"{op_type}_"), domain=domain, **attributes)
        results: list[list[Array]] = []
        try:
            step = Step(node)
            for choice in range(len(self.choices)):
                known = {operand.name: operand.data[choice] for operand in operands if operand is not None}
                results.append(step.run(known))
        except Exception as error:
            raise Rejected from error
        floats = [operand.dtype for operand in operands if operand is not None and operand.floating]
        floating = np.dtype(dtype) if dtype is not None else floats[0] if floats else F32
        made: list[Value] = []
        for position, name in enumerate(names):
            data = [result[position] for result in results]
            own = data[0].dtype
            value = Value(name, floating if own.kind == "f" else own, data)
            self._require_bounds(value)
            made.append(value)
        self.nodes.append(node)
        self.values.extend(made)
        return made

    def _require_bounds(self, value: Value) -> None:
        for array in value.data:
            if array.size > MOST_ELEMENTS or array.ndim > 7:
                raise Rejected
            if value.floating and array.size:
                finite = np.abs(array[np.isfinite(array)])
                if finite.size < array.size / 2 or finite.max() > LARGEST.get(value.dtype, 1e6):
                    raise Rejected
            if array.dtype in (I32, I64) and array.size and np.abs(array).max() > 1 << 20:
                raise Rejected

    def attempt(self, proposal: Callable[[Graph], Any]) -> bool:
        """Runs a proposal; what it added goes again when it is rejected."""
        kept = len(self.values), len(self.inputs), len(self.initializers), len(self.nodes)
        try:
            proposal(self)
        except Rejected:
            for items, count in zip((self.values, self.inputs, self.initializers, self.nodes), kept, strict=True):
                del items[count:]  # pyright: ignore[reportGeneralTypeIssues]
            return False
        return True

    # ---- the model ---------------------------------------------------------------------------------------------------

    def model(self, outputs: Sequence[Value]) -> onnx.ModelProto:
        """The whole graph as a model."""

        def info(value: Value, dims: Sequence[int | str | None]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(value.dtype), dims)

        graph = helper.make_graph(
            self.nodes,
            "random",
            [info(value, dims) for value, dims in self.inputs],
            [info(value, [None] * value.rank) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.initializers],
        )
        domains = {node.domain for node in self.nodes} - {""}
        imported = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
        return helper.make_model(graph, opset_imports=imported, ir_version=IR_VERSION)

    def feeds(self, choice: int) -> dict[str, Array]:
        """The inputs at one choice of sizes, in the model's dtypes."""
        return {value.name: value.data[choice].astype(value.dtype) for value, _ in self.inputs}
