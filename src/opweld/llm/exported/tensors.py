"""Stored tensors of an exported graph under the names that transformers gives them.

Exporters name nodes for the modules that they are of, as /model/layers.0/self_attn/q_proj/MatMul, while a weight that
was transposed is onnx::MatMul_733: a tensor is known by the node that reads it. Weights of norms are the whole factor,
of Gemma too, whose 1 is added before they are stored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.contents import Contents, FileNode, FileTensor
from opweld.llm.exported.blocks import BITS, blocked
from opweld.llm.fields import Fields
from opweld.llm.folder import safetensors
from opweld.llm.weights import Blocked, Weight

_ANGLES = ("GroupQueryAttention", "RotaryEmbedding")
_BUILDERS = (
    (re.compile(r"(model\.layers\.\d+)\.attn\b"), r"\1.self_attn"),
    (re.compile(r"model\.layers\.\d+\.final_norm_layernorm"), "model.norm"),
)
"""Modules that the model builder names in its own way."""

QUERY_NORM, KEY_NORM = 14, 15
"""Inputs of GroupQueryAttention."""
_NORMS: Mapping[str, int] = {
    "SimplifiedLayerNormalization": 1,
    "SkipSimplifiedLayerNormalization": 2,
    "RMSNormalization": 1,
    "LayerNormalization": 1,
    "SkipLayerNormalization": 2,
}
"""Which input is the weight of a norm; behind it comes its bias."""


@dataclass(frozen=True)
class _Found:
    """A tensor of a node's module. end: of its name. names: of the tensors that it is read from."""

    end: str
    shape: tuple[int, ...]
    read: Callable[[], Weight]
    names: tuple[str, ...]


def named_tensors(contents: Contents) -> dict[str, safetensors.FileTensor]:
    """The weights of a graph by the names of transformers, matrices of linear layers as [out, in].

    Raises UnsupportedError for a tensor that is no weight of a module, and ModelError where integers in blocks are not
    of the sizes that their node says."""
    file, used = contents.files[0], set[str]()
    found: dict[str, safetensors.FileTensor] = {}
    for node in contents.nodes:
        for one in _weights_of(node, contents):
            name = f"{module_of(node)}.{one.end}"
            if name in found:
                raise UnsupportedError(f"{file}: node {node.name!r} reads a second {name}")
            found[name] = safetensors.FileTensor(file, name, one.shape, one.read)
            used.update(one.names)
    embedding, head = "model.embed_tokens.weight", found.get("lm_head.weight")
    if embedding not in found and head is not None:  # a tied one, which is stored once
        found[embedding] = safetensors.FileTensor(file, embedding, head.shape, head.read)
    _refuse_others(contents, used)
    return found


def module_of(node: FileNode) -> str:
    """The module that a node is of: model.layers.0.self_attn.q_proj."""
    found = ".".join(node.name.strip("/").split("/")[:-1])
    for pattern, name in _BUILDERS:
        found = pattern.sub(name, found)
    return found


def _weights_of(node: FileNode, contents: Contents) -> Iterator[_Found]:
    stored = [contents.tensors.get(name) for name in node.inputs]
    match node.operator, stored:
        case "MatMul", [_, FileTensor(shape=(_, _)) as matrix]:
            yield _transposed(matrix)
        case "Gemm", [_, FileTensor() as matrix, *rest]:
            yield _plain("weight", matrix)
            yield from (_plain("bias", one) for one in rest if one is not None)
        case "MatMulNBits", [_, FileTensor() as packed, FileTensor() as scales, *rest]:
            zeros, groups, bias = (*rest, None, None, None)[:3]
            if groups is not None:
                raise UnsupportedError(f"{contents.files[0]}: node {node.name!r} has blocks of its own ({groups.name})")
            yield _of_blocks(node, packed, scales, zeros, str(contents.files[0]))
            if bias is not None:
                yield _plain("bias", bias)
        case "Gather", [FileTensor(shape=(_, _), is_float=True) as matrix, _]:
            yield _plain("weight", matrix)
        case ("Add" | "Mul") as operator, [FileTensor() as vector, None] | [None, FileTensor() as vector]:
            if len(vector.shape) == 1 and vector.shape != (1,):
                yield _plain("bias" if operator == "Add" else "weight", vector)
        case "GroupQueryAttention", _:
            own = stored[QUERY_NORM : KEY_NORM + 1]
            ends = ("q_norm.weight", "k_norm.weight")
            yield from (_plain(end, one) for end, one in zip(ends, own, strict=False) if one is not None)
        case operator, _ if operator in _NORMS:
            own = stored[_NORMS[operator] : _NORMS[operator] + 2]
            yield from (_plain(end, one) for end, one in zip(("weight", "bias"), own, strict=False) if one is not None)
        case _:
            pass


def _plain(end: str, tensor: FileTensor) -> _Found:
    return _Found(end, tensor.shape, tensor.read, (tensor.name,))


def _transposed(tensor: FileTensor) -> _Found:
    return _Found("weight", tensor.shape[::-1], lambda: tensor.read().T, (tensor.name,))


def _of_blocks(node: FileNode, packed: FileTensor, scales: FileTensor, zeros: FileTensor | None, file: str) -> _Found:
    """A matrix of integers in blocks, once the sizes of its tensors are those that the node says."""
    said = Fields(node.attributes, f"{file}, node {node.name!r}")
    rows, columns, block = (said.integer(name) for name in ("N", "K", "block_size"))
    bits = said.integer("bits", 4)
    if bits not in BITS:
        raise UnsupportedError(f"{file}: node {node.name!r} has integers of {bits} bits; opweld reads 2, 4 and 8")
    count = -(-columns // block)
    points = count if zeros is None or zeros.is_float else -(-count * bits // 8)
    expected = ((packed, rows * count * block * bits // 8), (scales, rows * count), (zeros, rows * points))
    if packed.is_float or not scales.is_float:
        raise UnsupportedError(f"{file}: node {node.name!r} has integers or scales of another type")
    for tensor, size in expected:
        if tensor is not None and math.prod(tensor.shape) != size:
            raise ModelError(
                f"{file}: {tensor.name!r} has {math.prod(tensor.shape)} elements; node {node.name!r} says {size}"
            )
    read = partial(_read_blocks, packed, scales, zeros, shape=(rows, columns), bits=bits, block=block)
    return _Found(
        "weight", (rows, columns), read, tuple(one.name for one in (packed, scales, zeros) if one is not None)
    )


def _read_blocks(packed: FileTensor, scales: FileTensor, zeros: FileTensor | None, **sizes: Any) -> Blocked:
    return blocked(packed.read().view(np.uint8), scales.read(), None if zeros is None else zeros.read(), **sizes)


def _refuse_others(contents: Contents, used: set[str]) -> None:
    """Numbers that nothing here has read would be missing in what is computed; tables of angles are computed anew."""
    for node in contents.nodes:
        if node.operator in _ANGLES or module_of(node).endswith("rotary_emb"):
            continue
        for name in node.inputs:
            tensor = contents.tensors.get(name)
            if tensor is None or name in used or math.prod(tensor.shape) <= 1 or not tensor.is_weight:
                continue
            raise UnsupportedError(
                f"{contents.files[0]}: node {node.name!r} ({node.operator}) reads {name!r}, which is no weight that "
                "opweld knows"
            )
