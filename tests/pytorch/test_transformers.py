"""Models of transformers: attention registered there, generation with caches, pipelines."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
import transformers

from opweld.errors import UnsupportedError
from opweld.torch import register_attention
from opweld.torch.attention import Operands, attention
from opweld.torch.transformers import attention_forward

IDS = torch.arange(3, 23).reshape(2, 10)
PADDED = torch.tensor([[1] * 10, [0] * 3 + [1] * 7])
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 99,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}


pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture(autouse=True)
def registered() -> None:
    register_attention()


def decoder(kind: str) -> Any:
    """A small decoder: heads that share keys, and what is its own."""
    configs = {
        "llama": lambda: transformers.LlamaConfig(**SMALL),
        "mistral": lambda: transformers.MistralConfig(**SMALL, sliding_window=4),
        "gemma2": lambda: transformers.Gemma2Config(
            **SMALL, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8
        ),
        "gpt-oss": lambda: transformers.GptOssConfig(
            **SMALL,
            sliding_window=4,
            num_local_experts=2,
            num_experts_per_tok=1,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
    }
    return transformers.AutoModelForCausalLM.from_config(configs[kind](), attn_implementation="eager").eval()


def sizes(changing: int) -> tuple[int, int, int]:
    """Batch, queries, keys."""
    return 1 + changing, 6 * changing, 9 * changing


def reference(operands: Operands, causal: bool, softcap: float | None) -> torch.Tensor:
    """In float64."""
    wide: Any = [x if x is None or x.dtype is torch.bool else x.double() for x in operands]
    return attention(Operands(*wide), operands.query.shape[-1] ** -0.5, causal, softcap)


@pytest.mark.parametrize(
    ("masked", "softcap", "more", "dtype", "tolerance"),
    [
        ("", None, False, torch.float32, 1e-5),
        ("", 20.0, True, torch.float32, 1e-5),
        ("bool", None, False, torch.float32, 1e-5),
        ("bool", None, True, torch.float32, 1e-5),
        ("float", 2.0, False, torch.float32, 1e-5),
        ("bool", 20.0, True, torch.bfloat16, 3e-2),  # scores and weights are rounded to 8 bits each, values sum to 3
        ("bool", None, False, torch.float16, 4e-3),
    ],
)
def test_one_program_serves_all_batches_and_lengths(
    masked: str, softcap: float | None, more: bool, dtype: torch.dtype, tolerance: float
) -> None:
    module = torch.nn.Module()
    for changing, apart in itertools.product((1, 2), (False, True)):
        batch, queries, keys = sizes(changing)
        keys = keys if masked else queries

        def tensor(heads: int, length: int, exchange: bool, batch: int = batch) -> torch.Tensor:
            shape = (batch, length, heads, 8) if exchange else (batch, heads, length, 8)
            made = torch.randn(shape, dtype=dtype)
            return made.transpose(1, 2) if exchange else made

        mask = torch.randn(batch, 1, queries, keys, dtype=dtype) if masked else None
        mask = mask > -0.5 if mask is not None and masked == "bool" else mask
        operands = Operands(
            tensor(4, queries, apart),
            tensor(2, keys, exchange=False),
            tensor(2, keys, apart),
            mask,
            torch.randn(1, 4, queries, keys, dtype=dtype) if more else None,
            torch.randn(4, dtype=dtype) if more else None,
        )
        query, key, value, mask, bias, sinks = operands
        found, _ = attention_forward(
            module, query, key, value, mask, softcap=softcap, s_aux=sinks, position_bias=bias, is_causal=not masked
        )
        assert found.dtype == dtype
        right = reference(operands, not masked, softcap)
        torch.testing.assert_close(found.double(), right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_what_reads_no_key_is_a_number(softcap: float | None) -> None:
    query, key = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    mask = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    mask[0, 0, 1] = False
    found, _ = attention_forward(torch.nn.Module(), query, key, key, mask, softcap=softcap)
    assert torch.isfinite(found).all()
    right = reference(Operands(query, key, key, mask, None, None), causal=False, softcap=softcap)
    torch.testing.assert_close(found[1].double(), right[1], rtol=1e-5, atol=1e-5)


def test_gradients_and_empty_tensors_are_pytorchs() -> None:
    query = torch.randn(2, 4, 3, 8, requires_grad=True)
    with torch.enable_grad():
        found, _ = attention_forward(torch.nn.Module(), query, query, query, None, softcap=3.0)
        found.sum().backward()
    assert query.grad is not None
    empty, _ = attention_forward(torch.nn.Module(), query[:0].detach(), query[:0].detach(), query[:0].detach(), None)
    assert empty.shape == (0, 3, 4, 8)


def test_types_of_autocast_and_masks_of_other_axes_are_pytorchs() -> None:
    query = torch.randn(2, 4, 3, 8)
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    found, _ = attention_forward(torch.nn.Module(), query, query, query, mask)
    causal, _ = attention_forward(torch.nn.Module(), query, query, query, None, is_causal=True)
    torch.testing.assert_close(found, causal, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow, _ = attention_forward(torch.nn.Module(), query, query, query, None, is_causal=True)
    assert narrow.dtype is torch.bfloat16
    again, _ = attention_forward(torch.nn.Module(), query, query, query, None, is_causal=True)
    assert torch.equal(again, causal)


def test_a_paged_cache_is_refused_with_a_remedy() -> None:
    query = torch.randn(1, 1, 2, 4)
    with pytest.raises(UnsupportedError, match="sdpa"):
        attention_forward(torch.nn.Module(), query, query, query, None, cache=object())


@pytest.mark.parametrize(
    "kind", ["llama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("mistral", "gemma2", "gpt-oss"))]
)
def test_decoders_with_padding_compiled_and_not(kind: str) -> None:
    model = decoder(kind)
    read = PADDED.bool()
    right = model(input_ids=IDS, attention_mask=PADDED).logits[read]
    for way in ("opweld", "sdpa") if kind == "llama" else ("opweld",):
        model.set_attn_implementation(way)
        torch.testing.assert_close(
            model(input_ids=IDS, attention_mask=PADDED).logits[read], right, rtol=1e-4, atol=1e-4
        )
        run = torch.compile(model, backend="opweld", options={"strict": kind != "gpt-oss"})
        for rows in (2, 1):
            found = run(input_ids=IDS[:rows], attention_mask=PADDED[:rows]).logits[read[:rows]]
            torch.testing.assert_close(found, right[: len(found)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cache", ["dynamic", pytest.param("static", marks=pytest.mark.slow)])
def test_generation_with_a_cache_compiled_and_not(cache: str) -> None:
    model = decoder("gemma2")
    told = {"input_ids": IDS, "attention_mask": PADDED, "max_new_tokens": 6, "do_sample": False}
    right = model.generate(**told)
    model.set_attn_implementation("opweld")
    assert torch.equal(model.generate(**told, cache_implementation=cache), right)
    model.forward = torch.compile(model.forward, backend="opweld")
    assert torch.equal(model.generate(**told, cache_implementation=cache), right)


def test_pipelines_run_compiled() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(90))]
    own = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    own.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]")
    config = transformers.BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=99
    )
    model = transformers.BertForSequenceClassification(config).eval()
    pipe: Any = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    texts = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9 w1 w2 w3"]
    right = [pipe(text)[0] for text in texts]
    pipe.model = torch.compile(model, backend="opweld")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*opweld.*")
        found = [pipe(text)[0] for text in texts]
    assert [one["label"] for one in found] == [one["label"] for one in right]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in right], rel=1e-4)
