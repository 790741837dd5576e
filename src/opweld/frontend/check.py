"""Validates an ONNX file, which is untrusted data, before anything else reads it.

Every check raises a ModelError that names the value or node. No memory is allocated by declared sizes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto
from onnx.external_data_helper import uses_external_data

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.contributed import SCHEMAS
from opweld.frontend.external import external_extent
from opweld.frontend.grouped import OF_GROUPS
from opweld.frontend.order import title_of
from opweld.ops.registry import OPSET

OLDEST_OPSET, NEWEST_OPSET = 1, 28
MAX_RANK = 8
MAX_IR_VERSION = 14
ML = "ai.onnx.ml"

_ITEM_BITS: dict[int, int] = {
    TensorProto.FLOAT: 32, TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16,
    TensorProto.INT32: 32, TensorProto.INT64: 64, TensorProto.BOOL: 8, TensorProto.FLOAT16: 16, TensorProto.DOUBLE: 64,
    TensorProto.UINT32: 32, TensorProto.UINT64: 64, TensorProto.BFLOAT16: 16, TensorProto.UINT4: 4,
    TensorProto.INT4: 4, TensorProto.FLOAT8E4M3FN: 8, TensorProto.FLOAT8E5M2: 8, TensorProto.COMPLEX64: 64,
    TensorProto.COMPLEX128: 128, TensorProto.FLOAT8E4M3FNUZ: 8, TensorProto.FLOAT8E5M2FNUZ: 8,
    TensorProto.FLOAT8E8M0: 8, TensorProto.FLOAT4E2M1: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2,
}  # fmt: skip
_TYPED_FIELD: dict[int, str] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data", TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data", TensorProto.UINT64: "uint64_data", TensorProto.STRING: "string_data",
    TensorProto.UINT8: "int32_data", TensorProto.INT8: "int32_data", TensorProto.UINT16: "int32_data",
    TensorProto.INT16: "int32_data", TensorProto.INT32: "int32_data", TensorProto.BOOL: "int32_data",
    TensorProto.FLOAT16: "int32_data", TensorProto.BFLOAT16: "int32_data", TensorProto.FLOAT8E4M3FN: "int32_data",
    TensorProto.FLOAT8E4M3FNUZ: "int32_data", TensorProto.FLOAT8E5M2: "int32_data",
    TensorProto.FLOAT8E5M2FNUZ: "int32_data", TensorProto.FLOAT8E8M0: "int32_data", TensorProto.UINT4: "int32_data",
    TensorProto.INT4: "int32_data", TensorProto.FLOAT4E2M1: "int32_data", TensorProto.UINT2: "int32_data",
    TensorProto.INT2: "int32_data",
}  # fmt: skip


def check_header(model: onnx.ModelProto) -> int:
    """Checks IR version and opsets, of functions too; returns the opset of the default domain."""
    if not 3 <= model.ir_version <= MAX_IR_VERSION:
        raise ModelError(
            f"IR version {model.ir_version} is not supported; opweld reads 3 to {MAX_IR_VERSION}. "
            "If the file is an ONNX model, save it with another version of onnx."
        )
    if not model.HasField("graph") or (not model.graph.node and not model.graph.output):
        raise ModelError("the model has no graph: it is empty, truncated, or not an ONNX model")
    if not model.graph.output:
        raise ModelError("the graph has no outputs, so there is nothing to compute")
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"the model uses two opsets of the domain {domain[:100]!r}: opset_import names it twice")
    if "" not in versions and any(node.domain in ("", "ai.onnx") for node in model.graph.node):
        raise ModelError("the model does not say which opset of the default domain it uses (opset_import)")
    versions.setdefault("", OPSET)
    if not OLDEST_OPSET <= versions[""] <= NEWEST_OPSET:
        raise ModelError(
            f"opset {versions['']} is not supported; opweld reads {OLDEST_OPSET} to {NEWEST_OPSET}. "
            "Export the model again with an opset in that range."
        )
    for function in model.functions:
        for entry in function.opset_import:
            if entry.domain in ("", "ai.onnx") and not 0 <= entry.version <= NEWEST_OPSET:
                raise ModelError(
                    f"function {function.name[:100]!r}: opset {entry.version} is not supported; opweld reads "
                    f"{OLDEST_OPSET} to {NEWEST_OPSET}. Export the model again with an opset in that range."
                )
    return versions[""]


def check_tensors(model: onnx.ModelProto, path: Path | None) -> None:
    """Checks that each stored tensor has a sane shape and exactly the data it declares."""
    for tensor in tensors_of(model):
        _check_tensor(tensor, path)


def tensors_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored in a model: initializers and attributes, including those of bodies and functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def external_files(model: onnx.ModelProto) -> tuple[str, ...]:
    """The external data files of a model, by relative name."""
    found = {
        entry.value
        for tensor in tensors_of(model)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return tuple(sorted(found))


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"initializer {name[:200]!r} is sparse, which is not supported yet. Export it dense.")
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
                raise UnsupportedError(
                    f"node {node.name[:200]!r}: sparse tensors are not supported yet. Export it dense."
                )
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _graph_tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _graph_tensors(graph)


def _check_tensor(tensor: TensorProto, path: Path | None) -> None:
    title = f"tensor {tensor.name[:200]!r}"
    if len(tensor.dims) > MAX_RANK:
        raise ModelError(f"{title} has rank {len(tensor.dims)}; opweld supports ranks up to {MAX_RANK}")
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{title} has a negative dim: {list(tensor.dims)}")
    count = prod(tensor.dims)
    if tensor.HasField("segment"):
        raise ModelError(f"{title} is stored in segments, which ONNX never defined")
    bits = _ITEM_BITS.get(tensor.data_type)
    if bits is None and tensor.data_type != TensorProto.STRING:
        raise ModelError(f"{title} has element type {tensor.data_type}, which is not supported")
    if tensor.data_location == TensorProto.EXTERNAL:
        extent, needed = external_extent(tensor, path), (count * (bits or 0) + 7) // 8
        declared = any(entry.key == "length" and entry.value for entry in tensor.external_data)
        if bits is None or (extent.length != needed if declared else extent.length < needed):
            raise ModelError(
                f"{title} of shape {list(tensor.dims)} needs {needed} bytes; its file part has {extent.length}"
            )
        return
    if tensor.HasField("raw_data"):
        if bits is None or len(tensor.raw_data) != (count * bits + 7) // 8:
            raise ModelError(
                f"{title} of shape {list(tensor.dims)} has {len(tensor.raw_data)} bytes of data, which do not fit"
            )
        return
    field = _TYPED_FIELD.get(tensor.data_type)
    # types of less than a byte are packed, with a byte in each element of the field
    expected = count if bits is None or bits >= 8 else (count * bits + 7) // 8
    if field is not None and len(getattr(tensor, field)) != expected:
        raise ModelError(f"{title} of shape {list(tensor.dims)} has {len(getattr(tensor, field))} elements in {field}")


def check_text(message: Any) -> None:
    """Refuses text that is not UTF-8, anywhere in a message without weights; protobuf returns it as bytes."""
    stack = [message]
    while stack:
        message = stack.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                stack.extend([value] if hasattr(value, "ListFields") else value)
            elif field.type == field.TYPE_STRING:
                texts: Iterable[object] = (value,) if isinstance(value, str | bytes) else value
                broken = next((text for text in texts if isinstance(text, bytes)), None)
                if broken is not None:
                    raise ModelError(f"{field.name} of a {type(message).__name__} is not valid UTF-8: {broken[:50]!r}")


def check_nodes(nodes: Iterable[onnx.NodeProto], opset: int, local: Mapping[tuple[str, str], object]) -> None:
    """Checks nodes against the schemas of their operators: number of inputs and outputs, attributes. Calls of functions
    and operators of unknown domains have no schema; inlining and inference handle them."""
    for node in nodes:
        for attribute in node.attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                check_nodes(graph.node, opset, local)
        names = Counter(attribute.name for attribute in node.attribute)
        if len(names) < len(node.attribute):
            twice = names.most_common(1)[0][0]
            raise ModelError(f"{title_of(node)}: attribute {twice[:100]!r} is given more than once")
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) in local:
            continue
        schema = _default_schema(node, opset) if domain == "" else schema_of(domain, node.op_type)
        if schema is not None:
            _check_node(node, schema, f"opset {opset}" if domain == "" else domain)


def schema_of(domain: str, op_type: str) -> Any:
    """The newest schema of an operator of another domain than the default one; None when there is none."""
    if domain != ML:
        return SCHEMAS.get((domain, op_type))
    try:
        return onnx.defs.get_schema(op_type, onnx.defs.onnx_ml_opset_version(), ML)
    except onnx.defs.SchemaError:
        return None


def _default_schema(node: onnx.NodeProto, opset: int) -> Any:
    title = title_of(node)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        raise ModelError(f"{title}: opset {opset} has no operator {node.op_type[:100]!r}") from None
    if schema.deprecated and not (schema.name == "GroupNormalization" and opset in OF_GROUPS):
        raise ModelError(f"{title}: the operator is deprecated in opset {opset}")
    return schema


def _check_node(node: onnx.NodeProto, schema: Any, source: str) -> None:
    title = title_of(node)
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise ModelError(f"{title}: expected {schema.min_input} to {schema.max_input} inputs, got {len(node.input)}")
    if len(node.output) > schema.max_output or len(node.output) < schema.min_output:
        raise ModelError(
            f"{title}: expected {schema.min_output} to {schema.max_output} outputs, got {len(node.output)}"
        )
    for name, formal in zip(node.input, schema.inputs, strict=False):
        if not name and formal.option == onnx.defs.OpSchema.FormalParameterOption.Single:
            raise ModelError(f"{title}: input {formal.name!r} is missing")
    known = schema.attributes
    if schema.name == "Constant" and len(node.attribute) != 1:
        raise ModelError(f"{title}: {len(node.attribute)} attributes define the constant; expected one")
    for attribute in node.attribute:
        if attribute.name not in known:
            raise ModelError(f"{title}: {source} has no attribute {attribute.name[:100]!r} of this operator")
        kind: Any = known[attribute.name].type
        for text in (attribute.s, *attribute.strings):
            if not _is_text(text):
                raise ModelError(f"{title}: attribute {attribute.name!r} is not valid UTF-8")
        if attribute.type != kind.value and not attribute.ref_attr_name:
            raise ModelError(f"{title}: attribute {attribute.name!r} has the wrong type")
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in known.items():
        if attribute.required and name not in given:
            raise ModelError(f"{title}: attribute {name!r} is missing")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
