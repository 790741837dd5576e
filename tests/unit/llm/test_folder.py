"""Folders that transformers saved: the configuration, and each weight, of a tiny model of every architecture."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from opweld.errors import DamagedModelError, MissingModelError, ModelError, UnsupportedError
from opweld.llm.config import Config
from opweld.llm.fields import Fields
from opweld.llm.folder.architectures import FAMILIES, read_config
from opweld.llm.folder.safetensors import read_file, read_json, read_tensors
from opweld.llm.folder.weights import read_weights
from opweld.llm.weights import Weights
from tests.unit.llm.decoder import Decoder

SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MOE = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
MORE: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 40},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": MOE | {"head_dim": 16, "mlp_only_layers": [0]},
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 8},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 8},
    "gpt2": {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
}


def saved(kind: str, folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Any, Path]:
    """A tiny model with random weights, norms and biases too, and the folder it was saved to."""
    sizes = {"vocab_size": 120, "pad_token_id": 0} if kind == "gpt2" else SIZES
    config = transformers.AutoConfig.for_model(kind, **(sizes | MORE.get(kind, {}) | changes))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=1.0 if parameter.dim() == 1 else 0.2)
    model.save_pretrained(folder)
    return model, folder


def opened(folder: Path, context: int | None = None) -> tuple[Config, Weights]:
    config = read_config(read_json(folder / "config.json"), context)
    return config, read_weights(read_tensors(folder), config, str(folder))


def numbers(weights: Weights, name: str) -> NDArray[Any]:
    found = weights[name]()
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize("kind", FAMILIES)
def test_all_weights_of_a_model_are_there_once(tmp_path: Path, kind: str) -> None:
    """Their numbers, sorted, are those of the model's parameters: nothing is lost, cut wrong or there twice."""
    model, folder = saved(kind, tmp_path)
    config, weights = opened(folder)
    expected = np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])
    found = np.concatenate([numbers(weights, name).ravel() for name in weights])
    np.testing.assert_array_equal(np.sort(found), np.sort(expected))
    assert config.architecture == kind


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    """The whole meaning of a configuration: windows that are shorter than the text, norms, caps, experts, biases.

    transformers has frequencies in float32, so its logits differ by 1e-6 of their size."""
    changes: dict[str, Any] = {} if kind in ("llama", "gpt2") else {"sliding_window": 9}
    if kind.startswith("qwen"):
        changes |= {"use_sliding_window": True, "max_window_layers": 1}
    if kind != "gpt2":
        changes["num_hidden_layers"] = 3
    model, folder = saved(kind, tmp_path, **changes)
    tokens = np.random.default_rng(2).integers(0, 120, 40).tolist()
    with torch.no_grad():
        expected = model.double().eval()(torch.tensor([tokens])).logits[0].numpy()
    found = Decoder(*opened(folder)).logits(tokens)
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", FAMILIES)
def test_sizes_are_those_of_the_model(tmp_path: Path, kind: str) -> None:
    model, folder = saved(kind, tmp_path)
    config, _ = opened(folder)
    known = model.config
    assert (config.vocabulary, config.hidden, config.layers, config.heads) == (120, 32, 2, 4)
    assert config.context == 64
    assert config.tied == known.tie_word_embeddings
    attention = model.transformer.h[1].attn if kind == "gpt2" else model.model.layers[1].self_attn
    assert config.head_size == attention.head_dim
    if kind == "gpt2":
        assert (config.norm, config.gated, config.activation, config.ropes[0]) == ("layer", False, "gelu_tanh", None)
        return
    assert config.scale == pytest.approx(attention.scaling)
    assert config.epsilon == known.rms_norm_eps
    assert config.kv_heads == 2
    assert config.norm_offset == (1.0 if kind.startswith("gemma") else 0.0)
    if kind.startswith("gemma"):
        assert config.embedding_scale == math.sqrt(32)
        assert (config.score_cap, config.logit_cap) == (known.attn_logit_softcapping, known.final_logit_softcapping)
        assert config.activation == "gelu_tanh"
    if config.experts is not None:
        block = model.model.layers[1].mlp
        assert (config.experts.count, config.experts.chosen) == (4, 2)
        normalized = getattr(block, "norm_topk_prob", getattr(block.gate, "norm_topk_prob", kind == "mixtral"))
        assert config.experts.normalized == normalized


