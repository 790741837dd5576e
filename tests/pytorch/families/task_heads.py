"""Every task head of transformers on the architectures of tests/architectures, and the other language models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from tests.architectures.architecture import Architecture
from tests.architectures.catalogue import CATALOGUE, SEQUENCES, ids, mask
from tests.pytorch.families.configurations import small
from tests.pytorch.families.family import Family, Inputs

_LANGUAGE = ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM")


def families() -> Iterator[Family]:
    """A family is a class of transformers: those of the catalogue, then others whose configuration can be made small
    by the usual names of its sizes. Of each type of model one comes before the second of any."""
    listed = list(_listed())
    first = {kind: head for kind, head, _ in reversed(listed)}
    for _, head, entry in sorted(listed, key=lambda own: first[own[0]] != own[1]):
        yield Family("transformers", head, partial(_made, head, entry))


def _listed() -> Iterator[tuple[str, str, Architecture | None]]:
    """(type of model, class, how it is made small where the catalogue says it), every class once."""
    heads = _heads()
    seen: set[str] = set()
    for entry in CATALOGUE:
        if not entry.config or entry.name.endswith("-cached"):
            continue
        kind = _class(entry.config).model_type
        for head in dict.fromkeys((entry.module, *heads.get(kind, ()))):
            if head not in seen:
                seen.add(head)
                yield kind, head, entry
    for kind, head in _others():
        if head not in seen:
            seen.add(head)
            yield kind, head, None


def _class(name: str) -> Any:
    import transformers

    return getattr(transformers, name)


def _mappings() -> dict[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto

    end = "_MAPPING_NAMES"
    tables = {name.removesuffix(end): own for name, own in vars(modeling_auto).items() if name.endswith(end)}
    return {name: dict(own) for name, own in tables.items() if name.startswith("MODEL_")}


def _heads() -> dict[str, list[str]]:
    """The classes of each type of model."""
    found: dict[str, list[str]] = {}
    for mapping in _mappings().values():
        for kind, names in mapping.items():
            found.setdefault(kind, []).extend([names] if isinstance(names, str) else names)
    return found


def _others() -> Iterator[tuple[str, str]]:
    """(type of model, class) of language models."""
    mappings = _mappings()
    for task in _LANGUAGE:
        for kind, names in mappings[f"MODEL_FOR_{task}"].items():
            yield from ((kind, name) for name in ([names] if isinstance(names, str) else names))


def _small(head: str) -> Architecture:
    """A configuration of which the usual sizes are small."""
    configuration = _class(head).config_class
    plain = configuration()
    encoder = (ids("decoder_input_ids"),) if getattr(plain, "is_encoder_decoder", False) else ()
    inputs = (ids(), mask(), *encoder)
    return Architecture(head, head, configuration.__name__, small(plain), inputs, SEQUENCES)


def _made(head: str, entry: Architecture | None) -> tuple[torch.nn.Module, list[Inputs]]:
    entry = entry or _small(head)
    configuration = _class(entry.config)(**entry.options)
    configuration.return_dict = True
    with torch.device("meta"):
        size = sum(p.numel() for p in _class(head)(configuration).parameters())
    if size > 20_000_000:
        raise ValueError(f"{size} parameters: its configuration is not small")
    module = _class(head)(configuration).eval()
    takes = inspect.signature(module.forward).parameters
    found: list[Inputs] = []
    for sizes in (entry.sizes[0], entry.sizes[-1]):
        fed: Inputs = {name: torch.from_numpy(array) for name, array in entry.feeds(sizes).items() if name in takes}
        if "MultipleChoice" in head:
            fed = {name: torch.stack([own, own], 1) for name, own in fed.items()}
        if "SequenceClassification" in head and "input_ids" in fed:
            _end(configuration, fed["input_ids"])
            fed = {name: own for name, own in fed.items() if not name.startswith("decoder_")}  # made of the others
        found.append({**fed, **{name: value for name, value in entry.fixed.items() if name in takes}})
    return module, found


def _end(configuration: Any, ids: torch.Tensor) -> None:
    """Lets each text have one token that ends it, at its end: what classifies texts looks for it, or for what is no
    padding."""
    if getattr(configuration, "pad_token_id", None) is None:
        configuration.pad_token_id = 0  # which the module has taken over: it reads its configuration when it runs
    end = getattr(configuration, "eos_token_id", None)
    if isinstance(end, int) and end < int(getattr(configuration, "vocab_size", 0)):
        ids[ids == end] = end - 1 if end else 1
        ids[..., -1] = end
