"""Tokens and texts: byte-level BPE and SentencePiece, from tokenizer.json and from GGUF; pieces; ends."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from opweld.errors import InputError, MissingModelError, ModelError, UnsupportedError
from opweld.llm.fields import Fields
from opweld.llm.folder.tokenizer import read_tokenizer as read_folder
from opweld.llm.gguf.header import read_header
from opweld.llm.gguf.vocabulary import read_tokenizer as read_gguf
from opweld.llm.pieces import byte_characters
from opweld.llm.tokenizer import Tokenizer
from tests.unit.llm.ggufs import Made

TEXTS = [
    "",
    " ",
    "the tea is here, isn't it?",
    " leading,  two  spaces \n\n\t and the rest ",
    "naïve café 你好 👩‍👩‍👧 \u200f\u0000",
    "12345 3.14 x=1;\r\n",
    "ends<|end|>and goes on",
    "<|start|>user\nthe the the<|end|>",
]
CORPUS = ["the tea and the rest, here and there; it isn't so: 1234 + 56 = 1290"] * 20


def byte_level(merges: int = 60) -> tokenizers.Tokenizer:
    """Byte-level BPE with merges of CORPUS."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|start|>", "<|end|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=259 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special
    )
    inner.train_from_iterator(CORPUS, trainer)
    inner.add_tokens(["<tool>"])
    return inner


def folder(path: Path, inner: Any = None, **settings: Any) -> Path:
    """A folder that transformers saved a tokenizer to."""
    settings = {"bos_token": "<|start|>", "eos_token": "<|end|>"} | settings
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner or byte_level(), **settings)
    fast.save_pretrained(path)
    return path


def opened(path: Path, **config: Any) -> Tokenizer:
    return read_folder(path, Fields(config, "config.json"))


def vocabulary_of(inner: tokenizers.Tokenizer, pre: str) -> Callable[[gguf.GGUFWriter], None]:
    """The same tokenizer, as GGUF's metadata."""
    described = json.loads(inner.to_str())
    tokens = [token for token, _ in sorted(inner.get_vocab().items(), key=lambda item: item[1])]
    kinds = [{"<|start|>": 3, "<|end|>": 3, "<|im_end|>": 3, "<tool>": 4}.get(token, 1) for token in tokens]

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
        writer.add_bos_token_id(tokens.index("<|start|>"))
        writer.add_eos_token_id(tokens.index("<|end|>"))

    return write


def from_gguf(path: Path, write: Callable[[gguf.GGUFWriter], None]) -> Tokenizer:
    header = read_header(Made("llama").write(path, vocabulary=write))
    return read_gguf(header.metadata, header.file)


def told(tokenizer: Tokenizer, tokens: list[int], **how: Any) -> str:
    """The text, token by token."""
    pieces = tokenizer.pieces(**how)
    return "".join(pieces.feed([token]) for token in tokens) + pieces.flush()


@pytest.fixture(params=["folder", "gguf"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "folder":
        return opened(folder(tmp_path))
    return from_gguf(tmp_path / "a.gguf", vocabulary_of(byte_level(), "gpt-2"))


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_and_texts_are_those_of_transformers(tokenizer: Tokenizer, tmp_path: Path, text: str) -> None:
    known = transformers.AutoTokenizer.from_pretrained(folder(tmp_path / "known"))
    tokens = tokenizer.encode(text)
    assert tokens == known.encode(text)
    assert tokenizer.decode(tokens) == known.decode(tokens, skip_special_tokens=True)
    assert tokenizer.decode(tokens, special=True) == known.decode(tokens) == text
    assert told(tokenizer, tokens, special=True) == text
    assert b"".join(map(tokenizer.token_bytes, tokens)).decode() == tokenizer.decode(tokens)


def test_what_is_special(tokenizer: Tokenizer) -> None:
    names = {token: tokenizer.inner.token_to_id(token) for token in ("<|start|>", "<|end|>", "<|im_end|>", "<tool>")}
    assert tokenizer.bos == names["<|start|>"]
    assert tokenizer.ends == {names["<|end|>"], names["<|im_end|>"]}, "the second by its name"
    assert tokenizer.special == {names["<|start|>"], names["<|end|>"], names["<|im_end|>"]}
    assert tokenizer.decode(tokenizer.encode("<tool>the<|end|>")) == "<tool>the"
    assert tokenizer.vocabulary == max(tokenizer.inner.get_vocab().values()) + 1
    assert tokenizer.token_bytes(names["<|end|>"]) == b""
    assert tokenizer.token_bytes(names["<tool>"]) == b"<tool>"
    assert tokenizer.token_bytes(10**6) == b""
    assert tokenizer.decode([10**6, *tokenizer.encode("the")]) == "the", "ids of a padded vocabulary say nothing"


def test_pieces_are_whole_characters_and_never_taken_back(tokenizer: Tokenizer) -> None:
    text = "é你👩‍👧"
    pieces, found = tokenizer.pieces(), ""
    for token in tokenizer.encode(text):
        found += pieces.feed([token])
        assert text.startswith(found), "no half of a character"
    assert found == text
    assert pieces.flush() == ""
    cut = tokenizer.encode("a👩")[:-1]
    pieces = tokenizer.pieces()
    assert pieces.feed(cut) == "a"
    assert pieces.flush() == "\N{REPLACEMENT CHARACTER}"


def test_truncation_and_padding_of_a_file_are_not_for_prompts(tmp_path: Path) -> None:
    inner = byte_level()
    inner.enable_truncation(3)
    inner.enable_padding(length=5)
    assert len(opened(folder(tmp_path, inner)).encode("the tea and more, and more")) > 5


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"generation_config.json": {"eos_token_id": [3, 4]}}, {3, 4, 1, 2}),
        ({"generation_config.json": {"eos_token_id": 3}}, {3, 1, 2}),
        ({}, {1, 2}),
    ],
)
def test_ends_are_all_that_any_file_names(tmp_path: Path, written: dict[str, object], expected: set[int]) -> None:
    folder(tmp_path)
    for name, content in written.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert opened(tmp_path).ends == expected
    assert opened(tmp_path, eos_token_id=[7]).ends == expected | {7}


