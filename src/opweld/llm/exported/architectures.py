"""The configuration of a decoder whose graph ONNX Runtime GenAI's model builder wrote: what its nodes say.

genai_config.json has the sizes and no more; the graph has what is computed with them: windows, caps and scale of each
GroupQueryAttention, tables of angles, the epsilon of norms, the activation by its operators. A node that is none of
those of a decoder would compute something else, and is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.contents import Contents, FileNode, FileTensor
from opweld.llm.config import Config, Rope
from opweld.llm.exported.tensors import KEY_NORM, QUERY_NORM, named_tensors
from opweld.llm.fields import Fields
from opweld.llm.rope import tabulated

_T = TypeVar("_T")

_KNOWN = re.compile(
    r"/model/(constant_nodes|attn_mask_reformat)/.*"
    r"|/model/embed_tokens/(Gather|GatherBlockQuantized|Transpose|Reshape|Slice|Mul|Cast)"
    r"|/model/layers\.\d+/\w+_layernorm/(Skip)?LayerNorm(/Cast|/\w+/Cast)?"
    r"|/model/layers\.\d+/attn/(GroupQueryAttention|[qkvo]_proj/.*|qkv_proj/.*|[qk]_norm/.*)"
    r"|/model/layers\.\d+/mlp/((gate|up|down)_proj/.*|act_fn/.*|Mul)"
    r"|/lm_head/(MatMul\w*|softcap/.*|Cast)"
)
"""Names of nodes of a decoder."""

_LAYER = re.compile(r"/model/layers\.(\d{1,4})/attn/GroupQueryAttention")
_ACTIVATIONS = {"Mul Sigmoid": "silu", "Relu": "relu", "FastGelu": "gelu_tanh", "Gelu": "gelu"}
"""By the operators that they are made of."""

_ATTENTION = {
    *("num_heads", "kv_num_heads", "scale", "local_window_size", "softcap", "do_rotary", "rotary_interleaved"),
    *("sliding_window_cache", "qk_norm_epsilon"),
}
_COSINES, _SINES, _POSITIONS = 7, 8, 9
"""Inputs of GroupQueryAttention; those behind them change what it computes, but for weights of norms."""


def is_builders(contents: Contents) -> bool:
    """Whether a graph is of the model builder: its attention is GroupQueryAttention."""
    return any(node.operator == "GroupQueryAttention" for node in contents.nodes)


def read_config(contents: Contents, architecture: str, context: int) -> Config:
    """The configuration of a decoder.

    Args:
        contents: of its file. architecture: as its folder names it. context: the most tokens that it was made for.

    Raises:
        UnsupportedError: a node, or something that it asks for, is none of opweld's.
        ModelError: nodes contradict each other, or a part is missing.
    """
    return _Graph(contents).config(architecture, context)


class _Graph:
    """A graph, and what its parts say."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._file = contents, str(contents.files[0])
        self._shapes = {name: tensor.shape for name, tensor in named_tensors(contents).items()}
        self._ropes: dict[tuple[str, str, bool], Rope] = {}
        for node in contents.nodes:
            if not _KNOWN.fullmatch(node.name):
                raise UnsupportedError(f"{self._file}: node {node.name!r} ({node.operator}) is none that opweld knows")

    def config(self, architecture: str, context: int) -> Config:
        attention = self._attention()
        said = [self._attributes(node) for node in attention]
        heads, kv_heads = (self._same([one.integer(key) for one in said], key) for key in ("num_heads", "kv_num_heads"))
        vocabulary, hidden = self._matrix("model.embed_tokens.weight")
        width = self._matrix("model.layers.0.self_attn.o_proj.weight")[1]
        if width % heads:
            raise ModelError(f"{self._file}: {heads} heads do not divide {width} features")
        windows = [one.integer("local_window_size", -1, least=-1) for one in said]
        scale = self._same([one.number("scale", 0.0) for one in said], "scale")
        return Config(
            architecture=architecture,
            vocabulary=vocabulary,
            hidden=hidden,
            layers=len(attention),
            heads=heads,
            kv_heads=kv_heads,
            head_size=width // heads,
            inner=self._matrix("model.layers.0.mlp.up_proj.weight")[0],
            context=context,
            epsilon=self._epsilon(said),
            ropes=tuple(self._rope(node) for node in attention),
            windows=tuple(window if window > 0 else None for window in windows),
            scale=scale or 1 / math.sqrt(width // heads),
            activation=self._activation(),
            embedding_scale=self._constant("/model/embed_tokens/Mul") or 1.0,
            tied=self._is_tied(),
            score_cap=self._same([one.cap("softcap") for one in said], "softcap"),
            logit_cap=self._constant("/lm_head/softcap/Div"),
        )

    def _attention(self) -> list[FileNode]:
        """That of each layer, in their order."""
        found: dict[int, FileNode] = {}
        for node in self._contents.nodes:
            if match := _LAYER.fullmatch(node.name):
                found[int(match[1])] = node
        if not found or sorted(found) != list(range(len(found))):
            raise ModelError(f"{self._file}: there is attention of the layers {sorted(found)}, expected one of each")
        for node in found.values():
            unknown = [name for name, value in node.attributes.items() if name not in _ATTENTION and value]
            more = (*node.inputs[_POSITIONS + 1 : QUERY_NORM], *node.inputs[KEY_NORM + 1 :])
            if unknown or any(more):
                told = ", ".join([*unknown, *filter(None, more)])
                raise UnsupportedError(f"{self._file}: node {node.name!r} has {told}, which opweld does not compute")
        return [found[number] for number in range(len(found))]

    def _rope(self, node: FileNode) -> Rope | None:
        said = self._attributes(node)
        if not said.integer("do_rotary", 0, least=0):
            return None
        cosines, sines = (*node.inputs[_COSINES : _SINES + 1], "", "")[:2]
        key = (cosines, sines, said.integer("rotary_interleaved", 0, least=0) > 0)
        if key not in self._ropes:
            tables = [self._contents.tensors[name] for name in key[:2] if name in self._contents.tensors]
            if len(tables) != 2 or tables[0].shape != tables[1].shape or len(tables[0].shape) != 2:
                raise UnsupportedError(f"{self._file}: node {node.name!r} has no tables of angles, but {key[:2]}")
            found = tabulated(_floats(tables[0]), _floats(tables[1]))
            if found is None:
                raise UnsupportedError(f"{self._file}: {key[:2]} are not angles that grow evenly with the position")
            self._ropes[key] = Rope(*found, interleaved=key[2])
        return self._ropes[key]

    def _epsilon(self, attention: list[Fields]) -> float:
        norms = [node for node in self._contents.nodes if node.operator.endswith("LayerNormalization")]
        if any("Simplified" not in node.operator for node in norms):
            raise UnsupportedError(f"{self._file}: norms with means are not supported in a graph of the model builder")
        found = [self._attributes(node).positive("epsilon", 1e-5) for node in norms]
        found += [one.positive("qk_norm_epsilon") for one in attention if "qk_norm_epsilon" in one]
        return self._same(found, "epsilon")

    def _activation(self) -> str:
        nodes = [node for node in self._contents.nodes if "/mlp/act_fn/" in node.name]
        made = " ".join(sorted({node.operator for node in nodes}))
        approximate = {self._attributes(node).text("approximate", "none") for node in nodes}
        if made not in _ACTIVATIONS or len(approximate) > 1:
            raise UnsupportedError(f"{self._file}: the activation is made by {made or 'no node'}")
        return "gelu_tanh" if approximate == {"tanh"} else _ACTIVATIONS[made]

    def _is_tied(self) -> bool:
        """Whether the graph has no tensor of its own for the embedding."""
        gathers = [node for node in self._contents.nodes if node.name.startswith("/model/embed_tokens/Gather")]
        return all(node.inputs[0] not in self._contents.tensors for node in gathers)

    def _matrix(self, name: str) -> tuple[int, int]:
        shape = self._shapes.get(name, ())
        if len(shape) != 2:
            raise ModelError(f"{self._file}: there is no matrix {name}; the file is incomplete, fetch it again")
        return shape[0], shape[1]

    def _attributes(self, node: FileNode) -> Fields:
        return Fields(node.attributes, f"{self._file}, node {node.name!r}")

    def _same(self, values: Sequence[_T], key: str) -> _T:
        """What all say of something."""
        if len(set(values)) != 1:
            raise UnsupportedError(f"{self._file}: nodes differ in {key}: {sorted(map(str, set(values)))}")
        return values[0]

    def _constant(self, name: str) -> float | None:
        """The number that a node computes with; None where there is no such node."""
        for node in self._contents.nodes:
            if node.name == name:
                stored = [self._contents.tensors[one] for one in node.inputs if one in self._contents.tensors]
                if len(stored) != 1 or math.prod(stored[0].shape) != 1:
                    raise UnsupportedError(f"{self._file}: node {name!r} should have one number")
                return float(_floats(stored[0]).reshape(()))
        return None


def _floats(tensor: FileTensor) -> NDArray[np.float32]:
    return tensor.read().astype(np.float32)
