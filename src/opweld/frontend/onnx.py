"""Loads ONNX files: validated, converted to one opset, functions inlined, constants as initializers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes.common import LiftConstantsToInitializersPass, NameFixPass, RemoveInitializersFromInputsPass

from opweld.errors import DamagedModelError, ModelError, UnsupportedError
from opweld.foreign import of_file
from opweld.frontend import isolated
from opweld.frontend.check import MAX_RANK, check_header, check_nodes, check_tensors, check_text, external_files
from opweld.frontend.contributed import MICROSOFT, move_misplaced
from opweld.frontend.definitions import declared_types, expand_operators
from opweld.frontend.external import Version, external_extent, version_of
from opweld.frontend.inferred import library_of
from opweld.frontend.light import read_light
from opweld.frontend.opset import MARK, Stripped, convert, inline_functions, operators_of, restore_declared
from opweld.frontend.order import sort_nodes
from opweld.frontend.output_shapes import Library
from opweld.frontend.recorded import recorded_nodes, stored_parameters
from opweld.frontend.sequences import form_of, resolve_sequences
from opweld.frontend.specialise import declared, specialise
from opweld.frontend.texts import Numbered, has_texts, number_texts
from opweld.interface import Argument, ModelMetadata, Specialisation, Structure, Tensor, Text
from opweld.ops.registry import OPSET
from opweld.record import FileNode

IR_VERSION = 14
"""The IR version that belongs to `OPSET`."""

_NODE_NAME_LIMIT = 200


@dataclass(frozen=True, eq=False)
class Loaded:
    """A valid model at opset `OPSET`, ready for inference, and information about its file.

    Attributes:
        model: the graph, functions inlined. opset: of the file. metadata: its producer, version and texts.
        structure: how callers see inputs and outputs, if some are not numeric tensors; else None.
        nodes: those of the file. parameters: elements and bytes of its parameters by name; see `recorded.py`.
        library: returns ONNX's own inference of the shapes of the outputs; see `output_shapes.py`.
        external: the external data files, by relative name.
    """

    model: ir.Model
    opset: int
    metadata: ModelMetadata
    structure: Structure | None
    nodes: tuple[FileNode, ...]
    parameters: Mapping[str, tuple[int, int]]
    library: Library
    external: tuple[str, ...]


def load(model: str | Path | bytes | onnx.ModelProto, specialisation: Specialisation | None = None) -> ir.Model:
    """Only the graph of `load_file`."""
    return load_file(model, specialisation).model


def load_file(model: str | Path | bytes | onnx.ModelProto, specialisation: Specialisation | None = None) -> Loaded:
    """A valid model at opset `OPSET`, ready for inference.

    `model` is a path, the bytes of a file, or a ModelProto (left untouched). Weights are not copied: they remain in the
    parsed model, or in the file or its external files, and are read whenever they are called for. Initializers that
    are graph inputs too become constants. Names of inputs and outputs, their declared dims, and the producer are kept;
    names of nodes are made unique. `specialisation` defines what must be known about inputs that are not tensors.
    Raises ModelError for whatever is malformed or unsafe, UnspecifiedError when more must be known, UnsupportedError
    for what is valid but not supported.
    """
    light = _light(Path(model)) if isinstance(model, str | Path) else None
    if light is None:
        return load_read(*read_model(model), specialisation)
    proto, path, version = light
    loaded = load_read(proto, path, specialisation)
    if version_of(path.stat()) != version:  # so that weights are those of this model
        raise ModelError(f"{path} has changed since the model was opened. Open the model again.")
    return replace(loaded, external=tuple(name for name in loaded.external if name != path.name))


def _light(path: Path) -> tuple[onnx.ModelProto, Path, Version] | None:
    """A model whose weights stay in its file, and the version of the file; None where `read_model` is to read it."""
    try:
        version = version_of(path.stat())
        proto = read_light(path)
    except (OSError, ValueError):
        return None
    return None if proto is None else (proto, path, version)


def load_read(proto: onnx.ModelProto, path: Path | None, specialisation: Specialisation | None = None) -> Loaded:
    """The same for a model from `read_model`, which is not modified."""
    try:
        return _load(proto, path, specialisation or Specialisation())
    except UnicodeDecodeError as error:
        raise ModelError(f"a name in the model is not valid UTF-8: {error.object[:50]!r}") from error


def declaration_of(model: str | Path | bytes | onnx.ModelProto) -> tuple[Structure, ModelMetadata]:
    """The inputs and outputs of a model as it declares them, and its metadata. Stored tensors are not
    inputs."""
    proto, _ = read_model(model)
    graph = proto.graph
    _check_interface(graph)
    stored = {tensor.name for tensor in graph.initializer}
    inputs = declared([value for value in graph.input if value.name not in stored])
    return Structure(inputs, declared(list(graph.output))), _metadata(proto)


def _metadata(proto: onnx.ModelProto) -> ModelMetadata:
    graph = proto.graph
    return ModelMetadata(
        producer=proto.producer_name,
        graph=graph.name,
        domain=proto.domain,
        description=proto.doc_string,
        graph_description=graph.doc_string,
        version=proto.model_version,
        custom={entry.key: entry.value for entry in proto.metadata_props},
    )


def _load(proto: onnx.ModelProto, path: Path | None, specialisation: Specialisation) -> Loaded:
    opset = check_header(proto)
    check_tensors(proto, path)
    if has_texts(proto.graph):
        proto = copy.deepcopy(proto)  # strings are replaced by numbers in place
    numbered = number_texts(proto.graph)
    stripped = Stripped(proto)
    check_text(stripped.proto)
    local = {("" if f.domain == "ai.onnx" else f.domain, f.name): f for f in proto.functions}
    _adopt_misplaced(stripped.proto)
    check_nodes(stripped.proto.graph.node, opset, local)
    for function in stripped.proto.functions:
        versions = {entry.domain: entry.version for entry in function.opset_import}
        check_nodes(function.node, versions.get("", opset), local)
    sort_nodes(stripped.proto.graph)
    _check_interface(stripped.proto.graph)
    converted = convert(inline_functions(stripped.proto), opset)
    converted = expand_operators(converted, declared_types(proto.graph))
    restore_declared(converted, proto)
    outputs = declared(list(converted.graph.output))
    for value in converted.graph.output:
        if not value.type.HasField("tensor_type"):
            value.ClearField("type")
    inputs = specialise(converted.graph, specialisation)
    structure = Structure(_as_texts(inputs, numbered), _as_texts(outputs, numbered), numbered.texts)
    if "SplitToSequence" in operators_of(converted.graph):
        converted = _with_shapes(converted)
    model, forms = _finish(converted, stripped, path, structure)
    parameters = stored_parameters(proto)
    return Loaded(
        model=model,
        opset=opset,
        metadata=_metadata(proto),
        structure=forms,
        nodes=recorded_nodes(proto, model, parameters),
        parameters=parameters,
        library=library_of(proto),
        external=() if path is None else external_files(proto),
    )


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes that onnx infers: the number of pieces of a Split depends on the size."""
    try:
        return isolated.infer_shapes(model)
    except isolated.LibraryError:
        return model  # missing shapes are reported where they are needed


