"""Folders of ONNX Runtime GenAI and of Optimum compute what the folder does that they were made from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from opweld.errors import DamagedModelError, ModelError, OpweldError, UnsupportedError
from opweld.llm.files import open_model
from opweld.llm.llm import LLM
from opweld.llm.requests import Sampling
from opweld.llm.rope import frequencies, tabulated
from opweld.llm.weights import Blocked
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.exports import Written, builders, optimum
from tests.unit.llm.test_folder import saved
from tests.unit.llm.test_tokenizer import folder

TOKENS = np.random.default_rng(5).integers(3, 320, 40).tolist()
OF_BUILDER = ("llama", "qwen2", "qwen3", "phi3", "gemma2")


def made(kind: str, path: Path, **changes: Any) -> Path:
    """A folder of transformers, with a tokenizer."""
    sizes: dict[str, Any] = {"n_positions": 64} if kind == "gpt2" else {"hidden_size": 64, "intermediate_size": 96}
    if kind in ("phi3", "qwen2"):
        sizes |= {"sliding_window": None}
    saved(kind, path, vocab_size=330, **(sizes | changes))
    folder(path)
    return path


def test_a_graph_of_the_model_builder_computes_what_its_folder_does(tmp_path: Path) -> None:
    for kind in OF_BUILDER:
        source = open_model(made(kind, tmp_path / kind))
        for fused in (False, True) if kind == "qwen3" else (False,):
            opened = open_model(builders(Written(tmp_path / kind), tmp_path / f"{kind}-{fused}", fused))
            expected = Decoder(source.config, source.weights).logits(TOKENS)
            found = Decoder(opened.config, opened.weights).logits(TOKENS)
            # Angles are float32, and so are scales and caps.
            np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max(), rtol=0, err_msg=kind)
            assert (opened.config.tied, opened.config.windows) == (source.config.tied, source.config.windows)


def test_a_folder_of_the_model_builder_has_its_own_settings(tmp_path: Path) -> None:
    path = builders(Written(made("llama", tmp_path / "a")), tmp_path / "b")
    opened = open_model(path)
    assert {1, 2} <= opened.tokenizer.ends
    assert opened.generation == Sampling(temperature=0.0)
    assert (opened.name, opened.config.architecture, opened.config.context) == ("b", "llama", 64)
    assert {file.name for file in opened.files} == {"model.onnx", "model.onnx.data"}


@pytest.mark.parametrize(
    ("kind", "bits", "block", "zeros"),
    [("llama", 4, 32, ""), ("gemma2", 4, 32, "packed"), ("qwen2", 4, 64, "floats"), ("llama", 8, 32, ""),
     ("llama", 8, 32, "packed"), ("llama", 2, 16, ""), ("llama", 4, 128, "packed")],
)  # fmt: skip
def test_integers_in_blocks_stay_what_they_are(tmp_path: Path, kind: str, bits: int, block: int, zeros: str) -> None:
    written = Written(made(kind, tmp_path / "a"), bits, block, zeros)
    weights = open_model(builders(written, tmp_path / "b")).weights
    integers = 0
    for name, expected in written.weights.items():
        weight = weights[name]()
        if isinstance(weight, Blocked):
            integers += 1
            assert weight.bits == max(bits, 4)
            # (code - zero) * scale, rounded once more.
            np.testing.assert_allclose(weight.values(), expected, rtol=0, atol=2e-7 * np.abs(expected).max() * 2**bits)
        else:
            np.testing.assert_array_equal(
                weight, expected + np.float32(written.config.norm_offset) * (weight.ndim == 1)
            )
    assert integers == 15, "seven of each layer and the head, which may be the embedding, too"


@pytest.mark.slow
def test_greedy_answers_are_those_of_the_same_weights(tmp_path: Path) -> None:
    """Of integers, those of a folder that has their values."""
    written = Written(made("llama", tmp_path / "a", num_hidden_layers=1), bits=4, zeros="packed")
    exported = builders(written, tmp_path / "b")
    values = builders(Written(tmp_path / "a", weights=written.weights), tmp_path / "c")
    answers = [
        LLM(path, threads=1, memory=1 << 26).generate([TOKENS], Sampling(temperature=0, limit=20, to_the_limit=True))
        for path in (exported, values)
    ]
    assert len(answers[0][0].tokens) == 20
    assert answers[0][0].tokens == answers[1][0].tokens


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "gpt2"])
def test_a_graph_of_optimum_computes_what_its_folder_does(tmp_path: Path, kind: str) -> None:
    source = open_model(made(kind, tmp_path / "a"))
    opened = open_model(optimum(Written(tmp_path / "a"), tmp_path / "b"))
    expected = Decoder(source.config, source.weights).logits(TOKENS)
    found = Decoder(opened.config, opened.weights).logits(TOKENS)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max(), rtol=0)


def renamed(old: str, new: str) -> Any:
    def change(node: onnx.NodeProto) -> onnx.NodeProto:
        if node.name == old:
            node.name = new
        return node

    return change


def attribute(name: str, value: Any) -> Any:
    def change(node: onnx.NodeProto) -> onnx.NodeProto:
        if node.op_type == "GroupQueryAttention":
            kept = [one for one in node.attribute if one.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])
        return node

    return change


def operator(name: str, new: str) -> Any:
    def change(node: onnx.NodeProto) -> onnx.NodeProto:
        if node.name == name:
            node.op_type = new
        return node

    return change


ATTENTION = "/model/layers.1/attn/GroupQueryAttention"


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        (renamed("/model/layers.1/mlp/Mul", "/model/layers.1/moe/QMoE"), UnsupportedError, "layers.1/moe/QMoE"),
        (renamed(ATTENTION, "/model/layers.3/attn/GroupQueryAttention"), ModelError, r"layers \[0, 3\]"),
        (operator(ATTENTION, "MultiHeadAttention"), UnsupportedError, r"\(MultiHeadAttention\)"),
        (operator("/model/layers.0/attn/o_proj/MatMul", "MatMulFp8"), UnsupportedError, r"MatMul' \(MatMulFp8\)"),
        (operator("/model/layers.0/mlp/act_fn/Sigmoid", "Tanh"), UnsupportedError, "activation is made by Mul"),
        (attribute("smooth_softmax", 1), UnsupportedError, "has smooth_softmax"),
        (attribute("num_heads", [4]), ModelError, "num_heads should be an integer"),
        (attribute("num_heads", 3), ModelError, "3 heads do not divide 64"),
        (attribute("scale", "much"), ModelError, "scale should be a finite number"),
        (lambda node: None if "layers.1/mlp/up" in node.name else node, ModelError, r"no tensor for layers\.1\.up"),
        (lambda node: None if node.op_type == "GroupQueryAttention" else node, ModelError, r"of the layers \[\]"),
    ],
)  # fmt: skip
def test_what_a_graph_has_that_is_not_supported_is_named(
    tmp_path: Path, changed: Any, error: type[OpweldError], said: str
) -> None:
    path = builders(Written(made("llama", tmp_path / "a"), changed=changed), tmp_path / "b")
    with pytest.raises(error, match=said):
        open_model(path)


def test_quantized_graphs_of_optimum_are_refused_by_their_nodes(tmp_path: Path) -> None:
    changed = operator("/model/layers.1/mlp/up_proj/MatMul", "MatMulInteger")
    path = optimum(Written(made("llama", tmp_path / "a"), changed=changed), tmp_path / "b")
    with pytest.raises(UnsupportedError, match=r"up_proj/MatMul' \(MatMulInteger\)"):
        open_model(path)


def test_files_that_lie_are_told(tmp_path: Path) -> None:
    path = builders(Written(made("llama", tmp_path / "a")), tmp_path / "b")
    whole = json.loads((path / "genai_config.json").read_text())
    data = (path / "model.onnx.data").read_bytes()
    (path / "model.onnx.data").write_bytes(data[:-8])
    with pytest.raises(ModelError, match="truncated"):
        open_model(path)
    (path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(DamagedModelError, match="not an ONNX model"):
        open_model(path)
    for name in ("../a/model.onnx", "", ".."):
        (path / "genai_config.json").write_text(json.dumps({"model": whole["model"] | {"decoder": {"filename": name}}}))
        with pytest.raises(ModelError, match="files beside it are read, no others"):
            open_model(path)


def test_names_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = builders(Written(made("llama", tmp_path / "a")), tmp_path / "b")
    whole = (path / "model.onnx").read_bytes()
    for name in (b"/model/layers.0/mlp/Mul", b"model.embed_tokens.weight", b"GroupQueryAttention", b"epsilon"):
        (path / "model.onnx").write_bytes(whole.replace(name, b"\xff" * len(name)))
        with pytest.raises(ModelError, match="UTF-8"):
            open_model(path)


def test_damaged_graphs_raise_no_other_errors(tmp_path: Path) -> None:
    path = builders(Written(made("llama", tmp_path / "a"), bits=4, zeros="packed"), tmp_path / "b")
    whole, choose = (path / "model.onnx").read_bytes(), random.Random(3)
    opened = 0
    for _ in range(60):
        damaged, at = bytearray(whole), choose.randrange(len(whole))
        damaged[at : at + 1] = bytes([choose.randrange(256)])
        (path / "model.onnx").write_bytes(damaged)
        try:
            for read in open_model(path).weights.values():
                read()
            opened += 1
        except OpweldError:
            continue
    assert 0 < opened < 60, "some bytes matter, some do not"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_frequencies_are_found_in_tables_of_angles(dtype: Any) -> None:
    expected = frequencies(10000.0, 64)
    angles = np.arange(4096)[:, None] * expected
    cosines, sines = ((1.25 * of(angles)).astype(dtype) for of in (np.cos, np.sin))
    found = tabulated(cosines, sines)
    assert found is not None
    # The last position that is a power of two, 2048, tells a frequency up to its rounding: two cosines of 1.25.
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2 * np.finfo(dtype).eps / 2048)
    assert found[1] == pytest.approx(1.25, rel=float(np.finfo(dtype).eps))
    assert tabulated(cosines, sines[::-1]) is None
    assert tabulated(cosines[:1], sines[:1]) is None
    dynamic = angles / (1 + np.arange(4096)[:, None] / 4096)
    assert tabulated(np.cos(dynamic), np.sin(dynamic)) is None
