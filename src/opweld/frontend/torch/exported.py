"""Programs of `torch.export`, and modules by way of it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.torch.assertions import assertions, messages_given
from opweld.frontend.torch.builder import elements
from opweld.frontend.torch.decompositions import decompositions
from opweld.frontend.torch.imported import Imported
from opweld.frontend.torch.importer import Importer, dim_of
from opweld.frontend.torch.recurrent import recurrences_kept
from opweld.frontend.torch.size_guards import size_guards
from opweld.frontend.torch.untraced import untraced

_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def exported(module: torch.nn.Module, example_inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """The program of a module.

    Args:
        example_inputs: a tuple of positional ones, or a dict of those with names.
        dynamic_shapes: as `torch.export.export` has it; a text is a dynamic dim of that name.

    Raises ModelError with PyTorch's reason, the module's line and a remedy where it cannot be traced."""
    if any(own.training and _has_modes(own) for own in module.modules()):
        raise ModelError(f"{type(module).__name__} is in training mode; call module.eval() first")
    shapes = pytree.tree_map(_dim, dynamic_shapes)
    kwargs = dict(cast("Mapping[str, Any]", example_inputs)) if isinstance(example_inputs, Mapping) else {}
    args = () if kwargs else tuple(elements(example_inputs))
    try:
        with torch.no_grad(), warnings.catch_warnings(), recurrences_kept():
            warnings.simplefilter("ignore")
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    except Exception as error:  # torch.export's errors have no common class
        raise ModelError(f"torch.export cannot trace {type(module).__name__}: {untraced(error)}") from error


def _has_modes(module: torch.nn.Module) -> bool:
    """Whether training may be another thing for a module: not for what tracers made, nor for what only holds others."""
    traced = type(module).__module__.startswith(("torch.fx.", "torch.export."))
    return not traced and type(module) is not torch.nn.Module


def _dim(found: Any) -> Any:
    return torch.export.Dim.DYNAMIC if isinstance(found, str) else found


def imported(program: ExportedProgram, dynamic_shapes: Any = None, name: str = "") -> Imported:
    """The graph of an exported program; a buffer that the module writes is an input of its name and an output.

    Args:
        dynamic_shapes: what the program was exported with: its dims name the symbols.

    Raises UnsupportedError naming node, operator and line."""
    for target, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"{target!r} is stored in layout {tensor.layout}; give a dense one, as by to_dense()"
            )
    with torch.no_grad(), warnings.catch_warnings(), messages_given(program.graph_module):
        warnings.simplefilter("ignore")
        functional = program.run_decompositions(decompositions())
    signature = functional.graph_signature
    written = {spec.arg.name: spec for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION}
    targets = {spec.target for spec in written.values()}
    parameters: dict[str, torch.Tensor] = {}
    names: dict[str, str] = {}
    stored: Mapping[str, Any] = {**functional.state_dict, **functional.constants}
    for spec in signature.input_specs:
        if spec.kind in _STORED and spec.target in targets:
            names[spec.arg.name] = str(spec.target)
        elif spec.kind in _STORED:
            parameters[spec.arg.name] = stored[str(spec.target)]
        elif spec.kind is InputKind.TOKEN:
            raise UnsupportedError(_effects(functional.graph))
        elif spec.kind is not InputKind.USER_INPUT:
            raise UnsupportedError(f"input {spec.arg.name!r} is a {spec.kind.name.lower()}, which is not supported yet")
    public = iter(output_names(program.call_spec.out_spec))
    outputs: list[str] = []
    for spec in signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            outputs.append(f"{spec.target}.next")
        elif spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(next(public))
        else:
            raise UnsupportedError(f"the module writes input {spec.target!r}, which is not supported yet")
    (end,) = (node for node in functional.graph.nodes if node.op == "output")
    returned = elements(end.args[0])
    ends = [value for value in returned if is_value(value)]
    outputs = [own for own, value in zip(outputs, returned, strict=True) if is_value(value)]
    importer = Importer(parameters, names, dim_names(functional, dynamic_shapes))
    asserted = tuple(assertions(functional.graph))
    graph, nodes = importer.run(
        functional.graph, functional.graph_module, outputs, ends, asserted, size_guards(program)
    )
    return Imported(graph, nodes, name)


def _effects(graph: torch.fx.Graph) -> str:
    """Why a program has tokens."""
    calls = [node for node in graph.nodes if str(node.target) == "with_effects"]
    told = ", ".join(dict.fromkeys(str(node.args[1]) for node in calls)) or "an operator"
    return (
        f"{told} does something besides what it returns, as prints and checks of errors do, so that torch.export hands "
        "a token from one such call to the next; an artifact has none. Compile a part of the module without it, or "
        'call torch.compile(module, backend="opweld"), which leaves it in eager mode'
    )


def is_value(returned: Any) -> bool:
    """Whether what a module returns is an output: None and texts, as of a modality, are not."""
    return returned is not None and not isinstance(returned, str)


def saved(program: ExportedProgram) -> bytes:
    """A program as torch.export writes it."""
    data = io.BytesIO()
    torch.export.save(program, data)
    return data.getvalue()


def loaded(data: bytes) -> ExportedProgram:
    """The program that was saved."""
    return torch.export.load(io.BytesIO(data))


def user_inputs(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """(placeholder, name of the model's input) of what a caller feeds."""
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            yield spec.arg.name, spec.arg.name


def output_names(spec: Any) -> Iterator[str]:
    """Names of what a module returns, by where it stands in that: `logits`, `past_key_values.0.1`; `output` where it
    returns a tensor, `output.0` and so on for a tuple."""
    leaves = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    for path in _paths(leaves):
        text = ".".join(path)
        yield text if text and not text[0].isdigit() else f"output.{text}" if text else "output"


def _paths(tree: Any) -> Iterator[tuple[str, ...]]:
    """Where each leaf stands, in order. A class may be registered without names of what it holds; those of a dict are
    its context then."""
    found = cast("list[tuple[Any, Any]]", pytree.tree_flatten_with_path(tree, is_leaf=_is_nameless)[0])
    for path, leaf in found:
        keys = tuple(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)
        if not _is_nameless(leaf):
            yield keys
            continue
        children, context = pytree.SUPPORTED_NODES[type(leaf)].flatten_fn(leaf)
        told: list[Any] = cast("list[Any]", context) if isinstance(context, list) else []
        names = told if len(told) == len(children) else range(len(children))
        for name, child in zip(names, children, strict=True):
            yield from ((*keys, str(name), *rest) for rest in _paths(child))


def _is_nameless(tree: Any) -> bool:
    kind = pytree.SUPPORTED_NODES.get(cast("Any", type(tree)))
    return kind is not None and kind.flatten_with_keys_fn is None


def dim_names(program: ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """The name of each symbol: that of the dim that a caller made for it, else of the first input that has it as a
    size, `x_dim0`."""
    found: dict[str, str] = {}
    for node in program.graph.nodes:
        made = node.meta.get("val") if node.op == "placeholder" else None
        sizes: list[Any] = list(made.shape) if isinstance(made, torch.Tensor) else []
        for axis, size in enumerate(sizes):
            symbol = dim_of(size)
            if isinstance(symbol, str) and symbol:
                found.setdefault(symbol, f"{node.name}_dim{axis}")
    if dynamic_shapes is None:
        return found
    own = dict(user_inputs(program))
    tensors = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in own]
    leaves: list[Any] = pytree.tree_leaves(dynamic_shapes, is_leaf=_is_shape)
    if len(leaves) == len(tensors):
        for node, dims in zip(tensors, leaves, strict=True):
            for axis, dim in _told(dims):
                name = dim if isinstance(dim, str) else getattr(dim, "__name__", "")
                symbol = dim_of(node.meta["val"].shape[axis])
                if name and isinstance(symbol, str) and symbol:
                    found[symbol] = name
    return found


def _told(dims: Any) -> Iterator[tuple[int, Any]]:
    """(axis, what is said of it) of a tensor."""
    if isinstance(dims, dict):
        yield from cast("Mapping[int, Any]", dims).items()
    elif dims is not None:
        yield from enumerate(elements(dims))


def _is_shape(found: Any) -> bool:
    """Whether a part of `dynamic_shapes` tells the dims of one tensor."""
    if isinstance(found, dict):
        return all(isinstance(key, int) for key in cast("Mapping[Any, Any]", found))
    return found is None or all(not isinstance(own, dict | list | tuple) for own in elements(found))
