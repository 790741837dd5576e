"""Transformers on onnxruntime: encoders, and a decoder that generates with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction, ORTModelForSequenceClassification
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

BERT: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 99,
}


def exported(folder: Path, kind: Any, source: PreTrainedModel) -> Any:
    """The model as optimum reads it, exported by optimum where it is not there yet."""
    if not (folder / "done").exists():
        source.eval().save_pretrained(folder / "torch")
        kind.from_pretrained(folder / "torch", export=True).save_pretrained(folder)
        (folder / "done").touch()
    return kind.from_pretrained(folder)


def prepare(folder: Path) -> Callable[[], Any]:
    torch.manual_seed(0)
    classifier = exported(
        folder / "classifier", ORTModelForSequenceClassification, BertForSequenceClassification(BertConfig(**BERT))
    )
    features = exported(folder / "features", ORTModelForFeatureExtraction, BertModel(BertConfig(**BERT)))
    decoder = exported(
        folder / "decoder",
        ORTModelForCausalLM,
        GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=99, n_positions=64)),
    )
    ids = torch.arange(24).reshape(2, 12) % 90
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0

    def call() -> Any:
        encoded = {"input_ids": ids, "attention_mask": mask}
        generated = decoder.generate(ids[:1, :5], max_new_tokens=12, do_sample=False, pad_token_id=0)
        beams = decoder.generate(ids[:1, :5], max_new_tokens=6, num_beams=3, do_sample=False, pad_token_id=0)
        return {
            "classes": classifier(**encoded).logits.numpy(),
            "features": features(**encoded).last_hidden_state[0].numpy(),
            "generated": generated.numpy(),
            "beams": beams.numpy(),
        }

    return call
