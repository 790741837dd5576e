"""Embeddings of text, with a model and a tokenizer of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from tokenizers import Tokenizer, models, pre_tokenizers, processors

TEXTS = [
    "the compiler welds operators into kernels",
    "a short text",
    "sizes of texts differ, and every batch is padded to its longest, so that the model sees many shapes " * 3,
    "",
]


def tokenizer(folder: Path) -> None:
    """Letters and common words, and what fastembed expects beside them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for text in TEXTS for word in text.split()})]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))
    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(tokens))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128, **tokens}))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))


def prepare(folder: Path) -> Callable[[], Any]:
    tokenizer(folder)
    TextEmbedding.add_custom_model(
        model="local/minilm",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/minilm"),
        dim=384,
        model_file="minilm.onnx",
        output_name="onnx::Shape_422",  # the last hidden state
    )
    embedding = TextEmbedding("local/minilm", specific_model_path=str(folder))

    def call() -> Any:
        return {str(size): list(embedding.embed(TEXTS, batch_size=size)) for size in (1, 2, 4)}

    return call