def test_a_text_begins_with_bos_where_the_file_says_so(tmp_path: Path) -> None:
    for pre, said, begins in (("gpt-2", None, False), ("llama-bpe", None, True), ("llama-bpe", False, False)):

        def write(writer: gguf.GGUFWriter, pre: str = pre, said: bool | None = said) -> None:
            vocabulary_of(byte_level(), pre)(writer)
            if said is not None:
                writer.add_add_bos_token(said)

        found = from_gguf(tmp_path / "a.gguf", write)
        assert (found.encode("the")[0] == found.bos) == begins
        assert found.encode("the", special=False)[0] != found.bos


@pytest.mark.parametrize("said", [None, False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_whether_a_text_begins_with_bos_is_what_transformers_makes_of_it(
    tmp_path: Path, begins: bool, said: bool | None
) -> None:
    """tokenizer.json says it; add_bos_token beside it changes nothing."""
    inner = byte_level()
    single, special = (["<|start|>", "$A"], [("<|start|>", 0)]) if begins else (["$A"], [])
    inner.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    folder(tmp_path, inner)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    if said is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": said}))
    known = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert opened(tmp_path).encode("the tea") == known.encode("the tea")
    assert (opened(tmp_path).encode("the tea")[0] == 0) == begins


SPLITS = {
    "gpt-2": ["I", "'m", " 1234", "\n\n", " x", "+="],
    "llama-bpe": ["I", "'m", " ", "123", "4", "\n\n", " x", "+="],
    "qwen2": ["I", "'m", " ", "1", "2", "3", "4", "\n\n", " x", "+="],
    "smollm": ["I", "'m", " ", "1", "2", "3", "4", "\n\n", " x", "+="],
    "tekken": ["I", "'m", " ", "1", "2", "3", "4", "\n\n", " x", "+="],
    "gpt-4o": ["I'm", " ", "123", "4", "\n\n", " x", "+="],
    "default": ["I", "'", "m", " ", "123", "4", "\n\n", " x", "+="],
}


@pytest.mark.parametrize("pre", SPLITS)
def test_texts_are_split_as_the_name_says(tmp_path: Path, pre: str) -> None:
    found = from_gguf(tmp_path / "a.gguf", vocabulary_of(byte_level(), pre))
    splits = [piece for piece, _ in found.inner.pre_tokenizer.pre_tokenize_str("I'm 1234\n\n x+=")]
    characters = byte_characters()
    assert [bytes(characters[one] for one in piece).decode() for piece in splits] == SPLITS[pre]


PIECES = ["▁t", "he", "▁the", "▁a", "an", "▁an", "nd", "▁and", "er", "▁▁", "▁h", "▁he", "re", "ere", "▁here"]


def sentencepiece(prefix: bool) -> Callable[[gguf.GGUFWriter], None]:
    characters = list("▁abcdefghijklmnoprstuvwxyz.,é")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, *characters, "<mark>"]

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(PIECES) + len(characters)), 4])
        writer.add_token_scores(
            [0.0] * 259 + [-float(i) for i in range(len(PIECES))] + [-1e9] * len(characters) + [0.0]
        )
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_space_prefix(prefix)

    return write


