"""GGUF files: each format's blocks against llama.cpp's own package, each architecture's configuration and names."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from opweld.errors import DamagedModelError, MissingModelError, ModelError, UnsupportedError
from opweld.llm import rope as rotary
from opweld.llm.config import Config
from opweld.llm.gguf.architectures import ARCHITECTURES, read_config
from opweld.llm.gguf.blocks import FORMATS, unpacked
from opweld.llm.gguf.header import read_header
from opweld.llm.gguf.weights import read_weights
from opweld.llm.weights import Blocked, Weight, Weights
from tests.unit.llm import ggufs
from tests.unit.llm.ggufs import (
    EXPERT_INNER,
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    SIZE,
    Made,
    head_size,
    made,
)

BLOCKS = [kind for kind, form in FORMATS.items() if form.bits]


def opened(path: Path, context: int | None = None) -> tuple[Config, Weights]:
    header = read_header(path)
    config = read_config(header, context)
    return config, read_weights(header, config)


def values(weight: Weight) -> NDArray[Any]:
    return weight.values() if isinstance(weight, Blocked) else weight


def random_blocks(kind: int, rows: int, columns: int) -> NDArray[np.uint8]:
    """Any codes, with scales that are finite float16 numbers of both signs."""
    random, form = np.random.default_rng(kind), FORMATS[kind]
    raw = random.integers(0, 256, (rows * columns // form.elements, form.bytes), dtype=np.uint8)
    places = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}.get(form.name, (0,))
    for place in places:
        scales = random.standard_normal(len(raw)).astype(np.float16)
        raw[:, place : place + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: FORMATS[kind].name)
def test_blocks_are_worth_what_llama_cpp_says(kind: int) -> None:
    """To the bit: product and sum are rounded in the same order, and d q + (-m) is d q - m."""
    raw = random_blocks(kind, 6, 512)
    found = unpacked(FORMATS[kind], raw.reshape(-1), (6, 512))
    assert isinstance(found, Blocked)
    assert found.shape == (6, 512)
    np.testing.assert_array_equal(found.values(), gguf.quants.dequantize(raw, Kind(kind)))
    low, high = (
        (0, 2**found.bits) if found.codes.dtype == np.uint8 else (-(2 ** (found.bits - 1)), 2 ** (found.bits - 1))
    )
    assert found.codes.min() == low, "random bytes hold the least code"
    assert found.codes.max() == high - 1
    assert found.scales.shape == (6, 512 // found.block)
    assert (found.minimums is None) == (found.codes.dtype == np.int8)


def test_sizes_of_formats_are_those_of_llama_cpp() -> None:
    for kind, form in FORMATS.items():
        assert (form.elements, form.bytes) == gguf.GGML_QUANT_SIZES[Kind(kind)]
        assert form.name == Kind(kind).name


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
def test_floats_stay_as_they_are_in_the_file(tmp_path: Path, kind: Kind) -> None:
    model = made("llama")
    path = model.write(tmp_path / "a.gguf", {"blk.0.ffn_up.weight": kind})
    _, weights = opened(path)
    found = weights["layers.0.up"]()
    assert isinstance(found, np.ndarray)
    expected = {Kind.F32: np.float32, Kind.F16: np.float16, Kind.BF16: ml_dtypes.bfloat16}[kind]
    assert found.dtype == expected
    assert not found.flags.owndata, "it is mapped, not copied"
    np.testing.assert_array_equal(found, model.tensors["blk.0.ffn_up.weight"].astype(expected))


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "mixtral"])
def test_all_weights_have_their_names_and_shapes(tmp_path: Path, architecture: str) -> None:
    model = made(architecture)
    config, weights = opened(model.write(tmp_path / "a.gguf"))
    assert config.architecture == model.architecture
    assert (config.hidden, config.layers, config.heads) == (HIDDEN, LAYERS, HEADS)
    total = sum(values(read()).size for read in weights.values())
    assert total == sum(tensor.size for tensor in model.tensors.values()), "nothing is lost, nothing is there twice"
    size = config.head_size
    for n in range(LAYERS):
        layer = f"layers.{n}."
        assert values(weights[layer + "query"]()).shape == (HEADS * size, HIDDEN)
        assert values(weights[layer + "key"]()).shape == (config.kv_heads * size, HIDDEN)
        feed = layer + "experts.3." if config.experts else layer
        inner = config.experts.inner if config.experts else INNER
        assert values(weights[feed + "up"]()).shape == (inner, HIDDEN)
        assert values(weights[feed + "down"]()).shape == (HIDDEN, inner)
        assert (feed + "gate" in weights) == config.gated


def test_what_is_special_about_an_architecture(tmp_path: Path) -> None:
    configs = {name: opened(made(name).write(tmp_path / f"{name}.gguf"))[0] for name in ARCHITECTURES}
    for name, config in configs.items():
        assert config.norm_offset == 0.0, "Gemma's 1 is in the file's weights already"
        assert config.tied == (name in ("gemma2", "gemma3", "gpt2"))
        rope = config.ropes[0]
        assert (rope is None) == (name == "gpt2")
        assert rope is None or rope.interleaved == (name == "llama")
    assert configs["gemma2"].windows == (16, None)
    assert configs["gemma3"].windows == (16, 16), "the sixth is the first that sees all"
    assert (configs["gemma2"].score_cap, configs["gemma2"].logit_cap) == (50.0, 30.0)
    assert (configs["gemma3"].score_cap, configs["gemma3"].logit_cap) == (None, None)
    assert configs["gemma3"].embedding_scale == math.sqrt(HIDDEN)
    assert configs["gemma3"].activation == configs["gpt2"].activation == "gelu_tanh"
    assert configs["qwen2"].scale == 1 / math.sqrt(HIDDEN / HEADS)
    assert configs["gpt2"].norm == "layer"
    assert not configs["gpt2"].gated
    two, three = configs["qwen2moe"].experts, configs["qwen3moe"].experts
    assert two is not None and three is not None
    assert (two.count, two.chosen, two.inner, two.normalized) == (EXPERTS, 2, EXPERT_INNER, False)
    assert three.normalized


def test_gemma_3_turns_layers_with_a_window_otherwise(tmp_path: Path) -> None:
    model = made("gemma3")
    model.metadata["attention.sliding_window_pattern"] = 2
    model.metadata["rope.freq_base"] = 1e6
    config, _ = opened(model.write(tmp_path / "a.gguf"))
    local, whole = config.ropes
    assert config.windows == (16, None)
    assert local is not None and whole is not None
    np.testing.assert_allclose(local.frequencies, rotary.frequencies(10000.0, SIZE))
    np.testing.assert_allclose(whole.frequencies, rotary.frequencies(1e6, SIZE) / 8)


def test_fused_tensors_are_taken_apart_by_rows(tmp_path: Path) -> None:
    """Of blocks too, whose rows are bytes."""
    model = made("phi3")
    kinds = {"blk.1.attn_qkv.weight": Kind.Q8_0, "blk.1.ffn_up.weight": Kind.Q4_0}
    _, weights = opened(model.write(tmp_path / "a.gguf", kinds))
    whole = {
        name: gguf.quants.dequantize(gguf.quants.quantize(model.tensors[name], kind), kind)
        for name, kind in kinds.items()
    }
    got = [weights["layers.1." + name]() for name in ("query", "key", "value", "gate", "up")]
    assert all(isinstance(one, Blocked) for one in got)
    np.testing.assert_array_equal(np.concatenate([values(one) for one in got[:3]]), whole["blk.1.attn_qkv.weight"])
    np.testing.assert_array_equal(np.concatenate([values(one) for one in got[3:]]), whole["blk.1.ffn_up.weight"])
    assert got[0].shape == (HEADS * head_size("phi3"), HIDDEN)
    assert got[1].shape == (KV_HEADS * head_size("phi3"), HIDDEN)


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1])
def test_codes_of_4_bits_fit_half_a_byte(tmp_path: Path, kind: Kind) -> None:
    name = "blk.1.ffn_down.weight"
    model = made("llama")
    weight = opened(model.write(tmp_path / "a.gguf", {name: kind}))[1]["layers.1.down"]()
    assert isinstance(weight, Blocked)
    assert (weight.bits, weight.codes.dtype, weight.codes.max()) == (4, np.uint8, 15)
    expected = gguf.quants.dequantize(gguf.quants.quantize(model.tensors[name], kind), kind)
    np.testing.assert_array_equal(values(weight), expected)


def test_experts_of_one_tensor_or_of_one_each(tmp_path: Path) -> None:
    model = made("mixtral")
    stacked = opened(model.write(tmp_path / "a.gguf"))[1]
    for n in range(LAYERS):
        for part in ("gate", "up", "down"):
            for e, one in enumerate(model.tensors.pop(f"blk.{n}.ffn_{part}_exps.weight")):
                model.tensors[f"blk.{n}.ffn_{part}.{e}.weight"] = one
    apart = opened(model.write(tmp_path / "b.gguf"))[1]
    assert apart.keys() == stacked.keys()
    for name in apart:
        np.testing.assert_array_equal(values(apart[name]()), values(stacked[name]()))


def test_frequencies_of_llama_3_are_divided(tmp_path: Path) -> None:
    model = made("llama")
    model.tensors["rope_freqs.weight"] = np.linspace(1, 8, SIZE // 2, dtype=np.float32)
    (rope, _) = opened(model.write(tmp_path / "a.gguf"))[0].ropes
    assert rope is not None
    np.testing.assert_allclose(rope.frequencies, rotary.frequencies(5000.0, SIZE) / model.tensors["rope_freqs.weight"])
    model.tensors["rope_freqs.weight"][3] = 0
    with pytest.raises(ModelError, match="rope_freqs"):
        opened(model.write(tmp_path / "b.gguf"))


def test_yarn_of_the_metadata(tmp_path: Path) -> None:
    model = made("qwen2")
    model.metadata |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    model.metadata["rope.scaling.original_context_length"] = 64
    (rope, _) = opened(model.write(tmp_path / "a.gguf"))[0].ropes
    assert rope is not None
    np.testing.assert_allclose(rope.frequencies, rotary.yarn(5000.0, head_size("qwen2"), 4.0, 64))
    assert rope.scale == pytest.approx(0.1 * math.log(4) + 1)


def test_factors_of_longrope_are_chosen_by_the_context(tmp_path: Path) -> None:
    model = made("phi3")
    model.metadata |= {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.25}
    model.tensors["rope_factors_short.weight"] = np.full(head_size("phi3") // 2, 1.5, np.float32)
    model.tensors["rope_factors_long.weight"] = np.full(head_size("phi3") // 2, 4.0, np.float32)
    path = model.write(tmp_path / "a.gguf")
    for context, divisor, most in ((None, 1.5, 32), (32, 1.5, 32), (33, 4.0, 128)):
        config, _ = opened(path, context)
        rope = config.ropes[1]
        assert rope is not None
        assert (rope.scale, config.context) == (1.25, most)
        np.testing.assert_allclose(rope.frequencies, rotary.frequencies(5000.0, head_size("phi3")) / divisor)


def test_damage_is_told(tmp_path: Path) -> None:
    path = made("llama").write(tmp_path / "a.gguf")
    whole = path.read_bytes()
    with pytest.raises(MissingModelError, match=r"no\.gguf"):
        read_header(tmp_path / "no.gguf")
    path.write_bytes(b"GGML" + whole[4:])
    with pytest.raises(DamagedModelError, match="does not begin with GGUF"):
        read_header(path)
    for version, error in ((9, "version 9"), (0x03000000, "big-endian")):
        path.write_bytes(whole[:4] + struct.pack("<I", version) + whole[8:])
        with pytest.raises(UnsupportedError, match=error):
            read_header(path)


def test_a_truncated_file_is_told_wherever_it_ends(tmp_path: Path) -> None:
    path = made("llama").write(tmp_path / "a.gguf")
    whole = path.read_bytes()
    for length in [*range(400), *range(400, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedModelError, match=r"truncated|does not begin"):
            read_header(path)


@pytest.mark.parametrize("lie", [1 << 20, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_lengths_that_lie_allocate_nothing(tmp_path: Path, lie: int) -> None:
    head = b"GGUF" + struct.pack("<I", 3)
    key = struct.pack("<Q", 1) + b"k"
    lies = {
        "tensors": head + struct.pack("<QQ", lie, 0),
        "entries": head + struct.pack("<QQ", 0, lie),
        "key": head + struct.pack("<QQQ", 0, 1, lie),
        "string": head + struct.pack("<QQ", 0, 1) + key + struct.pack("<IQ", 8, lie),
        "strings": head + struct.pack("<QQ", 0, 1) + key + struct.pack("<IIQ", 9, 8, lie),
        "bytes": head + struct.pack("<QQ", 0, 1) + key + struct.pack("<IIQ", 9, 0, lie),
        "shape": head + struct.pack("<QQ", 1, 0) + key + struct.pack("<IQIQ", 1, lie, 0, 0),
        "offset": head + struct.pack("<QQ", 1, 0) + key + struct.pack("<IQIQ", 1, 1, 0, lie),
    }
    for name, content in lies.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content + bytes(64))
        with pytest.raises(DamagedModelError, match="truncated"):
            read_header(path)


def test_contradictions_are_told(tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str, model: Made, **kinds: Kind) -> None:
        path = model.write(tmp_path / "a.gguf", {name.replace("__", "."): kind for name, kind in kinds.items()})
        with pytest.raises(error, match=match):
            opened(path)

    model = made("llama")
    del model.tensors["blk.1.attn_k.weight"]
    refused(ModelError, r"no tensor for layers\.1\.key", model)
    model = made("llama")
    model.tensors["blk.1.attn_k.weight"] = model.tensors["blk.1.attn_k.weight"][:-1]
    refused(ModelError, r"blk\.1\.attn_k\.weight .*\[63, 64\].*\[64, 64\]", model)
    model = made("phi3")
    model.tensors["blk.0.attn_qkv.weight"] = model.tensors["blk.0.attn_qkv.weight"][:-1]
    refused(ModelError, r"blk\.0\.attn_qkv\.weight", model)
    model = made("llama")
    model.tensors["blk.0.attn_gate.weight"] = model.tensors["blk.0.attn_q.weight"]
    refused(UnsupportedError, r"blk\.0\.attn_gate\.weight", model)
    model = made("llama")
    model.tensors["blk.7.attn_q.weight"] = model.tensors["blk.0.attn_q.weight"]
    refused(UnsupportedError, r"blk\.7\.attn_q\.weight", model)
    model = made("llama")
    model.architecture = "rwkv7"
    refused(UnsupportedError, "rwkv7 is not supported; opweld reads llama", model)
    model = made("llama")
    model.metadata["block_count"] = 4000000000
    refused(ModelError, r"llama\.block_count is 4000000000", model)
    model = made("llama")
    model.metadata["attention.key_length"] = 1 << 30
    refused(ModelError, r"llama\.attention\.key_length is 1073741824, which is not in 1", model)
    model = made("llama")
    del model.metadata["attention.head_count"]
    refused(ModelError, r"llama\.attention\.head_count is missing", model)
    refused(UnsupportedError, "of the type MXFP4; opweld reads F32", made("llama"), blk__0__ffn_up__weight=Kind.MXFP4)


def test_parts_of_a_model_are_refused(tmp_path: Path) -> None:
    def vocabulary(writer: gguf.GGUFWriter) -> None:
        ggufs.write_vocabulary(writer)
        writer.add_uint16("split.count", 3)

    with pytest.raises(UnsupportedError, match="one of 3 parts"):
        read_header(made("llama").write(tmp_path / "a.gguf", vocabulary=vocabulary))
