"""Whether a file has all weights that its configuration asks for, in the right shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from opweld.errors import ModelError
from opweld.llm.config import Config
from opweld.llm.weights import Weight, Weights


@dataclass(frozen=True)
class Stored:
    """A weight in a file. source: the name that the file gives it."""

    source: str
    shape: tuple[int, ...]
    read: Callable[[], Weight]

    def __call__(self) -> Weight:
        """The weight, read from the file."""
        return self.read()


def complete(config: Config, stored: Mapping[str, Stored], file: str) -> Weights:
    """The weights, once each is known to be of its shape and none is missing.

    Raises ModelError naming the file, the tensor, and what was expected."""
    if config.heads % config.kv_heads:
        raise ModelError(
            f"{file}: {config.heads} heads of queries cannot share {config.kv_heads} heads of keys and values evenly"
        )
    return checked(stored, lambda name: _shape(config, name, stored), _required(config, stored), file)


def checked(
    stored: Mapping[str, Stored],
    shape: Callable[[str], tuple[int, ...] | None],
    required: Iterable[str],
    file: str,
) -> Weights:
    """The weights, once each is of the shape that its name should have, and none is missing of those required. Raises
    what `complete` does."""
    for name, found in stored.items():
        expected = shape(name)
        if found.shape != expected:
            raise ModelError(
                f"{file}: {found.source} ({name}) has the shape {list(found.shape)}; the configuration says "
                f"{list(expected) if expected is not None else 'that there is none'}"
            )
    for name in required:
        if name not in stored:
            raise ModelError(f"{file}: there is no tensor for {name}; the file is incomplete, fetch it again")
    return stored


def _shape(config: Config, name: str, stored: Mapping[str, Stored]) -> tuple[int, ...]:
    hidden, size = config.hidden, config.head_size
    part = name.removesuffix(".bias")
    last = part.rpartition(".")[2]
    inner = config.inner
    if config.experts is not None and ".experts." in part:
        inner = config.experts.inner
    elif ".shared." in part:
        # No configuration of the contract says how large an expert is that all tokens share: its gate does.
        gate = stored.get(part.rpartition(".")[0] + ".gate")
        inner = gate.shape[0] if gate is not None and gate.shape else 0
    matrices = {
        "embedding": (config.vocabulary, hidden),
        "head": (config.vocabulary, hidden),
        "positions": (config.context, hidden),
        "query": (config.heads * size, hidden),
        "key": (config.kv_heads * size, hidden),
        "value": (config.kv_heads * size, hidden),
        "output": (hidden, config.heads * size),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
        "router": (config.experts.count if config.experts else 0, hidden),
        "shared_router": (1, hidden),
    }
    vectors = {"query_norm": (size,), "key_norm": (size,), "sinks": (config.heads,)}
    if last in matrices:
        return matrices[last][:1] if name.endswith(".bias") else matrices[last]
    return vectors.get(last, (hidden,))


def _required(config: Config, stored: Mapping[str, Stored]) -> list[str]:
    names = ["embedding", "norm"]
    if not config.tied:
        names.append("head")
    if all(rope is None for rope in config.ropes):
        names.append("positions")
    for n in range(config.layers):
        layer = f"layers.{n}."
        names += [layer + part for part in ("attention_norm", "query", "key", "value", "output", "feed_norm")]
        feeds = [layer]
        if config.experts is not None and layer + "router" in stored:
            feeds = [f"{layer}experts.{e}." for e in range(config.experts.count)]
        if layer + "shared_router" in stored:
            feeds.append(layer + "shared.")
        parts = ("gate", "up", "down") if config.gated else ("up", "down")
        names += [feed + part for feed in feeds for part in parts]
    return names
