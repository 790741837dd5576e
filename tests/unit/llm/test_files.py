"""Opening a model, whatever form its files have; and what is said of a file or folder that is none."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from benchmarks.zoo import fetch
from opweld.errors import DamagedModelError, MissingModelError, ModelError, OpweldError, UnsupportedError
from opweld.llm import packages
from opweld.llm.files import Opened, open_model
from opweld.llm.gguf.header import read_header
from opweld.llm.requests import Sampling
from opweld.llm.weights import Blocked
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.ggufs import HEADS, KV_HEADS, SIZE, Made, made
from tests.unit.llm.test_folder import saved
from tests.unit.llm.test_tokenizer import folder


def test_a_file_or_a_folder_with_one(tmp_path: Path) -> None:
    path = made("llama").write(tmp_path / "tiny.gguf")
    for given in (path, str(path), tmp_path):
        opened = open_model(given)
        assert opened.name == "tiny"
        assert opened.config.architecture == "llama"
        assert opened.tokenizer.vocabulary == 258
        assert opened.generation == Sampling()
        assert opened.files == (path,)


def whole_folder(path: Path, **generation: Any) -> Path:
    saved("llama", path, vocab_size=330, eos_token_id=5)
    folder(path)
    (path / "generation_config.json").write_text(json.dumps(generation))
    return path


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    opened = open_model(whole_folder(tmp_path / "tiny", eos_token_id=7))
    assert opened.name == "tiny"
    assert (opened.config.vocabulary, opened.config.architecture) == (330, "llama")
    assert opened.files == (tmp_path / "tiny" / "model.safetensors",)
    assert {5, 7} <= opened.tokenizer.ends
    assert opened.generation == Sampling(temperature=0.0), "transformers takes the likeliest where nothing is said"


def test_how_tokens_are_chosen_is_what_the_folder_says(tmp_path: Path) -> None:
    said = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}
    path = whole_folder(tmp_path, **said)
    expected = Sampling(temperature=0.6, top_p=0.9, top_k=50, repetition_penalty=1.1)
    assert open_model(path).generation == expected
    (path / "generation_config.json").unlink()
    assert open_model(path).generation == Sampling()


def test_a_folder_and_a_file_of_one_model_compute_the_same(tmp_path: Path) -> None:
    """llama.cpp's converter permutes rows of queries and keys, so that pairs which are turned are neighbours."""
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
    }
    _, path = saved(
        "llama", tmp_path / "a", vocab_size=330, head_dim=SIZE, rope_theta=5000.0, rms_norm_eps=1e-5, **sizes
    )
    folder(path)
    one = open_model(path)
    names = {"embedding": "token_embd", "norm": "output_norm", "head": "output"}
    parts = {
        "attention_norm": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "output": "attn_output",
    }
    parts |= {"feed_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    model = Made("llama", made("llama").metadata)
    for name, read in one.weights.items():
        weight = read()
        assert isinstance(weight, np.ndarray)
        layer, _, part = name.rpartition(".")
        if part in ("query", "key"):
            heads = weight.shape[0] // SIZE
            weight = weight.reshape(heads, 2, SIZE // 2, -1).swapaxes(1, 2).reshape(weight.shape)
        model.tensors[
            f"{layer.replace('layers', 'blk')}.{parts[part]}.weight" if layer else f"{names[name]}.weight"
        ] = weight
    other = open_model(model.write(tmp_path / "a.gguf"))
    assert other.config.ropes[0] is not None and other.config.ropes[0].interleaved
    tokens = list(range(5, 45))
    expected = Decoder(one.config, one.weights).logits(tokens)
    np.testing.assert_allclose(Decoder(other.config, other.weights).logits(tokens), expected, rtol=1e-6, atol=1e-6)


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingModelError, match=r"there is no .*nowhere"):
        open_model(tmp_path / "nowhere")
    with pytest.raises(MissingModelError, match=r"neither config\.json, genai_config\.json nor a \.gguf"):
        open_model(tmp_path)
    made("llama").write(tmp_path / "a.gguf")
    made("llama").write(tmp_path / "b.gguf")
    with pytest.raises(ModelError, match=r"2 \.gguf files: a\.gguf, b\.gguf"):
        open_model(tmp_path)
    (tmp_path / "text.txt").write_text("some text that is longer than a header")
    with pytest.raises(DamagedModelError, match=r"text\.txt is no GGUF file"):
        open_model(tmp_path / "text.txt")


def test_what_a_folder_lacks_is_told(tmp_path: Path) -> None:
    path = whole_folder(tmp_path)

    def refused(error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            open_model(path)

    config = (path / "config.json").read_text()
    (path / "config.json").write_text(json.dumps(json.loads(config) | {"vocab_size": "many"}))
    refused(ModelError, r"config\.json: vocab_size should be an integer, not 'many'")
    for text in ("", "{", "[]", "[" * 100000, "\xff"):
        (path / "config.json").write_text(text, "latin-1")
        refused(DamagedModelError, r"config\.json")
    (path / "config.json").write_text(config)
    (path / "tokenizer.json").rename(path / "hidden")
    refused(MissingModelError, r"no tokenizer\.json")
    (path / "hidden").rename(path / "tokenizer.json")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    refused(MissingModelError, r"no model\.safetensors.*save_pretrained")


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "phi3", "qwen2moe", "gpt2"])
def test_damaged_headers_raise_no_other_errors(tmp_path: Path, architecture: str) -> None:
    path = made(architecture).write(tmp_path / "a.gguf")
    whole, choose = path.read_bytes(), random.Random(architecture)
    start = min(tensor.start for tensor in read_header(path).tensors.values())
    opened = 0
    for _ in range(150):
        damaged, at = bytearray(whole), choose.randrange(start)
        put = choose.choice([bytes([choose.randrange(256)]), b"\xff" * 8, b"\0" * 8, b"\0\0\0\0\0\0\0\x10"])
        damaged[at : at + len(put)] = put
        path.write_bytes(damaged)
        try:
            found = open_model(path)
            for read in found.weights.values():
                read()
            found.tokenizer.decode(found.tokenizer.encode("the tea"))
            opened += 1
        except OpweldError:
            continue
    assert 0 < opened < 150, "some bytes matter, some do not"


