"""What an ONNX file holds, as it is written there: nodes by name, and stored tensors, each read when it is called for.

For readers that know who wrote the file and take its weights; what is to be compiled is read by `onnx.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
from numpy.typing import NDArray

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.check import check_header, check_tensors, check_text, external_files
from opweld.frontend.onnx import read_model, stored_tensor
from opweld.frontend.opset import Stripped

_PLAIN = (
    onnx.AttributeProto.INT,
    onnx.AttributeProto.FLOAT,
    onnx.AttributeProto.STRING,
    onnx.AttributeProto.INTS,
    onnx.AttributeProto.FLOATS,
)


@dataclass(frozen=True)
class FileNode:
    """A node. attributes: those that are numbers, texts and lists of numbers."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class FileTensor:
    """A stored tensor. is_float, is_weight: of floats; of floats or of integers of at most 8 bits. read: what reads
    it."""

    name: str
    shape: tuple[int, ...]
    is_float: bool
    is_weight: bool
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Contents:
    """A file.

    Attributes:
        nodes: in its order, without those that are constants. tensors: initializers and constants, by name.
        inputs: names of the graph's inputs. files: the model and those of its external data.
    """

    nodes: tuple[FileNode, ...]
    tensors: Mapping[str, FileTensor]
    inputs: tuple[str, ...]
    files: tuple[Path, ...]


def read_contents(path: Path) -> Contents:
    """What a file holds.

    Raises ModelError for whatever is malformed or unsafe, UnsupportedError for nodes with bodies and for functions."""
    try:
        return _contents(*read_model(path))
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: a name is not valid UTF-8: {error.object[:50]!r}") from error


def _contents(proto: onnx.ModelProto, path: Path | None) -> Contents:
    assert path is not None, "it is a file"
    check_header(proto)
    check_tensors(proto, path)
    check_text(Stripped(proto).proto)
    if proto.functions:
        raise UnsupportedError(f"{path}: the model has functions, as {proto.functions[0].name[:200]!r}")
    tensors = {tensor.name: _tensor(tensor.name, tensor, path) for tensor in proto.graph.initializer}
    nodes: list[FileNode] = []
    for node in proto.graph.node:
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise UnsupportedError(f"{path}: node {node.name[:200]!r} ({node.op_type[:200]}) has bodies")
        if node.op_type == "Constant" and len(node.output) == 1 and node.attribute and node.attribute[0].HasField("t"):
            tensors[node.output[0]] = _tensor(node.output[0], node.attribute[0].t, path)
            continue
        nodes.append(FileNode(node.op_type, node.name, tuple(node.input), tuple(node.output), _attributes(node)))
    inputs = tuple(value.name for value in proto.graph.input if value.name not in tensors)
    files = (path, *(path.parent / name for name in external_files(proto)))
    return Contents(tuple(nodes), tensors, inputs, files)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute if one.type in _PLAIN}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def _tensor(name: str, tensor: onnx.TensorProto, path: Path) -> FileTensor:
    shape, dtype = tuple(tensor.dims), onnx_ir.DataType(tensor.data_type)

    def read() -> NDArray[Any]:
        return stored_tensor(tensor, path).numpy()

    is_float = dtype.is_floating_point()
    return FileTensor(name, shape, is_float, is_float or (dtype.is_integer() and dtype.bitwidth <= 8), read)
