"""The tokenizer in a GGUF file's metadata, as one of the package `tokenizers`.

"gpt2" is byte-level BPE: the file has its merges, and the name of the expression that splits texts before. "llama" is
SentencePiece's BPE: the file has a score for each piece, and the pair with the best one is merged first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.errors import ModelError, UnsupportedError
from opweld.llm.chat_template import ChatTemplate
from opweld.llm.fields import Fields
from opweld.llm.packages import package
from opweld.llm.tokenizer import Tokenizer

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_LONGEST_PIECE = 256
"""Characters of the longest piece of SentencePiece that is merged: the work grows with the square."""

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_REST}"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST}"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_DIGITS = r"\p{N}"

_SPLITTERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "gpt2", "mpt", "olmo", "phi-2"), (_GPT2,)),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), (_QWEN2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), (_DIGITS, _GPT2)),
    "tekken": (_TEKKEN,),
    **dict.fromkeys(("gpt-4o", "llama4"), (_GPT4O,)),
}
"""What texts are split by before they are merged, one expression after the other: llama-vocab.cpp of llama.cpp."""
_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "tekken")
"""Those in which a word that is a token is that token, whatever its merges say."""
_WITH_BOS = ("llama-bpe", "llama3", "llama-v3", "tekken")
"""Those that begin a text with BOS where the file says nothing."""
_NORMALIZED = ("qwen2",)
"""Those trained on texts in Unicode's form NFC; llama.cpp leaves texts as they are."""


def read_tokenizer(metadata: dict[str, object], file: str) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
        ModelError: the file has none, or a part of it is missing or contradicts another.
        UnsupportedError: it is of a kind, or splits texts in a way, that opweld does not know.
    """
    fields = Fields(metadata, file, "tokenizer.ggml.")
    if "model" not in fields:
        raise ModelError(f"{file} has no tokenizer; convert it again, with the vocabulary")
    kind, tokens = fields.text("model"), fields.texts("tokens")
    kinds = fields.sequence("token_type") if "token_type" in fields else [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise ModelError(f"{file}: tokenizer.ggml.token_type has {len(kinds)} entries for {len(tokens)} tokens")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        raise UnsupportedError(
            f"{file}: a tokenizer of the kind {kind} is not supported; opweld reads {' and '.join(builders)}"
        )
    ids = _vocabulary(fields, tokens)
    inner = builders[kind](fields, tokens, kinds, ids)
    _add(inner, tokens, kinds)
    named = {
        key: _id(fields, f"{key}_token_id", len(tokens)) for key in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    bos = named["bos"]
    default = kind == "llama" or fields.text("pre", "") in _WITH_BOS
    if bos is not None and fields.flag("add_bos_token", default):
        inner.post_processor = package("tokenizers.processors").TemplateProcessing(
            single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)]
        )
    ends = [named[key] for key in ("eos", "eot", "eom")]
    template = _template(metadata, file, tokens, named)
    return Tokenizer(inner, (end for end in ends if end is not None), bos, template, ids)


def _id(fields: Fields, key: str, count: int) -> int | None:
    return fields.integer(key, least=0, most=count - 1) if key in fields else None


def _template(
    metadata: dict[str, object], file: str, tokens: Sequence[str], named: dict[str, int | None]
) -> ChatTemplate | None:
    fields = Fields(metadata, file, "tokenizer.")
    templates: dict[str, str] = {}
    for name, key in (("default", "chat_template"), ("tool_use", "chat_template.tool_use")):
        if key in fields:
            templates[name] = fields.text(key)
    if "default" not in templates:
        return None
    short = {"unknown": "unk", "padding": "pad"}
    return ChatTemplate(
        templates, {f"{short.get(key, key)}_token": tokens[id] for key, id in named.items() if id is not None}
    )


def _add(inner: Any, tokens: Sequence[str], kinds: Sequence[object]) -> None:
    """Makes tokens known that are found in a text before anything else is."""
    added = package("tokenizers").AddedToken
    special = [
        added(token, special=True, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in (_CONTROL, _UNKNOWN) and token
    ]
    plain = [
        added(token, special=False, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind == _USER_DEFINED and token
    ]
    inner.add_special_tokens(special)
    inner.add_tokens(plain)


def _byte_level(fields: Fields, _tokens: Sequence[str], _kinds: Sequence[object], vocabulary: dict[str, int]) -> Any:
    """Byte-level BPE."""
    name = fields.text("pre", "default")
    if name not in _SPLITTERS:
        raise UnsupportedError(
            f"{fields.file}: tokenizer.ggml.pre is {name}; opweld splits texts as {', '.join(_SPLITTERS)} do. A folder "
            "with the model's tokenizer.json needs no such name"
        )
    whole, models, splitters = package("tokenizers"), package("tokenizers.models"), package("tokenizers.pre_tokenizers")
    merges = _pairs(fields, vocabulary)
    try:
        model = models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name in _WHOLE_WORDS)
    except Exception as error:
        raise ModelError(f"{fields.file}: tokenizer.ggml.merges: {error}") from error
    inner = whole.Tokenizer(model)
    steps = [splitters.Split(whole.Regex(one), "isolated") for one in _SPLITTERS[name]]
    inner.pre_tokenizer = splitters.Sequence([*steps, splitters.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name in _NORMALIZED:
        inner.normalizer = package("tokenizers.normalizers").NFC()
    inner.decoder = package("tokenizers.decoders").ByteLevel()
    return inner


def _pairs(fields: Fields, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """What is merged. BPE looks itself whether both are tokens; it panics where what they make is longer than any."""
    found: list[tuple[str, str]] = []
    for merge in fields.texts("merges"):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or left + right not in vocabulary:
            raise ModelError(f"{fields.file}: tokenizer.ggml.merges has {merge!r}, which is no pair of tokens of one")
        found.append((left, right))
    return found


def _sentencepiece(fields: Fields, tokens: Sequence[str], kinds: Sequence[object], vocabulary: dict[str, int]) -> Any:
    """SentencePiece's BPE: characters, merged by the score of what they make."""
    scores = fields.numbers("scores")
    if len(scores) != len(tokens):
        raise ModelError(f"{fields.file}: tokenizer.ggml.scores has {len(scores)} entries for {len(tokens)} tokens")
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None)
    merged = [
        (token, score)
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
        if kind not in (_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE)
    ]
    whole, models, decoders = package("tokenizers"), package("tokenizers.models"), package("tokenizers.decoders")
    normalizers = package("tokenizers.normalizers")
    inner = whole.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(fields, merged, vocabulary),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    leading = fields.flag("add_space_prefix", True)
    spaces = normalizers.Replace(" ", "▁")
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if leading else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if leading else steps)
    return inner


def _merges(fields: Fields, scored: Sequence[tuple[str, float]], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, the best scores first."""
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scored:
        if len(piece) > _LONGEST_PIECE:
            raise ModelError(f"{fields.file}: the vocabulary has a piece of {len(piece)} characters: {piece[:40]!r}...")
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-score, vocabulary[left], vocabulary[right], left, right))
    found.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in found]


def _vocabulary(fields: Fields, tokens: Sequence[str]) -> dict[str, int]:
    found = {token: id for id, token in enumerate(tokens)}
    if len(found) != len(tokens):
        twice = next(token for id, token in enumerate(tokens) if found[token] != id)
        raise ModelError(f"{fields.file}: tokenizer.ggml.tokens has {twice!r} twice")
    return found