@pytest.mark.parametrize("kind", FAMILIES)
def test_ropes_and_windows_are_those_of_each_layer(tmp_path: Path, kind: str) -> None:
    if kind == "gpt2":
        return
    changes: dict[str, Any] = {"num_hidden_layers": 7, "sliding_window": 9}
    if kind.startswith("qwen"):
        changes |= {"use_sliding_window": True, "max_window_layers": 3}
    if kind == "llama":
        del changes["sliding_window"]
    model, folder = saved(kind, tmp_path, **changes)
    config, _ = opened(folder)
    rotary = model.model.rotary_emb
    types = getattr(model.config, "layer_types", None)
    if types is None:  # all layers alike
        types = ["full_attention" if kind == "llama" else "sliding_attention"] * 7
    assert config.windows == tuple(9 if one == "sliding_attention" else None for one in types)
    for n, rope in enumerate(config.ropes):
        if kind == "gemma3_text":
            expected = getattr(rotary, f"{model.config.layer_types[n]}_inv_freq")
        else:
            expected = rotary.inv_freq
        assert rope is not None
        assert not rope.interleaved
        np.testing.assert_allclose(rope.frequencies, expected.numpy(), rtol=1e-5)


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "yarn, all said": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
def test_stretched_ropes_are_those_of_transformers(name: str, old: bool) -> None:
    scaling = {"rope_type": name} | SCALINGS[name]
    known = transformers.LlamaConfig(**SIZES, head_dim=32, rope_parameters=scaling | {"rope_theta": 20000.0})
    expected, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](known, torch.device("cpu"))
    written = json.loads(known.to_json_string())
    if old:
        written["rope_theta"] = written.pop("rope_parameters")["rope_theta"]
        kind = scaling.pop("rope_type")
        written["rope_scaling"] = scaling | {"type": kind}
    rope = read_config(Fields(written, "config.json")).ropes[0]
    assert rope is not None
    np.testing.assert_allclose(rope.frequencies, expected.numpy(), rtol=2e-5)
    assert rope.scale == pytest.approx(scale)


def test_factors_of_longrope_are_chosen_by_the_context() -> None:
    short, long = [1.0 + i / 8 for i in range(4)], [2.0 + i for i in range(4)]
    parameters = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long}
    sizes: dict[str, Any] = SIZES | {"original_max_position_embeddings": 16, "rope_parameters": parameters}
    known = transformers.Phi3Config(**sizes)
    written = Fields(json.loads(known.to_json_string()), "config.json")
    for context, length, most in ((None, 16, 16), (16, 16, 16), (17, 17, 64)):
        expected, scale = ROPE_INIT_FUNCTIONS["longrope"](known, torch.device("cpu"), seq_len=length)
        config = read_config(written, context)
        rope = config.ropes[0]
        assert rope is not None
        np.testing.assert_allclose(rope.frequencies, expected.numpy(), rtol=1e-5)
        assert rope.scale == pytest.approx(scale)
        assert config.context == most


