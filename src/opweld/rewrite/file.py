"""A model as the bytes of its file, in pieces: large tensors go from where they are to where they belong.

Protobuf's own writer puts a message together in memory first, and holds none of 2 GB. Here it writes everything but the
data of large tensors, which stands in the file as it stands in memory. See protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

LARGE = 1 << 16
"""Bytes of a tensor whose data is not put together with the rest."""

_DELIMITED = 2
"""The wire type of what begins with its length."""


def serialized(model: ir.Model) -> onnx.ModelProto:
    """A model as protobuf's message, in which a domain of no name is not written out: what is unchanged gets no
    larger."""
    made = ir.serde.serialize_model(model)
    for entry in made.opset_import:
        if not entry.domain:
            entry.ClearField("domain")
    return made


def without_large(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """A model without its large tensors, and these by name."""
    graph = model.graph
    large = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.const_value is not None
        and value.const_value.nbytes > LARGE
        and value.const_value.dtype is not ir.DataType.STRING
        and not isinstance(value.const_value, ir.ExternalTensor)
    }
    kept = dict(graph.initializers)
    try:
        for name in large:
            del graph.initializers[name]
        return serialized(model), large
    finally:
        graph.initializers.clear()
        graph.initializers.update(kept)


def pieces(model: onnx.ModelProto, large: Mapping[str, ir.TensorProtocol]) -> Iterator[bytes]:
    """The bytes of the file of a model that `without_large` gave, with its large tensors; it is used up."""
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = [_head(name, tensor) for name, tensor in large.items()]
    each = [len(head) + int(tensor.nbytes) for head, tensor in zip(heads, large.values(), strict=True)]
    initializer = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
    total = len(graph) + sum(len(_delimited(initializer, size)) + size for size in each)
    yield model.SerializeToString()
    yield _delimited(onnx.ModelProto.GRAPH_FIELD_NUMBER, total)
    yield graph
    for head, size, tensor in zip(heads, each, large.values(), strict=True):
        yield _delimited(initializer, size)
        yield head
        yield tensor.tobytes()


def checkable(model: onnx.ModelProto, large: Mapping[str, ir.TensorProtocol]) -> onnx.ModelProto:
    """The model with inputs in the place of its large tensors: what ONNX's checker says of it, it says of the file."""
    made = copy.deepcopy(model)
    for name, tensor in large.items():
        shape = tuple(tensor.shape.numpy())
        made.graph.input.append(onnx.helper.make_tensor_value_info(name, int(tensor.dtype), shape))
    return made


def _head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """A tensor up to its data."""
    head = onnx.TensorProto(name=name, doc_string=tensor.doc_string or "", data_type=int(tensor.dtype))
    head.dims.extend(tensor.shape.numpy())
    return head.SerializeToString() + _delimited(onnx.TensorProto.RAW_DATA_FIELD_NUMBER, int(tensor.nbytes))


def _delimited(field: int, length: int) -> bytes:
    """What stands before something of a length."""
    return _number(field << 3 | _DELIMITED) + _number(length)


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last have the eighth bit."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))
