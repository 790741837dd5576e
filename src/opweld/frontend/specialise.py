"""Replaces inputs that are not tensors, or must be known before the model runs, as callers specify.

A sequence becomes as many inputs as it has tensors, and a SequenceConstruct of these; an optional is a tensor or
sequence that is present or absent; an input given as a constant becomes an initializer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TypeProto, ValueInfoProto, helper, numpy_helper

from opweld.errors import ModelError, OptionError, UnspecifiedError, UnsupportedError
from opweld.frontend.check import MAX_RANK
from opweld.frontend.order import bodies_of
from opweld.interface import Argument, Constant, Form, Listed, Specialisation, Tensor

MAX_LENGTH = 10_000
"""The most tensors of a sequence."""

_OF = {"lengths": "a sequence or optional", "ranks": "a tensor without declared dims", "constants": "a tensor"}


def declared(values: Sequence[ValueInfoProto]) -> tuple[Argument, ...]:
    """Inputs or outputs as the model declares them, each a tensor by its own name for now."""
    return tuple(
        Argument(value.name, type_text(value.type), _declared_shape(value.type), Tensor(value.name)) for value in values
    )


def type_text(kind: TypeProto) -> str:
    """The type in onnxruntime's notation: seq(tensor(float)); empty where it is not declared."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element(kind.tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_text(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(kind.optional_type.elem_type)})"
        case "map_type":
            return f"map({_element(kind.map_type.key_type)},{type_text(kind.map_type.value_type)})"
        case _:
            return ""


def _element(code: int) -> str:
    return onnx.TensorProto.DataType.Name(code).lower() if code in onnx.TensorProto.DataType.values() else "undefined"


def _declared_shape(kind: TypeProto) -> tuple[int | str, ...] | None:
    kind = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.tensor_type.shape.dim)


def specialise(graph: onnx.GraphProto, known: Specialisation) -> tuple[Argument, ...]:
    """Makes every input of the graph a tensor of known rank, in place; returns how callers see the inputs.

    Raises UnspecifiedError for an input of which more must be known, naming the option, OptionError for options that
    do not match the model, UnsupportedError for types that are neither tensors nor sequences or optionals of them.
    """
    made = _Specialised(graph, known)
    stored = {tensor.name for tensor in graph.initializer}
    arguments = [
        Argument(argument.name, argument.type, argument.shape, made.form(value))
        for value, argument in zip(graph.input, declared(graph.input), strict=True)
        if value.name not in stored
    ]
    made.check_names()
    kept = [value for value in graph.input if value.name in stored]
    nodes = [*made.nodes, *graph.node]
    del graph.input[:], graph.node[:]
    graph.input.extend([*made.inputs, *kept])
    graph.node.extend(nodes)
    graph.initializer.extend(made.constants)
    return tuple(arguments)


