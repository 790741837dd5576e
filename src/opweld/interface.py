"""What a model declares to its callers: inputs, outputs, and what it says about itself.

Compiled code takes and returns tensors. An input or output of another type (a sequence, an optional, a sequence of
maps) is represented by any number of tensors; its `Form` says which, and how callers see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

ANONYMOUS = ("", "?", "-1", "None")
"""Placeholders that models use for the name of an unnamed dim."""

_NAME_LIMIT = 40


def symbol_name(value: str, position: int, dim: int | str) -> str:
    """The name of a dynamic dim in options: its own, or one made of its value's name and its position."""
    label = "" if isinstance(dim, int) else dim.strip()
    return plain_name(f"{value}_{position}") if label in ANONYMOUS else label


def plain_name(label: str) -> str:
    """A name of letters, digits and underscores, which begins with a letter."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")[:_NAME_LIMIT] or "dim"
    return plain if plain[0].isalpha() else f"dim_{plain}"


def shape_text(shape: Sequence[int | str]) -> str:
    """A declared shape as messages show it: [batch, 3, ?], `?` for a dim that has neither size nor name."""

    def text(dim: int | str) -> str:
        anonymous = dim < 0 if isinstance(dim, int) else dim.strip() in ANONYMOUS
        return "?" if anonymous else str(dim)

    return f"[{', '.join(map(text, shape))}]"


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of compiled code.

    Attributes:
        name: in the model; `x[0]`, `x[1]`, ... for the tensors of a sequence x.
        dtype: a name of `opweld.runtime.dtypes.CODES`.
        shape: sizes and names of dims; None where the model does not even fix the rank.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class StateInfo:
    """A value that lives between runs.

    Attributes:
        name: of the input that it is. output: the name of the output that it becomes.
        dtype, shape: as the input declares them.
        axis: along which it grows; None where a run replaces it.
    """

    name: str
    output: str
    dtype: str
    shape: tuple[int | str, ...]
    axis: int | None


@dataclass(frozen=True)
class Tensor:
    """A tensor, by the name that it has in compiled code."""

    tensor: str


@dataclass(frozen=True)
class Text:
    """A tensor of strings, which compiled code has as a tensor of their numbers, int64."""

    numbers: str


@dataclass(frozen=True)
class Listed:
    """A list."""

    items: tuple[Form, ...]


@dataclass(frozen=True)
class Mapped:
    """A list of dicts, one for each row of a tensor: what is in column i is under keys[i]."""

    scores: str
    keys: tuple[int | str, ...]


@dataclass(frozen=True)
class Constant:
    """An input that was made a constant: dtype, shape, and its bytes as hexadecimal digits. It may only be fed so."""

    dtype: str
    shape: tuple[int, ...]
    digits: str


Form: TypeAlias = Tensor | Text | Listed | Mapped | Constant | None
"""What an input or output is for callers; None for an optional that holds nothing."""


def tensors_of(form: Form) -> Iterator[str]:
    """The tensors of a form, in order."""
    match form:
        case Tensor(name) | Text(name) | Mapped(name):
            yield name
        case Listed(items):
            for item in items:
                yield from tensors_of(item)
        case _:
            return


@dataclass(frozen=True)
class Argument:
    """An input or output as the model declares it, tensor or not.

    Attributes:
        name: in the model.
        type: as onnxruntime spells it: tensor(float), seq(tensor(float)), optional(seq(tensor(int64))).
        shape: of a tensor, or of one that an optional may hold; else None.
        form: what it is for callers.
    """

    name: str
    type: str
    shape: tuple[int | str, ...] | None
    form: Form


@dataclass(frozen=True)
class Structure:
    """The inputs and outputs of a model of which some are more, or less, than a tensor of numbers.

    Attributes:
        inputs, outputs: as the model declares them.
        texts: the strings of the model by their numbers.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Specialisation:
    """What callers say of inputs where a model can only be compiled when it is known.

    Attributes:
        lengths: by input that is a sequence, how many tensors it holds; by optional, 0 or 1; None where an optional
            holds nothing.
        ranks: by tensor that declares none, the number of its dims.
        constants: by tensor, its elements, as nested lists of numbers.
    """

    lengths: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says about itself."""

    producer: str = ""
    graph: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom: dict[str, str] = field(default_factory=dict[str, str])
