"""Folders of ONNX files as ONNX Runtime GenAI's model builder and Optimum write them, without either: of a folder that
transformers saved, the nodes that read weights, under the names that these tools give them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from opweld.llm.config import Config
from opweld.llm.folder.architectures import read_config
from opweld.llm.folder.safetensors import read_json, read_tensors
from opweld.llm.folder.weights import read_weights

Array = NDArray[Any]
MICROSOFT = "com.microsoft"


@dataclass
class Written:
    """A model under construction, and the weights that it has, by opweld's names: those of the folder, or what is left
    of them in integers of `bits`.

    Attributes:
        changed: given each node before it is added, None leaves it out.
    """

    folder: Path
    bits: int = 0
    block: int = 32
    zeros: str = ""
    changed: Callable[[onnx.NodeProto], onnx.NodeProto | None] = lambda node: node
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    tensors: dict[str, Array] = field(default_factory=dict[str, Array])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])

    def __post_init__(self) -> None:
        self.config: Config = read_config(read_json(self.folder / "config.json"))
        self.described: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        read = read_weights(read_tensors(self.folder), self.config, str(self.folder))
        self.weights = self.weights or {name: np.asarray(weight(), np.float32) for name, weight in read.items()}

    def node(self, operator: str, name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """Adds a node."""
        domain = MICROSOFT if operator in ("MatMulNBits", "GroupQueryAttention") or "Skip" in operator else ""
        made = self.changed(helper.make_node(operator, inputs, outputs, name=name, domain=domain, **attributes))
        if made is not None:
            self.nodes.append(made)

    def stored(self, name: str, array: Array) -> str:
        """Adds a tensor."""
        self.tensors[name] = array
        return name

    def save(self, path: Path, config: dict[str, Any], name: str, external: bool = True) -> Path:
        """Writes model.onnx, with its weights in a file of their own, the tokenizer, and a JSON file of that name."""
        path.mkdir(parents=True)
        stored = [numpy_helper.from_array(array, one) for one, array in self.tensors.items()]
        output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "t", self.config.vocabulary])
        given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "t"])
        graph = helper.make_graph(self.nodes, "main_graph", [given], [output], stored)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        onnx.save(
            model, path / "model.onnx", save_as_external_data=external, location="model.onnx.data", size_threshold=256
        )
        for file in ("tokenizer.json", "tokenizer_config.json"):
            if (self.folder / file).is_file():
                shutil.copy(self.folder / file, path / file)
        (path / name).write_text(json.dumps(config))
        return path


def quantized(array: Array, bits: int, block: int, zeros: str) -> tuple[Array, Array, Array | None, Array]:
    """Packed integers, scales, zero points and the values of a matrix, as MatMulNBits defines them.

    zeros: "" for the middle of the range, "packed" or "floats"."""
    rows, columns = array.shape
    count = -(-columns // block)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :columns] = array
    blocks = padded.reshape(rows, count, block)
    most, middle = 2**bits - 1, 1 << (bits - 1)
    if zeros:
        low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
        scales = ((high - low) / most).astype(np.float32)
        points = np.round(-low / scales).astype(np.float32)
    else:
        scales = (np.abs(blocks).max(-1) / (middle - 0.5)).astype(np.float32)
        points = np.full(scales.shape, middle, np.float32)
    codes = np.clip(np.round(blocks / scales[..., None]) + points[..., None], 0, most).astype(np.uint8)
    values = ((codes - points[..., None]) * scales[..., None]).reshape(rows, -1)[:, :columns]
    stored = None if not zeros else points if zeros == "floats" else packed(points.astype(np.uint8), bits)
    return packed(codes.reshape(rows, -1), bits).reshape(rows, count, -1), scales, stored, values.astype(np.float32)


def packed(codes: Array, bits: int) -> Array:
    """Numbers of so many bits in bytes, the first one lowest; rows are filled to whole bytes."""
    each = 8 // bits
    filled = np.zeros((len(codes), -(-codes.shape[1] // each) * each), np.uint8)
    filled[:, : codes.shape[1]] = codes
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(filled.reshape(len(codes), -1, each) << shifts, axis=-1).astype(np.uint8)


# ------------------------------------------------------------------------------------------------- the model builder


def builders(written: Written, path: Path, fused_norms: bool = False) -> Path:
    """What `python -m onnxruntime_genai.models.builder` writes: with `bits`, integers in all matrices but the
    embedding, or in it too where it is tied."""
    config, weights = written.config, written.weights
    size = config.head_size
    rope = config.ropes[0]
    assert rope is not None
    angles = np.arange(config.context)[:, None] * rope.frequencies
    for name, function in (("cos_cache", np.cos), ("sin_cache", np.sin)):
        written.stored(name, (function(angles) * rope.scale).astype(np.float32))
    _embedding(written)
    hidden = "/model/embed_tokens/Gather/output_0"
    for n in range(config.layers):
        layer, name = f"layers.{n}.", f"/model/layers.{n}/"
        _norm(written, name + "input_layernorm", layer + "attention_norm", hidden, skip=n > 0)
        parts = [weights[f"{layer}{part}"] for part in ("query", "key", "value")]
        rows = np.cumsum([len(part) for part in parts])[:-1]
        whole = _linear(written, name + "attn/qkv_proj", np.concatenate(parts))
        weights |= dict(
            zip((f"{layer}{part}" for part in ("query", "key", "value")), np.split(whole, rows), strict=True)
        )
        if f"{layer}query.bias" in weights:
            bias = np.concatenate([weights[f"{layer}{part}.bias"] for part in ("query", "key", "value")])
            stored = written.stored(f"model.layers.{n}.attn.qkv_proj.Add.bias", bias)
            written.node("Add", name + "attn/qkv_proj/Add", ["x", stored], ["x"])
        more = [""] * 7
        if f"{layer}query_norm" in weights:
            for at, (norm, part) in enumerate((("q_norm", "query_norm"), ("k_norm", "key_norm"))):
                stored = f"model.layers.{n}.attn.{norm}.layernorm.weight"
                written.stored(stored, weights[layer + part] + np.float32(config.norm_offset))
                if fused_norms:
                    more[5 + at] = stored
                else:
                    place = name + f"attn/{norm}/SimplifiedLayerNormalization"
                    written.node("SimplifiedLayerNormalization", place, ["x", stored], ["x"], epsilon=config.epsilon)
        attributes: dict[str, Any] = {"qk_norm_epsilon": config.epsilon} if more[5] else {}
        written.node(
            "GroupQueryAttention",
            name + "attn/GroupQueryAttention",
            ["x", "", "", "past_key", "past_value", "lengths", "length", "cos_cache", "sin_cache", *more],
            ["x", f"present.{n}.key", f"present.{n}.value"],
            num_heads=config.heads,
            kv_num_heads=config.kv_heads,
            scale=config.scale,
            local_window_size=config.windows[n] or -1,
            softcap=config.score_cap or 0.0,
            do_rotary=1,
            rotary_interleaved=0,
            **attributes,
        )
        weights[layer + "output"] = _linear(written, name + "attn/o_proj", weights[layer + "output"])
        if config.norm_offset:
            _norm(written, name + "post_attention_layernorm", layer + "post_attention_norm", "x")
            _norm(written, name + "pre_feedforward_layernorm", layer + "feed_norm", "x", skip=True)
        else:
            _norm(written, name + "post_attention_layernorm", layer + "feed_norm", "x", skip=True)
        for part in ("gate", "up", "down"):
            weights[layer + part] = _linear(written, f"{name}mlp/{part}_proj", weights[layer + part])
        if config.activation == "gelu_tanh":
            written.node("Gelu", name + "mlp/act_fn/FastGelu", ["x"], ["y"], approximate="tanh")
        else:
            written.node("Sigmoid", name + "mlp/act_fn/Sigmoid", ["x"], ["y"])
            written.node("Mul", name + "mlp/act_fn/Mul", ["x", "y"], ["y"])
        written.node("Mul", name + "mlp/Mul", ["x", "y"], ["x"])
        if config.norm_offset:
            _norm(written, name + "post_feedforward_layernorm", layer + "post_feed_norm", "x")
    _norm(written, f"/model/layers.{config.layers}/final_norm_layernorm", "norm", "x", skip=True)
    head = "embedding" if config.tied else "head"
    weights[head] = _linear(written, "/lm_head", weights[head])
    if config.logit_cap is not None:
        cap = written.stored("/model/constants/FLOAT/cap", np.array(config.logit_cap, np.float32))
        written.node("Div", "/lm_head/softcap/Div", ["x", cap], ["x"])
        written.node("Tanh", "/lm_head/softcap/Tanh", ["x"], ["x"])
        written.node("Mul", "/lm_head/softcap/Mul", ["x", cap], ["logits"])
    sizes = {"head_size": size, "hidden_size": config.hidden, "num_hidden_layers": config.layers}
    model = {"type": config.architecture, "context_length": config.context, "vocab_size": config.vocabulary}
    model |= {"decoder": sizes | {"filename": "model.onnx"}, "eos_token_id": [1, 2]}
    return written.save(path, {"model": model, "search": {"do_sample": False}}, "genai_config.json")


def _embedding(written: Written) -> None:
    if not written.config.tied:
        stored = written.stored("model.embed_tokens.weight", written.weights["embedding"])
        written.node("Gather", "/model/embed_tokens/Gather", [stored, "input_ids"], ["x"])
    elif written.bits:
        written.node("Reshape", "/model/embed_tokens/Reshape", ["lm_head.MatMul.weight_Q4", "shape"], ["w"])
        inputs = ["w", "input_ids", "lm_head.MatMul.weight_scales"]
        written.node("GatherBlockQuantized", "/model/embed_tokens/GatherBlockQuantized", inputs, ["x"])
    else:
        written.node("Transpose", "/model/embed_tokens/Transpose", ["lm_head.MatMul.weight"], ["w"], perm=[1, 0])
        written.node("Gather", "/model/embed_tokens/Gather", ["w", "input_ids"], ["x"])
    if written.config.embedding_scale != 1:
        scale = written.stored("/model/constants/FLOAT/scale", np.array(written.config.embedding_scale, np.float32))
        written.node("Mul", "/model/embed_tokens/Mul", ["x", scale], ["x"])


def _norm(written: Written, name: str, weight: str, x: str, skip: bool = False) -> None:
    whole = written.weights[weight] + np.float32(written.config.norm_offset)
    stored = written.stored(name.strip("/").replace("/", ".") + ".weight", whole)
    epsilon = written.config.epsilon
    if skip:
        inputs = [x, "skip", stored]
        written.node("SkipSimplifiedLayerNormalization", name + "/SkipLayerNorm", inputs, ["x"], epsilon=epsilon)
    else:
        written.node("SimplifiedLayerNormalization", name + "/LayerNorm", [x, stored], ["x"], epsilon=epsilon)


def _linear(written: Written, name: str, matrix: Array) -> Array:
    """Adds a product, and returns its matrix as it is stored."""
    stored = name.strip("/").replace("/", ".") + ".MatMul.weight"
    if not written.bits:
        written.node("MatMul", name + "/MatMul", ["x", written.stored(stored, matrix.T.copy())], ["x"])
        return matrix
    integers, scales, zeros, values = quantized(matrix, written.bits, written.block, written.zeros)
    inputs = ["x", written.stored(stored + "_Q4", integers), written.stored(stored + "_scales", scales)]
    if zeros is not None:
        inputs.append(written.stored(stored + "_zp", zeros))
    sizes = {"N": matrix.shape[0], "K": matrix.shape[1], "bits": written.bits, "block_size": written.block}
    written.node("MatMulNBits", name + "/MatMul_Q4", inputs, ["x"], **sizes)
    return values


# ------------------------------------------------------------------------------------------------------------ Optimum


def optimum(written: Written, path: Path) -> Path:
    """What `optimum-cli export onnx --task text-generation-with-past` writes: matrices are turned and have numbers for
    names, but for those of GPT-2; norms are spelled out, and those of Gemma have their 1 added."""
    tensors = {name: np.asarray(tensor.read()) for name, tensor in read_tensors(written.folder).items()}
    if written.config.tied:
        tensors["lm_head.weight"] = written.weights["embedding"]
    for number, (name, array) in enumerate(tensors.items()):
        module, _, kind = name.rpartition(".")
        place = "/" + re.sub(r"\.(?!\d)", "/", module)
        bias = tensors.get(module + ".bias")
        if module.endswith(("embed_tokens", "wte", "wpe")):
            written.node("Gather", place + "/Gather", [written.stored(name, array), "input_ids"], ["x"])
        elif written.config.norm == "layer" and array.ndim == 2 and bias is not None:
            inputs = ["x", written.stored(name, array), written.stored(module + ".bias", bias)]
            written.node("Gemm", place + "/Gemm", inputs, ["x"])
        elif array.ndim == 2:
            stored = written.stored(f"onnx::MatMul_{number}", array.T.copy())
            written.node("MatMul", place + "/MatMul", ["x", stored], ["x"])
        elif kind == "weight":
            stored = written.stored(f"onnx::Mul_{number}", array + np.float32(written.config.norm_offset))
            written.node("Mul", place + "/Mul_1", [stored, "x"], ["x"])
        elif written.config.norm != "layer" or tensors[module + ".weight"].ndim == 1:
            written.node("Add", place + "/Add_1", [written.stored(name, array), "x"], ["x"])
    frequencies = written.stored("frequencies", np.ones(written.config.head_size // 2, np.float32))
    written.node("Cast", "/model/rotary_emb/Cast", [frequencies], ["y"], to=TensorProto.FLOAT)
    return written.save(path, written.described, "config.json", external=False)
