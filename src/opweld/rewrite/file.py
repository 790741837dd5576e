"""Serialises a model in pieces: the data of large tensors is copied from where it is stored to the file.

Protobuf's own writer builds a message in memory first, and is limited to 2 GB. Here it writes everything but the data
of large tensors, whose bytes in the file are those in memory. See protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

LARGE = 1 << 16
"""Bytes from which the data of a tensor is written separately."""

_DELIMITED = 2
"""The wire type of length-delimited fields."""


def serialized(model: ir.Model) -> onnx.ModelProto:
    """A model as a protobuf message, without empty domain names, so that an unchanged model does not grow."""
    made = ir.serde.serialize_model(model)
    for entry in made.opset_import:
        if not entry.domain:
            entry.ClearField("domain")
    return made


def without_large(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """A model without its large tensors, and the large tensors by name."""
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
    """The bytes of the file of a model from `without_large`, with its large tensors; the message is consumed."""
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
    """The model with inputs in place of its large tensors: ONNX's checker accepts it if and only if it accepts the
    file."""
    made = copy.deepcopy(model)
    for name, tensor in large.items():
        shape = tuple(tensor.shape.numpy())
        made.graph.input.append(onnx.helper.make_tensor_value_info(name, int(tensor.dtype), shape))
    return made


def _head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """The bytes of a tensor before its data."""
    head = onnx.TensorProto(name=name, doc_string=tensor.doc_string or "", data_type=int(tensor.dtype))
    head.dims.extend(tensor.shape.numpy())
    return head.SerializeToString() + _delimited(onnx.TensorProto.RAW_DATA_FIELD_NUMBER, int(tensor.nbytes))


def _delimited(field: int, length: int) -> bytes:
    """The key and length of a length-delimited field."""
    return _number(field << 3 | _DELIMITED) + _number(length)


def _number(value: int) -> bytes:
    """A varint: seven bits a byte, the lowest first; all bytes but the last have the eighth bit set."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))
