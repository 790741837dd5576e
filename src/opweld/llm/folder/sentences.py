"""What sentence-transformers writes into a folder beside the model: how vectors of tokens become that of a text."""

from __future__ import annotations

from pathlib import Path

from opweld.errors import ModelError, UnsupportedError
from opweld.llm.encoder_config import Pooling
from opweld.llm.fields import Fields
from opweld.llm.folder.safetensors import read_json, read_json_list, read_optional_json

_POOLING = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
_MODULES = ("Transformer", "Pooling", "Normalize")


def read_sentences(folder: Path) -> tuple[Pooling, int | None]:
    """Pooling, and the most tokens of a text where they say; without these files it is the mean.

    Raises UnsupportedError where they ask for something else, ModelError where they make no sense."""
    if not (folder / "modules.json").is_file():
        return Pooling(), None
    kind, normalized, longest = "mean", False, None
    for name, path in _modules(folder):
        if name == "Transformer":
            settings = read_optional_json(folder / path / "sentence_bert_config.json")
            longest = settings.integer("max_seq_length") if "max_seq_length" in settings else None
            if settings.flag("do_lower_case"):
                raise UnsupportedError(f"{settings.file}: do_lower_case is not supported; tokenizer.json may say it")
        elif name == "Pooling":
            kind = _pooling(read_json(folder / path / "config.json"))
        else:
            normalized = True
    return Pooling(kind, normalized), longest


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Types and folders of the modules, in their order."""
    file = folder / "modules.json"
    found: list[tuple[str, str]] = []
    for entry in read_json_list(file):
        path = entry.text("path", "")
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ModelError(f"{file} names {path!r}: folders in it are read, no others")
        found.append((entry.text("type").rpartition(".")[2], path))
    names = tuple(name for name, _ in found)
    if names not in (_MODULES[:1], _MODULES[:2], _MODULES):
        raise UnsupportedError(f"{file}: the modules {', '.join(names)}; opweld knows {', '.join(_MODULES)}")
    return found


def _pooling(fields: Fields) -> str:
    """Newer files name one kind; older ones have a flag for each."""
    if "pooling_mode" in fields:
        kinds = [fields.text("pooling_mode")]
    else:
        flags = [key for key in fields.values if key.startswith("pooling_mode_") and fields.flag(key)]
        kinds = [_POOLING.get(key, key) for key in flags]
    if len(kinds) != 1 or kinds[0] not in _POOLING.values():
        raise UnsupportedError(
            f"{fields.file}: pooling by {', '.join(kinds) or 'nothing'}; opweld knows one of "
            f"{', '.join(_POOLING.values())}"
        )
    return kinds[0]