class _Specialised:
    def __init__(self, graph: onnx.GraphProto, known: Specialisation) -> None:
        self.inputs: list[ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._known = known
        self._used: set[tuple[str, str]] = set()
        self._taken = set(_names(graph))

    def form(self, value: ValueInfoProto) -> Form:
        """The form of an input for callers, after replacing it in the graph."""
        kind, name = value.type, value.name
        optional = kind.HasField("optional_type")
        kind = kind.optional_type.elem_type if optional else kind
        if kind.HasField("sequence_type"):
            count = self._length(name, "an optional sequence" if optional else "a sequence", None if optional else 0)
            return self._absent(name, kind) if count is None else self._list(name, kind, count)
        if value.type.WhichOneof("value") is None:
            raise ModelError(f"input {name[:200]!r} has no declared type. Declare it before export.")
        if not kind.HasField("tensor_type"):
            raise UnsupportedError(f"input {name[:200]!r} is of type {type_text(value.type)}, which is not supported")
        if optional:
            count = self._length(name, "an optional tensor", None)
            if not count:
                return self._absent(name, kind)
            if count > 1:
                raise OptionError(f"lengths: {name!r} is an optional tensor: 0 or 1, got {count}")
        return self._tensor(name, kind)

    def check_names(self) -> None:
        """Raises OptionError for options about inputs that do not exist or are of another kind."""
        for option in ("lengths", "ranks", "constants"):
            for name in getattr(self._known, option):
                if (option, name) not in self._used:
                    raise OptionError(f"{option}: the model has no input {name!r} that is {_OF[option]}")

    def _length(self, name: str, what: str, least: int | None) -> int | None:
        if name not in self._known.lengths:
            raise UnspecifiedError(
                f"input {name[:200]!r} is {what}: how many tensors it holds must be known when the model is compiled. "
                f"Give it with lengths={{{name[:200]!r}: N}} (--length {name[:200]}=N"
                + ("; None for an empty one)" if least is None else ")"),
                "lengths",
                name,
            )
        self._used.add(("lengths", name))
        count = self._known.lengths[name]
        if count is None and least is not None:
            raise OptionError(f"lengths: {name!r} is a sequence, which may have length 0, but is always present")
        if count is not None and count > MAX_LENGTH:
            raise OptionError(f"lengths: {name!r} holds {count:,} tensors; there may be up to {MAX_LENGTH:,}")
        return count

    def _absent(self, name: str, kind: TypeProto) -> None:
        self.nodes.append(helper.make_node("Optional", [], [name], name=f"no_{name}", type=kind))

    def _list(self, name: str, kind: TypeProto, count: int) -> Listed:
        element = kind.sequence_type.elem_type
        if not element.HasField("tensor_type"):
            raise UnsupportedError(f"input {name[:200]!r} is a sequence of {type_text(element)}; only tensors may be")
        # Tensors of a sequence may have different sizes for a dim of one name: each has its own.
        element = _unnamed(element)
        items = [self._tensor(self._fresh(f"{name}[{i}]"), element) for i in range(count)]
        names = [item.tensor for item in items if isinstance(item, Tensor)]
        op_type = "SequenceConstruct" if names else "SequenceEmpty"
        self.nodes.append(helper.make_node(op_type, names, [name], name=f"list_{name}"))
        return Listed(tuple(items))

    def _tensor(self, name: str, kind: TypeProto) -> Tensor | Constant:
        element = kind.tensor_type
        if name in self._known.constants:
            self._used.add(("constants", name))
            return self._constant(name, element)
        if not element.HasField("shape"):
            kind = self._ranked(name, kind)
        self.inputs.append(helper.make_value_info(name, kind))
        return Tensor(name)

    def _ranked(self, name: str, kind: TypeProto) -> TypeProto:
        if name not in self._known.ranks:
            raise UnspecifiedError(
                f"input {name[:200]!r} has no declared rank. Declare its dims (dynamic ones by name) before export, or "
                f"give their number with ranks={{{name[:200]!r}: N}} (--rank {name[:200]}=N)",
                "ranks",
                name,
            )
        self._used.add(("ranks", name))
        rank = self._known.ranks[name]
        if rank > MAX_RANK:
            raise OptionError(f"ranks: {name!r} has rank {rank}; opweld supports ranks up to {MAX_RANK}")
        return helper.make_tensor_type_proto(kind.tensor_type.elem_type, [None] * rank)

    def _constant(self, name: str, element: TypeProto.Tensor) -> Constant:
        dtype = helper.tensor_dtype_to_np_dtype(element.elem_type)
        if dtype.kind == "O":
            raise OptionError(f"constants: {name!r} is of texts, which are not supported")
        try:
            array = np.asarray(self._known.constants[name]).astype(dtype)
        except (TypeError, ValueError) as error:
            raise OptionError(f"constants: {name!r} cannot be an array of {dtype}: {error}") from error
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in element.shape.dim]
        fits = len(dims) == array.ndim and all(d < 0 or d == size for d, size in zip(dims, array.shape, strict=True))
        if element.HasField("shape") and not fits:
            raise OptionError(f"constants: {name!r} is given in shape {list(array.shape)}, the model declares {dims}")
        self.constants.append(numpy_helper.from_array(array, name))
        return Constant(str(array.dtype), array.shape, array.tobytes().hex())

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _unnamed(kind: TypeProto) -> TypeProto:
    made = TypeProto()
    made.CopyFrom(kind)
    for dim in made.tensor_type.shape.dim if made.tensor_type.HasField("shape") else ():
        if dim.HasField("dim_param"):
            dim.ClearField("dim_param")
    return made


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name of a value, in bodies too."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for body in bodies_of(node):
            yield from _names(body)
