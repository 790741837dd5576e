"""From a graph of PyTorch to a graph of operators: node by node, by the table of rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

from opweld.errors import UnsupportedError
from opweld.frontend.torch.assertions import FAILING, is_only_asserted
from opweld.frontend.torch.builder import Builder, elements, settled
from opweld.frontend.torch.complexes import Complex, complex_row, is_complex, joined, parts, real_meta
from opweld.frontend.torch.control import cond, while_loop
from opweld.frontend.torch.convention import hint
from opweld.frontend.torch.dtypes import as_array, dtype_of
from opweld.frontend.torch.flex import flex_attention
from opweld.frontend.torch.narrow import narrowed_once
from opweld.frontend.torch.rows import rows
from opweld.frontend.torch.size_guards import SizeGuard
from opweld.frontend.torch.symbolic import FUNCTIONS
from opweld.ir import Graph, Stored, Value
from opweld.ops.aten.elementwise import DOMAIN as ATEN
from opweld.record import FileNode
from opweld.tensor.dtype import DType

_LIBRARY = Path(torch.__file__).parent


class Importer:
    """Imports one graph.

    Args:
        parameters: what placeholders stand for whose data is part of the model, by name of the placeholder.
        names: of inputs, by name of the placeholder, where they are called otherwise.
        dims: names of symbols, by PyTorch's.

    Attributes:
        inputs: the model's, by placeholder: those that tell something beyond the sizes of others.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        names: Mapping[str, str] | None = None,
        dims: Mapping[str, str] | None = None,
    ) -> None:
        self.inputs: dict[fx.Node, Value] = {}
        self._parameters = parameters
        self._names = names or {}
        self._dims = dims or {}
        self._builder = Builder()
        self._values: dict[fx.Node, Any] = {}
        self._files: list[FileNode] = []

    def run(
        self,
        graph: fx.Graph,
        owner: fx.GraphModule,
        names: Sequence[str],
        ends: Sequence[Any],
        asserted: Sequence[tuple[fx.Node, str]] = (),
        sized: Iterable[SizeGuard] = (),
    ) -> tuple[Graph, tuple[FileNode, ...]]:
        """The graph whose outputs are these values of PyTorch's graph, called so; and its nodes as an account tells
        them.

        Args:
            asserted: (condition, message); a run fails where one is false, or the caller has them among the ends.
            sized: what is assumed of the sizes of inputs."""
        self._nodes(graph, owner, ends=[*ends, *(condition for condition, _ in asserted)])
        values = [self._argument(value) for value in ends]
        self._guard(values, ends, asserted)
        self._assume(values, sized)
        found = [self._named(value, name) for value, name in zip(values, names, strict=True)]
        made = Graph(self.inputs.values(), found, self._builder.nodes, self._builder.stored, "torch")
        return made, tuple(self._files)

    def refused(self, graph: fx.Graph, owner: fx.GraphModule) -> dict[fx.Node, str]:
        """The nodes that cannot be imported, and why; what they make is taken for fed by those after them."""
        found: dict[fx.Node, str] = {}

        def call(node: fx.Node) -> Any:
            try:
                return self._call(node)
            except UnsupportedError as error:
                found[node] = str(error)
                return self._opaque(node.name, node.meta.get("val"))

        self._nodes(graph, owner, call)
        return found

    def _opaque(self, name: str, made: Any) -> Any:
        """A value that another runtime makes, or several."""
        if isinstance(made, list | tuple):
            return [self._opaque(name, own) for own in elements(cast("Any", made))]
        if isinstance(made, torch.SymInt | torch.SymFloat | torch.SymBool):
            value = Value(self._builder.unique(name), self._builder.dtype_of(cast("Any", made)), ())
            self._builder.known[value] = made
            return value
        if not isinstance(made, torch.Tensor):
            return made
        if is_complex(made):
            return Complex(*(self._opaque(name, real_meta(made)) for _ in range(2)))
        try:
            value = Value(self._builder.unique(name), dtype_of(made.dtype))
        except UnsupportedError:
            value = Value(self._builder.unique(name), str(made.dtype))
        self._builder.known[value] = made
        return value

    def _nodes(
        self,
        graph: fx.Graph,
        owner: fx.GraphModule,
        call: Callable[[fx.Node], Any] | None = None,
        ends: Sequence[Any] | None = None,
    ) -> list[Any]:
        """The outputs of a graph; none where only these values of it are asked for."""
        call = call or self._call
        # Tensors first: their sizes stand for symbolic numbers that are handed in beside them.
        holes = [node for node in graph.nodes if node.op == "placeholder" and node not in self._values]
        for node in sorted(holes, key=lambda hole: not isinstance(hole.meta.get("val"), torch.Tensor)):
            self._values[node] = self._placeholder(node)
        needed = _needed(graph, ends)
        for node in graph.nodes:
            match node.op:
                case _ if node not in needed:
                    pass
                case "placeholder":
                    pass
                case "get_attr":
                    self._values[node] = self._attribute(node, owner)
                case "output":
                    return [self._argument(value) for value in _flat(node.args[0])]
                case "call_function":
                    self._values[node] = call(node)
                case _:
                    raise UnsupportedError(f"node {node.name!r}: a graph with {node.op} is not one of ATen")
        return []

    # ---------------------------------------------------------------------------------------------------------- values

    def _placeholder(self, node: fx.Node) -> Any:
        parameter = self._parameters.get(node.name)
        if parameter is not None:
            return self._stored(node.name, parameter)
        made = node.meta["val"]
        if not node.users and not isinstance(made, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
            return made  # an argument that is a constant to torch.export, which put it in where it is read
        if isinstance(made, torch.SymInt) and made.node.is_nested_int():
            raise UnsupportedError(
                f"input {node.name!r} is the length of a nested tensor, which is no number; such tensors stay in eager "
                "mode, their values() and offsets() need not"
            )
        if isinstance(made, torch.SymInt) and (found := self._size(node, made)) is not None:
            return found
        value = Value(self._builder.unique(self._names.get(node.name, node.name)), *self._declared(node, made))
        self.inputs[node] = value
        if is_complex(made):
            self._builder.name = node.name
            found = parts(self._builder, value)
            self._learn(found, made)
            return found
        self._builder.known[value] = made
        return value

    def _size(self, node: fx.Node, wanted: torch.SymInt) -> Value | None:
        """A symbolic number that is a size of an input."""
        for value in self.inputs.values():
            known = self._builder.known.get(value)
            for axis, size in enumerate(known.shape if isinstance(known, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr == wanted.node.expr:
                    self._builder.name = node.name
                    found = self._builder.size(value, axis)
                    self._builder.known[found] = wanted
                    return found
        return None

    def _declared(self, node: fx.Node, made: Any) -> tuple[DType, tuple[int | str, ...]]:
        if isinstance(made, torch.Tensor):
            dims = [dim_of(size) for size in made.shape] + [2] * made.is_complex()
            dtype = made.dtype.to_real() if made.is_complex() else made.dtype
            return dtype_of(dtype), tuple(self._dims.get(d, d) if isinstance(d, str) else d for d in dims)
        if isinstance(made, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
            kinds = ((bool, DType.BOOL), (torch.SymBool, DType.BOOL), (int, DType.I64), (torch.SymInt, DType.I64))
            return next((dtype for kind, dtype in kinds if isinstance(made, kind)), DType.F64), ()
        raise UnsupportedError(f"input {node.name!r} is no tensor and no number")

    def _stored(self, name: str, tensor: torch.Tensor) -> Any:
        """A tensor of the model by reference: its data is read when it is packed."""
        if tensor.is_complex():
            return Complex(
                self._stored_part(f"{name}.real", tensor, torch.real),
                self._stored_part(f"{name}.imag", tensor, torch.imag),
            )
        return self._stored_part(name, tensor, torch.real)

    def _stored_part(self, name: str, tensor: torch.Tensor, part: Callable[[torch.Tensor], torch.Tensor]) -> Value:
        known = part(tensor).detach()
        dtype, shape = dtype_of(known.dtype), tuple(map(int, known.shape))
        value = Value(self._builder.unique(name), dtype, shape, Stored(dtype, shape, partial(_read, tensor, part)))
        self._builder.stored.append(value)
        self._builder.known[value] = known
        return value

    def _attribute(self, node: fx.Node, owner: fx.GraphModule) -> Any:
        found: Any = operator.attrgetter(str(node.target))(owner)
        return self._stored(node.name, found) if isinstance(found, torch.Tensor) else found

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            found = self._values[value]
            if found is None and value.target is operator.getitem:  # its row does not make it
                raise UnsupportedError(f"node {value.name!r}: a value for gradients is not supported{_where(value)}")
            return found
        if isinstance(value, list | tuple):
            return [self._argument(element) for element in elements(cast("Any", value))]
        return value

    def _named(self, value: Any, name: str) -> Value:
        """An output of the graph under its public name."""
        self._builder.name = name
        return self._builder.op("Identity", self._tensor(value))

    def _tensor(self, value: Any) -> Value:
        """A value of PyTorch's graph as one of arrays: complex numbers as pairs."""
        if isinstance(value, Complex):
            return joined(self._builder, value)
        return value if isinstance(value, Value) else self._builder.constant(np.asarray(value))

    def _guard(self, made: list[Any], ends: Sequence[Any], asserted: Sequence[tuple[fx.Node, str]]) -> None:
        """Makes the smallest output one that is only there where all holds: a run has all outputs or none."""
        place = min(range(len(ends)), key=lambda i: _count_of(ends[i]), default=None)
        if place is None:
            return
        for condition, message in asserted:
            self._builder.name = f"{_title(condition)} ({message})"
            holds = self._builder.cast(self._argument(condition), DType.BOOL)
            made[place] = self._builder.op("Asserted", self._tensor(made[place]), holds, domain=ATEN)

    def _assume(self, made: list[Any], sized: Iterable[SizeGuard]) -> None:
        """Makes the first output one that is only there for such sizes."""
        inputs = {node.name: value for node, value in self.inputs.items()}
        for guard in sized if made else ():
            self._builder.name = f"{guard.text} (torch.export)"
            numbers = guard.values(self._builder, inputs)
            if numbers is not None:
                own = self._tensor(made[0])
                made[0] = self._builder.op("Sized", own, *numbers, domain=ATEN)

    # ----------------------------------------------------------------------------------------------------------- calls

    def _call(self, node: fx.Node) -> Any:
        fixed = settled(node.meta.get("val"))
        if fixed is not None:
            return fixed
        arguments = [self._argument(value) for value in node.args]
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        keywords = {key: self._argument(value) for key, value in node.kwargs.items()}
        builder, before = self._builder, len(self._builder.nodes)
        builder.name, builder.made = _title(node), node.meta.get("val")
        if isinstance(node.target, HigherOrderOperator):
            return self._inlined(node, arguments)
        builder.asserted = node.target in FUNCTIONS and is_only_asserted(node)
        told = builder.made
        builder.complex = is_complex(told)
        if is_complex([told, *arguments, *keywords.values()]):
            row = self._complex_row(node)
            builder.made = real_meta(told)
        else:
            row = narrowed_once(self._row(node), str(node.target), told)
        if any(
            isinstance(o.dtype, str)
            for o in [*_flat(arguments), *_flat(list(keywords.values()))]
            if isinstance(o, Value)
        ):
            raise UnsupportedError(f"node {node.name!r}: {node.target} of such elements is not supported{_where(node)}")
        _check_types(builder.made)
        made = row(builder, *arguments, **keywords)
        self._learn(made, told)
        self._tell(node, [n.name for n in builder.nodes[before:]])
        return made

    def _row(self, node: fx.Node) -> Callable[..., Any]:
        found = FUNCTIONS.get(node.target)
        if found is not None:
            return found
        if not isinstance(node.target, OpOverload):
            raise UnsupportedError(f"node {node.name!r}: {node.target} is not supported yet{_where(node)}")
        name = str(cast("Any", node.target))
        if name.startswith(FAILING) or name == "aten.copy_.default":
            return _nothing  # what is written to inputs is an output; what is asserted is among the ends of `run`
        found = rows().get(name)
        if found is None:
            raise UnsupportedError(f"node {node.name!r}: operator {node.target} is not supported yet{_where(node)}")
        return found

    def _complex_row(self, node: fx.Node) -> Callable[..., Any]:
        found = complex_row(str(node.target).removeprefix("aten."))
        if found is None:
            raise UnsupportedError(
                f"node {node.name!r}: {node.target} of complex numbers is not supported{_where(node)}"
            )
        return found

    def _inlined(self, node: fx.Node, arguments: list[Any]) -> Any:
        """A branch or a loop; a body that is called once, in a state of autograd or autocast that inference has
        anyhow."""
        name = str(node.target)
        try:
            if name == "cond":
                made = cond(self._builder, self._returned, *arguments)
            elif name == "while_loop":
                test, step, carried, others = arguments
                states = [self._tensor(value) for value in carried]
                made = while_loop(self._builder, self._returned, self._state, test, step, states, others)
            elif name == "flex_attention":
                body, operands = flex_attention(node)
                return self._body(body, [self._argument(operand) for operand in operands])
            else:
                return self._wrapped(node, arguments)
        except UnsupportedError as error:
            raise error if "(" in str(error) else UnsupportedError(f"{error}{_where(node)}") from None
        self._learn(made, node.meta.get("val"))
        return made

    def _wrapped(self, node: fx.Node, arguments: list[Any]) -> Any:
        body = next((a for a in arguments if isinstance(a, fx.GraphModule)), None)
        if body is None or "wrap" not in str(node.target):
            raise UnsupportedError(f"node {node.name!r}: {node.target} is not supported yet{_where(node)}")
        return self._body(body, arguments[arguments.index(body) + 1 :])

    def _body(self, body: fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        holes = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        self._values.update(zip(holes, operands, strict=True))
        return self._nodes(body.graph, body)

    def _returned(self, body: fx.GraphModule, operands: Sequence[Any]) -> list[Value]:
        made = self._body(body, operands)
        if is_complex(made):
            raise UnsupportedError(f"node {self._builder.name!r}: branches and loops of complex numbers")
        return [self._tensor(value) for value in made]

    def _state(self, hole: fx.Node) -> Value:
        """What a loop carries, as its body reads it."""
        made = hole.meta["val"]
        value = Value(self._builder.unique(hole.name), *self._declared(hole, made))
        self._learn(value, made)
        return value

    def _learn(self, made: Any, meta: Any) -> None:
        if isinstance(made, Value):
            self._builder.known.setdefault(made, meta)
        elif isinstance(made, Complex):
            self._learn(made.real, real_meta(meta))
            self._learn(made.imag, real_meta(meta))
        elif isinstance(made, list | tuple) and isinstance(meta, list | tuple):
            for value, own in zip(elements(cast("Any", made)), elements(cast("Any", meta)), strict=False):
                self._learn(value, own)

    def _tell(self, node: fx.Node, called: Sequence[str]) -> None:
        read = [self._values[source] for source in node.all_input_nodes]
        inputs = tuple(value.name for value in read if isinstance(value, Value))
        weights = tuple(v.name for v in read if isinstance(v, Value) and v.stored is not None and _is_parameter(v))
        self._files.append(
            FileNode(
                _title(node), str(node.target), inputs, (node.name,), _line(node), called=tuple(called), weights=weights
            )
        )


# ------------------------------------------------------------------------------------------------------------- details


def _nothing(_: Builder, *__: Any, **___: Any) -> None:
    return None


def _read(tensor: torch.Tensor, part: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray[Any, Any]:
    return as_array(part(tensor))


def dim_of(size: Any) -> int | str:
    """A size, or the name of the symbol that it is; "" for another expression."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return str(expression) if expression.is_symbol else int(expression) if expression.is_number else ""


def _needed(graph: fx.Graph, ends: Sequence[Any] | None) -> set[fx.Node]:
    """The nodes that these are computed by, or, without them, the outputs: not what only checks of the tracer read."""
    found = {end for end in ends or () if isinstance(end, fx.Node)}
    for node in reversed(graph.nodes):
        checks = str(node.target).startswith(FAILING)
        kept = ends is None if node.op == "output" else node.is_impure() and not checks
        if kept or not found.isdisjoint(node.users):
            found.add(node)
    return found


def _count_of(end: Any) -> int:
    """The elements of an output at the sizes that were traced."""
    made = end.meta.get("val") if isinstance(end, fx.Node) else None
    sizes: Sequence[Any] = made.shape if isinstance(made, torch.Tensor) else ()
    return math.prod(hint(size) for size in sizes)


def _check_types(made: Any) -> None:
    """UnsupportedError where a node makes elements of a type that opweld does not have."""
    for value in _flat(made):
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                raise UnsupportedError(f"a tensor of layout {value.layout} is not supported")
            dtype_of(value.dtype)


def _is_parameter(value: Value) -> bool:
    return bool(value.shape) and isinstance(value.dtype, DType) and (value.dtype.is_float or value.dtype.bytes == 1)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for element in elements(cast("Any", value)):
            yield from _flat(element)
    else:
        yield value


def _title(node: fx.Node) -> str:
    """The node's name after the path of the module that it comes from: `layers.3.mlp/linear_4`."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    paths = [str(elements(found)[0]) for found in stack.values()]
    path = paths[-1] if paths and not paths[-1].startswith("_") else ""
    return f"{path}/{node.name}" if path else node.name


def _line(node: fx.Node) -> str:
    """The innermost line of the program that is not PyTorch's own: file:line."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    own = [frame for frame in frames if not frame.startswith(f'File "{_LIBRARY}/')] or frames
    if not own:
        return ""
    file, _, rest = own[-1].removeprefix('File "').partition('", line ')
    return f"{file}:{rest.partition(',')[0]}"


def _where(node: fx.Node) -> str:
    line = _line(node)
    return f" ({line})" if line else ""