def test_gemma_3_with_pictures_is_read_for_its_text(tmp_path: Path) -> None:
    """Its config.json says little more than what differs from the defaults, and the rest in the old words."""
    text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7, "vocab_size": 120, "head_dim": 8}
    text |= {"sliding_window": 9, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    written = {"text_config": text, "vision_config": vision, "mm_tokens_per_image": 4, "image_token_index": 119}
    known = transformers.Gemma3Config(**json.loads(json.dumps(written)))
    torch.manual_seed(1)
    model = transformers.Gemma3ForConditionalGeneration(known).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(written | {"model_type": "gemma3"}))
    config, weights = opened(tmp_path)
    assert (config.heads, config.kv_heads, config.context, config.tied) == (8, 4, 131072, True)
    tokens = np.random.default_rng(2).integers(0, 110, 40).tolist()
    with torch.no_grad():
        expected = model.double()(torch.tensor([tokens])).logits[0].numpy()
    np.testing.assert_allclose(Decoder(config, weights).logits(tokens), expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", FAMILIES)
def test_keys_that_are_missing_have_the_defaults_of_transformers(kind: str) -> None:
    """Of those that are read here, all but sizes."""
    known = json.loads(transformers.AutoConfig.for_model(kind).to_json_string(use_diff=False))
    for key, value in FAMILIES[kind].defaults.items():
        if key == "rope_theta":
            parameters = known["rope_parameters"]
            assert parameters.get("full_attention", parameters)["rope_theta"] == value
        elif key == "hidden_act" and kind.startswith("gemma"):
            continue
        elif key == "sliding_window" and kind.startswith("qwen"):
            assert not known["sliding_window"], "transformers forgets it where use_sliding_window is false"
        elif key in known:
            assert known[key] == value, key


def test_half_floats_stay_what_they_are(tmp_path: Path) -> None:
    model, folder = saved("llama", tmp_path, torch.bfloat16)
    _, weights = opened(folder)
    found = numbers(weights, "layers.0.down")
    assert found.dtype.name == "bfloat16"
    np.testing.assert_array_equal(found.astype(np.float32), model.model.layers[0].mlp.down_proj.weight.float().detach())


def test_several_files_by_their_index(tmp_path: Path) -> None:
    model, whole = saved("llama", tmp_path / "one")
    model.save_pretrained(tmp_path / "several", max_shard_size="30KB")
    assert len(list((tmp_path / "several").glob("*.safetensors"))) > 1
    expected, found = opened(whole)[1], opened(tmp_path / "several")[1]
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(numbers(found, name), numbers(expected, name))


def test_an_index_leads_nowhere_else(tmp_path: Path) -> None:
    _, outside = saved("llama", tmp_path / "outside")
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("../outside/model.safetensors", str(outside / "model.safetensors"), "..", ""):
        index = {"weight_map": {"model.norm.weight": name}}
        (inside / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(ModelError, match="files beside it are read, no others"):
            read_tensors(inside)
    (inside / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "b.safetensors"}}))
    with pytest.raises(MissingModelError, match=r"b\.safetensors"):
        read_tensors(inside)


def test_headers_that_lie_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"

    def refused(error: type[Exception], header: object, data: bytes = bytes(16)) -> None:
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        with pytest.raises(error, match=r"model\.safetensors"):
            read_file(path)

    good = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    refused(DamagedModelError, {"a": good}, bytes(15))
    refused(ModelError, {"a": good | {"shape": [2, 3]}})
    refused(ModelError, {"a": good | {"shape": [-2, -2]}})
    refused(ModelError, {"a": good | {"shape": [1 << 40, 1 << 40], "data_offsets": [0, 1 << 82]}})
    refused(ModelError, {"a": good | {"data_offsets": [16, 0]}})
    refused(ModelError, {"a": good | {"data_offsets": [0]}})
    refused(ModelError, {"a": []})
    refused(DamagedModelError, [])
    for content in (b"", b"12345678", (1 << 60).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[["):
        path.write_bytes(content)
        with pytest.raises(DamagedModelError):
            read_file(path)


def test_tensors_that_are_not_as_the_configuration_says(tmp_path: Path) -> None:
    _, folder = saved("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())

    def refused(error: type[Exception], match: str, **changes: object) -> None:
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(error, match=match):
            opened(folder)

    refused(ModelError, r"no tensor for layers\.2\.", num_hidden_layers=3)
    refused(UnsupportedError, r"model\.layers\.1\.", num_hidden_layers=1)
    refused(ModelError, r"mlp\.down_proj\.weight .*\[32, 48\].*\[32, 40\]", intermediate_size=40)
    refused(ModelError, "head_dim is 0, which is not in 1", head_dim=None, num_attention_heads=64)
    refused(ModelError, "head_dim is 2147483648, which is not in 1", head_dim=1 << 31)
    refused(ModelError, "4 heads of queries cannot share 3 heads", num_key_value_heads=3)
    refused(ModelError, "num_hidden_layers is 1000000", num_hidden_layers=1000000)
    refused(ModelError, "num_hidden_layers should be an integer, not '2'", num_hidden_layers="2")
    refused(
        UnsupportedError,
        "'deepseek_v3', with its latent attention, .* opweld reads llama",
        model_type="deepseek_v3",
        kv_lora_rank=8,
    )
    refused(UnsupportedError, "quantization_config", quantization_config={"quant_method": "gptq"})
    refused(UnsupportedError, "hidden_act is mish", hidden_act="mish")
    refused(UnsupportedError, "rope_type is spiral", rope_parameters={"rope_type": "spiral", "rope_theta": 1e4})
