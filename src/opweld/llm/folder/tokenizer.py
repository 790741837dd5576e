"""The tokenizer of a folder: tokenizer.json, and from beside it the chat template and the tokens that end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from opweld.errors import MissingModelError, ModelError
from opweld.llm.chat_template import ChatTemplate
from opweld.llm.fields import Fields
from opweld.llm.folder.safetensors import read_optional_json
from opweld.llm.packages import package
from opweld.llm.tokenizer import Tokenizer

_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_tokenizer(folder: Path, config: Fields) -> Tokenizer:
    """The tokenizer of a folder. config: of its config.json, which may name the ends of an answer too.

    Raises MissingModelError where it has no tokenizer.json, and ModelError where that cannot be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise MissingModelError(
            f"{folder} has no tokenizer.json; transformers writes it: "
            f"AutoTokenizer.from_pretrained(...).save_pretrained({str(folder)!r})"
        )
    tokenizers = package("tokenizers")
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except BaseException as error:  # the package raises Exception itself, and where its Rust panics PanicException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{path} cannot be read: {error}; fetch it again, or update tokenizers") from error
    settings = read_optional_json(folder / "tokenizer_config.json")
    tokens = {key: content for key in _TOKENS if (content := _content(settings.get(key))) is not None}
    ids = {key: inner.token_to_id(content) for key, content in tokens.items()}
    generation = read_optional_json(folder / "generation_config.json")
    ends = {*_ids(generation, "eos_token_id"), *_ids(config, "eos_token_id")}
    if ids.get("eos_token") is not None:
        ends.add(ids["eos_token"])
    bos = ids.get("bos_token")
    if bos is None:
        bos = next(iter(_ids(generation, "bos_token_id") or _ids(config, "bos_token_id")), None)
    return Tokenizer(inner, ends, bos, _template(folder, settings, tokens))


def _template(folder: Path, settings: Fields, tokens: dict[str, str]) -> ChatTemplate | None:
    """chat_template.jinja, which transformers writes today, or what tokenizer_config.json has."""
    templates: dict[str, str] = {}
    given = settings.get("chat_template")
    if isinstance(given, str):
        templates["default"] = given
    elif isinstance(given, list):
        for one in cast("list[Any]", given):
            entry = Fields({"chat_template": one}, settings.file).inner("chat_template")
            templates[entry.text("name")] = entry.text("template")
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            templates["default"] = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is not UTF-8: {error}") from error
    return ChatTemplate(templates, tokens) if "default" in templates else None


def _content(token: object) -> str | None:
    """The text of a token, which is written as a string or as an object."""
    if isinstance(token, dict):
        token = cast("dict[str, object]", token).get("content")
    return token if isinstance(token, str) else None


def _ids(fields: Fields, key: str) -> list[int]:
    """Ids that are written as a number, or as a list of some."""
    found = fields.get(key)
    listed = cast("list[object]", found) if isinstance(found, list) else [found]
    return [one for one in listed if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
