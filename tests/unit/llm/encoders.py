"""Tiny encoders of random weights, as transformers saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

KINDS = ("bert", "roberta", "xlm-roberta", "distilbert")
CONTEXT = 600
"""More than two chunks of keys, and no whole one."""
WORDS = [f"w{n}" for n in range(90)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]

_SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 1,
}
_DISTIL = {"vocab_size": 97, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "pad_token_id": 1}


def saved(kind: str, folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """Saves a model with random weights, norms and biases too, and its tokenizer; the model in float64.

    changes: of its configuration. One label makes it a model that scores pairs."""
    sizes = _DISTIL | {"max_position_embeddings": CONTEXT} if kind == "distilbert" else _SIZES
    if kind in ("roberta", "xlm-roberta"):
        sizes = sizes | {"max_position_embeddings": CONTEXT + 2, "type_vocab_size": 1}
    config = transformers.AutoConfig.for_model(kind, **(sizes | changes), attn_implementation="eager")
    torch.manual_seed(len(kind))
    scores = "num_labels" in changes
    made = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModel
    model = made.from_config(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=1.0 if parameter.dim() == 1 else 0.2)
    model.save_pretrained(folder)
    tokenizer_of(kind).save(str(folder / "tokenizer.json"))
    return model.double().eval()


def tokenizer_of(kind: str) -> Tokenizer:
    """A token is a word. BERT tells the second text of a pair by its types."""
    words = {word: id for id, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    second = "$B:1 </s>:1" if kind == "bert" else "</s> $B </s>"
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair=f"<s> $A </s> {second}", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def write_sentences(folder: Path, pooling: dict[str, Any], normalized: bool, longest: int | None = None) -> None:
    """What sentence-transformers writes beside a model."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalized else [])]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{name}" if n else "", "type": f"sentence_transformers.models.{name}"}
        for n, name in enumerate(names)
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest, "do_lower_case": False}))