def test_a_tokenizer_of_another_model_is_told(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    folder(tmp_path)
    with pytest.raises(ModelError, match="the embedding 120 rows; the files are not of one model"):
        open_model(tmp_path)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = made("llama").write(tmp_path / "a.gguf")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match=r"need tokenizers: pip install 'opweld\[llm\]'"):
        open_model(path)
    assert packages.package("json") is json


def test_importing_brings_in_no_package_of_language_models() -> None:
    code = (
        "import sys, opweld.llm.files; "
        "print([name for name in ('gguf', 'tokenizers', 'jinja2', 'safetensors', 'torch') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.models
def test_smollm2_from_its_wheel() -> None:
    opened = open_model(fetch.path("smollm2"))
    config, tokenizer = opened.config, opened.tokenizer
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.context) == (30, 576, 9, 3, 8192)
    assert len(opened.weights) == 272
    query = opened.weights["layers.29.query"]()
    assert isinstance(query, Blocked)
    assert (query.shape, query.bits, query.block) == ((576, 576), 4, 32)
    prompt = tokenizer.chat([{"role": "user", "content": "What is the capital of France?"}])
    assert tokenizer.decode(prompt, special=True).endswith("capital of France?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.ends == {tokenizer.id_of("<|im_end|>"), tokenizer.id_of("<|endoftext|>")}
    tokens = tokenizer.encode("The capital of France is")
    logits = Decoder(config, opened.weights).logits(tokens)
    assert tokenizer.decode([int(logits[-1].argmax())]) == " Paris"


def llama_of_transformers(opened: Opened) -> Any:
    """A Llama of a GGUF file in transformers, whose pairs of rotary embeddings are half a head apart."""
    config, state = opened.config, dict[str, torch.Tensor]()
    attention, mlp = "self_attn.", "mlp."
    parts = {"attention_norm": "input_layernorm", "feed_norm": "post_attention_layernorm"}
    parts |= {"query": attention + "q_proj", "key": attention + "k_proj", "value": attention + "v_proj"}
    parts |= {
        "output": attention + "o_proj",
        "gate": mlp + "gate_proj",
        "up": mlp + "up_proj",
        "down": mlp + "down_proj",
    }
    for name, read in opened.weights.items():
        weight = read()
        values = weight.values() if isinstance(weight, Blocked) else weight
        layer, _, part = name.rpartition(".")
        if part in ("query", "key"):
            halves = values.reshape(-1, config.head_size // 2, 2, config.hidden)
            values = halves.swapaxes(1, 2).reshape(values.shape)
        whole = {"embedding": "model.embed_tokens", "norm": "model.norm"}
        target = f"model.{layer}.{parts[part]}" if layer else whole[name]
        state[target + ".weight"] = torch.tensor(values)
    known = transformers.LlamaConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        intermediate_size=config.inner,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        rms_norm_eps=config.epsilon,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )
    model = transformers.LlamaForCausalLM(known)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return model.eval()


@pytest.mark.models
@pytest.mark.slow
def test_smollm2_computes_what_transformers_does() -> None:
    opened = open_model(fetch.path("smollm2"))
    tokens = opened.tokenizer.encode("Once upon a time, in a village by the sea, there lived a baker. Every morning")
    with torch.no_grad():
        expected = llama_of_transformers(opened)(torch.tensor([tokens])).logits[0].numpy()
    found = Decoder(opened.config, opened.weights).logits(tokens)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
