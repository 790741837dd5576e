"""The table of PyTorch's operators: how each overload is said with operators that opweld has.

A row is a function of the builder and of the overload's arguments, in the order and with the names of its schema:

    @aten("add.Tensor", "add.Scalar")
    def add(b: Builder, x: Value, y: Value | Number, alpha: Number = 1) -> Value: ...

Tensors and symbolic integers arrive as values, everything else as Python has it. An overload without a row is
decomposed by PyTorch into others; so a row is also the decision to keep an operator whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

Row: TypeAlias = Callable[..., Any]

_FAMILIES = (
    "arithmetic",
    "activations",
    "comparisons",
    "convolutions",
    "creation",
    "detection",
    "distinct",
    "histograms",
    "indexing",
    "movement",
    "normalizations",
    "ordering",
    "pools",
    "products",
    "quantized",
    "recurrent",
    "reductions",
    "resampling",
    "segments",
    "triangular",
    "windows",
)
_rows: dict[str, Row] = {}


def aten(*names: str) -> Callable[[Row], Row]:
    """Registers the row of ATen's overloads: "add.Tensor"."""
    return operator("aten", *names)


def operator(namespace: str, *names: str) -> Callable[[Row], Row]:
    """Registers the row of overloads of a namespace."""

    def register(row: Row) -> Row:
        for name in names:
            full = f"{namespace}.{name}"
            if full in _rows:
                raise ValueError(f"{full} has two rows")
            _rows[full] = row
        return row

    return register


def rows() -> Mapping[str, Row]:
    """All rows, by namespace and name of the overload: "aten.add.Tensor"."""
    for family in _FAMILIES:
        import_module(f"opweld.frontend.torch.{family}")
    return _rows