def _as_texts(arguments: tuple[Argument, ...], numbered: Numbered) -> tuple[Argument, ...]:
    return tuple(
        replace(argument, type="tensor(string)", form=Text(argument.name))
        if argument.name in numbered.values
        else argument
        for argument in arguments
    )


def read_model(model: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None]:
    """The model, parsed and not yet checked, and its path. Raises ModelError when it cannot be read."""
    if isinstance(model, onnx.ModelProto):
        return model, None
    path = None if isinstance(model, bytes) else Path(model)
    title = "the model" if path is None else f"{str(path)!r}"
    try:
        data = model if isinstance(model, bytes) else Path(model).read_bytes()
    except (OSError, ValueError) as error:
        raise ModelError(f"{title} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        what = of_file(data) or "truncated or of another format"
        raise DamagedModelError(f"{title} is not an ONNX model: it is {what}") from error
    what = None if proto.HasField("graph") else of_file(data)  # protobuf parses many other formats
    if what is not None:
        raise DamagedModelError(f"{title} is not an ONNX model: it is {what}")
    return proto, path


def _adopt_misplaced(model: onnx.ModelProto) -> None:
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        move_misplaced(nodes)
    for owner in (model, *model.functions):
        if not any(entry.domain == MICROSOFT for entry in owner.opset_import):
            owner.opset_import.add(domain=MICROSOFT, version=1)


def _check_interface(graph: onnx.GraphProto) -> None:
    for kind, values in (("input", graph.input), ("output", graph.output)):
        names = [value.name for value in values]
        if "" in names:
            raise ModelError(f"the graph has an {kind} without a name")
        if kind == "input" and len(set(names)) < len(names):
            raise ModelError("the graph has two inputs of one name")
        for value in values:
            _check_type(value.type, f"{kind} {value.name[:200]!r}")


def _check_type(kind: onnx.TypeProto, title: str) -> None:
    which = kind.WhichOneof("value")
    if which == "sparse_tensor_type":
        raise UnsupportedError(f"{title} is a sparse tensor, which is not supported")
    if which in ("sequence_type", "optional_type"):
        _check_type(getattr(kind, which).elem_type, title)
    if which != "tensor_type":
        return
    if kind.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
        raise ModelError(f"{title} has element type {kind.tensor_type.elem_type}, which ONNX does not define")
    rank = len(kind.tensor_type.shape.dim)
    if rank > MAX_RANK:
        raise ModelError(f"{title} has rank {rank}; opweld supports ranks up to {MAX_RANK}")


def _finish(
    proto: onnx.ModelProto, stripped: Stripped, path: Path | None, structure: Structure
) -> tuple[ir.Model, Structure | None]:
    """The model, and how callers see its inputs and outputs, if some are not numeric tensors."""
    proto.ir_version = IR_VERSION
    try:
        model = ir.from_proto(proto)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the outermost names the graph, the innermost the error
            cause = cause.__cause__
        raise ModelError(f"the graph is malformed: {str(cause)[:300]}") from error
    assert isinstance(model, ir.Model)
    weights = [stored_tensor(tensor, path) for tensor in stripped.removed]
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _original(value.const_value, weights)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        node.name = (node.name or "")[:_NODE_NAME_LIMIT] or f"{node.op_type}"
        for name, attribute in list(node.attributes.items()):
            if attribute.type is ir.AttributeType.TENSOR and attribute.ref_attr_name is None:
                node.attributes[name] = ir.AttrTensor(name, _original(attribute.value, weights))
    RemoveInitializersFromInputsPass()(model)
    outputs = resolve_sequences(model)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    NameFixPass()(model)
    declared_as = zip(structure.outputs, outputs, strict=True)
    forms = [
        argument if isinstance(argument.form, Text) else replace(argument, form=form_of(output))
        for argument, output in declared_as
    ]
    plain = all(argument.form == Tensor(argument.name) for argument in (*structure.inputs, *forms))
    assert model.opset_imports[""] == OPSET
    return model, None if plain else replace(structure, outputs=tuple(forms))


def stored_tensor(tensor: onnx.TensorProto, path: Path | None) -> ir.TensorProtocol:
    """A tensor of a model, which is read when it is asked for where it lies in a file beside the model's, `path`."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return ir.serde.deserialize_tensor(tensor)
    extent, dtype, shape = external_extent(tensor, path), ir.DataType(tensor.data_type), tuple(tensor.dims)

    def read() -> ir.TensorProtocol:
        return ir.Tensor(extent.read(dtype, shape), dtype)

    # Not ir.ExternalTensor, which refuses files with several hard links, as installers create them.
    return ir.LazyTensor(read, dtype, ir.Shape(shape), name=tensor.name)


def _original(tensor: ir.TensorProtocol, weights: list[ir.TensorProtocol]) -> ir.TensorProtocol:
    location = str(cast(str, tensor.location)) if isinstance(tensor, ir.ExternalTensor) else ""
    if location.startswith(MARK):
        return weights[int(location[len(MARK) :])]
    return tensor