def merged(text: str, tokenizer: Tokenizer) -> list[int]:
    """SentencePiece's own way: of all neighbours that make a piece those with the best score, the first of equals."""
    symbols = list(text.replace(" ", "▁"))
    while True:
        made = [(PIECES.index(a + b), i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in PIECES]
        if not made:
            break
        _, i = min(made)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    found: list[int] = []
    for symbol in symbols:
        id = tokenizer.id_of(symbol)
        found += [id] if id is not None else [3 + byte for byte in symbol.encode()]
    return found


def test_sentencepiece_merges_the_best_score_first(tmp_path: Path) -> None:
    tokenizer = from_gguf(tmp_path / "a.gguf", sentencepiece(prefix=False))
    choose = random.Random(1)
    for _ in range(300):
        text = "".join(choose.choice("aeehhnrtd  é你.") for _ in range(30))
        assert tokenizer.encode(text, special=False) == merged(text, tokenizer)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert told(tokenizer, tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["the and", " the", "  the", "你", "a<mark>b", ""])
def test_the_space_before_the_first_word_is_not_told(tmp_path: Path, text: str) -> None:
    tokenizer = from_gguf(tmp_path / "a.gguf", sentencepiece(prefix=True))
    tokens = tokenizer.encode(text)
    assert tokens[0] == tokenizer.bos == 1
    expected = tokenizer.inner.decode(tokens)
    assert expected == text.replace("<mark>", "<mark> "), "a word after a mark has one too, as in llama.cpp"
    assert tokenizer.decode(tokens) == expected
    assert told(tokenizer, tokens) == expected


def test_an_answer_goes_on_with_its_space(tmp_path: Path) -> None:
    tokenizer = from_gguf(tmp_path / "a.gguf", sentencepiece(prefix=True))
    prompt, the = tokenizer.encode("here"), tokenizer.encode("the", special=False)
    assert told(tokenizer, the, after=prompt) == " the"
    assert told(tokenizer, the, after=[1]) == "the"
    assert told(tokenizer, the) == "the"


def test_decoders_of_folders(tmp_path: Path) -> None:
    """SentencePiece as transformers writes it, old and new; and one whose tokens cannot be told apart."""
    inner = tokenizers.Tokenizer(models.BPE({"<unk>": 0, "▁": 1, "a": 2, "▁a": 3}, [("▁", "a")], unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    for decoder in (decoders.Sequence(steps), decoders.Metaspace()):
        inner.decoder = decoder
        found = opened(folder(tmp_path, inner, bos_token=None, eos_token=None))
        tokens = found.encode("a a")
        assert tokens == [3, 3]
        assert found.decode(tokens) == inner.decode(tokens) == "a a"
    inner.decoder = decoders.WordPiece()
    found = opened(folder(tmp_path, inner, bos_token=None, eos_token=None))
    assert found.encode("a a") == [3, 3], "texts are encoded all the same: an encoder needs no more"
    with pytest.raises(UnsupportedError, match="decoder WordPiece"):
        found.decode(tokens)


def test_what_is_wrong_with_a_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingModelError, match=r"no tokenizer\.json.*save_pretrained"):
        opened(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        opened(tmp_path)
    described = json.loads(byte_level().to_str())
    described["model"]["continuing_subword_prefix"] = "x" * 100
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read: range"):
        opened(tmp_path)

    def refused(error: type[Exception], match: str, **changes: object) -> None:
        metadata: dict[str, object] = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": ["a", "b", "ab"],
            "tokenizer.ggml.token_type": [1, 1, 1],
            "tokenizer.ggml.merges": ["a b"],
        }
        metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
        with pytest.raises(error, match=match):
            read_gguf(metadata, "a.gguf")

    refused(ModelError, r"a\.gguf has no tokenizer", model=None)
    refused(UnsupportedError, "kind rwkv", model="rwkv")
    refused(UnsupportedError, r"tokenizer\.ggml\.pre is martian; opweld splits texts as gpt-2", pre="martian")
    refused(ModelError, "'a c', which is no pair", merges=["a c"])
    refused(ModelError, "'ab', which is no pair", merges=["ab"])
    refused(ModelError, "merges should be a list", merges=None)
    refused(ModelError, "token_type has 2 entries for 3", token_type=[1, 1])
    refused(ModelError, "'a' twice", tokens=["a", "b", "a"])
    refused(ModelError, "eos_token_id is 3", eos_token_id=3)
    refused(ModelError, "scores has 1 entries for 3", model="llama", scores=[0.0])
    refused(ModelError, "a piece of 1000 characters", model="llama", scores=[0.0] * 3, tokens=["a", "b", "a" * 1000])


def test_a_text_with_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    """JSON can write one, so that a client of a server can send it."""
    with pytest.raises(InputError, match=r"character 1 .* is half of a surrogate pair"):
        tokenizer.encode("a\ud800")
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.encode_within(10, "a", "\udfff")
