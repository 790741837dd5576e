"""What graphs of language models are built of: nodes, and weights as initializers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.llm.panels import Panels, has_panels, in_panels
from opweld.llm.stack import narrow, stack
from opweld.llm.weights import Blocked, Weight, Weights
from opweld.ops.decoder.domain import DOMAIN
from opweld.tensor.dtype import DType
from opweld.tensor.experts import COLUMNS
from opweld.tensor.paged import WORK, padded_size
from opweld.tensor.rounded import CALL, PANEL

_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "silu": ("Swish", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
}


Pool: TypeAlias = tuple[ir.Value, ir.Value]
"""Keys, and values."""
Pairs: TypeAlias = tuple[ir.Value, ir.Value]
"""Their order, and where those of each expert begin."""
Fed: TypeAlias = Mapping[str, ir.Value]
"""Inputs by name."""


class GraphBuilder:
    """A graph under construction: nodes in the order in which they compute, and each weight once.

    `_where` is the part of the model that the next nodes are of; it is in their names. rounded: whether what integers
    in blocks are multiplied by is rounded to 8 bits, see `tensor/rounded.py`."""

    def __init__(self, architecture: str, weights: Weights, rounded: bool = False) -> None:
        self._architecture, self._weights, self._rounds = architecture, weights, rounded
        self._rounded: dict[ir.Value, list[ir.Value]] = {}
        self._in_panels: dict[str, tuple[Panels, Sequence[ir.Value]]] = {}
        self._nodes: list[ir.Node] = []
        self._stored: dict[str, ir.Value] = {}
        self._where = ""

    # -------------------------------------------------------------------------------------------------------- layers

    def _attended(
        self, pool: Pool, queries: ir.Value, keys: ir.Value, values: ir.Value, fed: Fed, size: int, **attributes: Any
    ) -> tuple[ir.Value, Pool]:
        """What scaled queries find, and the pool with new keys and values appended; heads have `size` features."""
        after = (
            self._decoder("AppendKeys", pool[0], keys, fed["places"], size=size),
            self._decoder("AppendValues", pool[1], values, fed["places"], size=size),
        )
        work = (fed[name] for name in ("work", "tables", "owners", "parts"))
        return self._decoder("PagedAttention", queries, *after, *work, **attributes), after

    def _linear(self, name: str, x: ir.Value, rows: int | None = None) -> ir.Value:
        weight = self._read(name)
        if rows is not None and weight.shape[0] != rows:
            raise ModelError(f"weight {name} has the shape {list(weight.shape)}, expected {rows} rows")
        if isinstance(weight, Blocked) and self._rounds and has_panels(weight):
            found = self._by_rounded(name, x, weight)
        elif isinstance(weight, Blocked):
            found = self._decoder("BlockedMatMul", x, *self._blocked(name, weight))
        else:
            # [in, out], as MatMul has it: a view, which is packed when the model is compiled.
            turned = self._value(f"{name}.turned", np.asarray(weight, np.float32).T)
            found = self._node("MatMul", x, turned)
        if f"{name}.bias" in self._weights:
            found = self._node("Add", found, self._value(f"{name}.bias", self._floats(f"{name}.bias")))
        return found

    def _by_rounded(self, name: str, x: ir.Value, weight: Blocked) -> ir.Value:
        """Rows of x, rounded once for all who multiply them, by a matrix."""
        if x not in self._rounded:
            more = [ir.Value(f"{self._where}.rounded.{len(self._nodes)}.{part}") for part in ("steps", "totals")]
            self._rounded[x] = [self._decoder("RoundRows", x, more=more), *more]
        panels = -(-weight.shape[0] // PANEL)
        calls = [(panel, min(CALL, panels - panel)) for panel in range(0, panels, CALL)]
        items = self._value(f"panels.{panels}", np.array(calls, np.int64))
        made, matrix = self._by_panels(name, weight)
        attributes = {"bits": made.bits, "zero": made.zero, "blocks": made.blocks, "out": weight.shape[0]}
        return self._decoder("RoundedMatMul", items, *self._rounded[x], *matrix, **attributes)

    def _by_panels(self, name: str, weight: Blocked) -> tuple[Panels, Sequence[ir.Value]]:
        """A matrix as products of rounded rows read it."""
        if name not in self._in_panels:
            made = in_panels(weight)
            parts = [self._value(f"{name}.by_panels.{kind}", part) for kind, part in made.parts.items()]
            self._in_panels[name] = made, parts
        return self._in_panels[name]

    def _linears(self, names: Sequence[str], x: ir.Value, rows: Sequence[int]) -> list[ir.Value]:
        """Several linear layers of one x as one product, whose results are parts of its own: where a product takes as
        long as it takes to begin one."""
        read = [self._read(name) for name in names]
        for name, weight, count in zip(names, read, rows, strict=True):
            if weight.shape[0] != count:
                raise ModelError(f"weight {name} has the shape {list(weight.shape)}, expected {count} rows")
        values = [one.values() if isinstance(one, Blocked) else np.asarray(one, np.float32) for one in read]
        found = self._node("MatMul", x, self._value(f"{names[0]}.joined", np.concatenate(values).T))
        if any(f"{name}.bias" in self._weights for name in names):
            biases = [
                self._floats(f"{name}.bias") if f"{name}.bias" in self._weights else np.zeros(count, np.float32)
                for name, count in zip(names, rows, strict=True)
            ]
            found = self._node("Add", found, self._value(f"{names[0]}.joined.bias", np.concatenate(biases)))
        others = [ir.Value(f"{self._where}.part.{len(self._nodes)}.{n}") for n in range(1, len(rows))]
        return [self._node("Split", found, self._array(list(rows)), more=others, axis=1), *others]

    def _grouped(self, chosen: ir.Value, experts: int) -> Pairs:
        """Pairs of tokens [tokens, k] and the experts that they chose, by their expert."""
        starts = ir.Value(f"{self._where}.starts.{len(self._nodes)}")
        return self._decoder("GroupPairs", chosen, more=(starts,), experts=experts), starts

    def _by_experts(self, names: Sequence[str], x: ir.Value, pairs: Pairs) -> ir.Value:
        """Rows of x, one for each token or for each pair, by the matrices of the pairs' experts."""
        if biased := next((name for name in names if f"{name}.bias" in self._weights), None):
            raise UnsupportedError(f"{self._architecture}: {biased} has a bias, as experts have none here")
        stacked = stack([self._read(name) for name in names])
        calls = [
            (e, c, min(COLUMNS, stacked.rows - c)) for c in range(0, stacked.rows, COLUMNS) for e in range(len(names))
        ]
        items = self._value(f"items.{len(names)}.{stacked.rows}", np.array(calls, np.int64))
        parts = [self._value(f"{names[0]}.{part}", array) for part, array in stacked.parts.items()]
        return self._decoder("ExpertMatMul", x, items, *pairs, *parts, bits=stacked.bits)

    def _gathered(self, name: str, rows: ir.Value, shape: tuple[int, int] | None, multiplied: bool = False) -> ir.Value:
        """Rows of a matrix; multiplied: whether there is a product by it, too, as of a tied embedding."""
        weight = self._read(name)
        if shape is not None and tuple(weight.shape) != shape:
            raise ModelError(f"weight {name} has the shape {list(weight.shape)}, expected {list(shape)}")
        if isinstance(weight, Blocked) and multiplied and self._rounds and has_panels(weight):
            made, (codes, *_) = self._by_panels(name, weight)
            numbers = {"scales": weight.scales, "minimums": weight.minimums}
            own = [self._value(f"{name}.{kind}", part) for kind, part in numbers.items() if part is not None]
            return self._decoder("RoundedGather", rows, codes, *own, bits=made.bits, added=made.added)
        if isinstance(weight, Blocked):
            return self._decoder("BlockedGather", rows, *self._blocked(name, weight))
        return self._node("Gather", self._value(name, np.asarray(weight, np.float32)), rows, axis=0)

    def _scaled(self, x: ir.Value, scale: float) -> ir.Value:
        return x if scale == 1 else self._node("Mul", x, self._array(np.float32(scale)))

    def _layer_norm(self, name: str, x: ir.Value, epsilon: float, offset: float = 0.0) -> ir.Value:
        """With a mean, and with a bias where there is one; offset: added to the weight."""
        operands = [self._value(name, self._floats(name) + np.float32(offset))]
        if f"{name}.bias" in self._weights:
            operands.append(self._value(f"{name}.bias", self._floats(f"{name}.bias")))
        return self._node("LayerNormalization", x, *operands, axis=-1, epsilon=epsilon)

    def _activation(self, kind: str, x: ir.Value) -> ir.Value:
        operator, attributes = _ACTIVATIONS[kind]
        return self._node(operator, x, **attributes)

    # ---------------------------------------------------------------------------------------------- nodes and weights

    def _node(
        self, operator: str, *inputs: ir.Value, domain: str = "", more: Sequence[ir.Value] = (), **attributes: Any
    ) -> ir.Value:
        """The first output of a new node; `more`: the others."""
        made = ir.Value(f"{self._where}.{operator}.{len(self._nodes)}")
        self._nodes.append(ir.Node(operator, inputs, [made, *more], attributes, domain=domain, name=made.name))
        return made

    def _decoder(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        return self._node(operator, *inputs, domain=DOMAIN, **attributes)

    def _read(self, name: str) -> Weight:
        read = self._weights.get(name)
        if read is None:
            raise ModelError(f"{self._architecture}: the model has no weight {name}")
        return read()

    def _floats(self, name: str) -> np.ndarray[Any, Any]:
        weight = self._read(name)
        return weight.values() if isinstance(weight, Blocked) else np.asarray(weight, np.float32)

    def _blocked(self, name: str, weight: Blocked) -> Sequence[ir.Value]:
        """Codes, scales and minimums, float16 where these numbers are, as most formats have them."""
        codes = weight.codes.astype(ml_dtypes.uint4) if _is_uint4(weight) else weight.codes
        parts = {"codes": codes, "scales": narrow(weight.scales)}
        if weight.minimums is not None:
            parts["minimums"] = narrow(weight.minimums)
        return [self._value(f"{name}.{kind}", part) for kind, part in parts.items()]

    def _value(self, name: str, array: np.ndarray[Any, Any]) -> ir.Value:
        if name not in self._stored:
            stored = ir.Stored.of(array)
            self._stored[name] = ir.Value(name, stored.dtype, stored.shape, stored)
        return self._stored[name]

    def _array(self, value: Any) -> ir.Value:
        array = np.asarray(value, np.int64) if isinstance(value, list) else np.asarray(value)
        return self._value(f"{self._where}.constant.{len(self._nodes)}", array)


def step_inputs() -> dict[str, ir.Value]:
    """The inputs of every step of T tokens, which `llm/work.py` makes."""
    return {
        "tokens": graph_input("tokens", DType.I64, "T"),
        "places": graph_input("places", DType.I64, "T", 2),
        "work": graph_input("work", DType.I64, "W", WORK),
        "tables": graph_input("tables", DType.I64, "E"),
        "owners": graph_input("owners", DType.I64, "P"),
        "parts": graph_input("parts", DType.I64, "T", 2),
    }


def pool_inputs(
    heads: int, size: int, block: int, dtype: DType = DType.F32, end: str = "", paired: bool = False
) -> Pool:
    """Keys and values in blocks of so many tokens, in pairs or not; `end`: of their names."""
    if paired:
        return (
            graph_input(f"keys{end}", dtype, "blocks", heads, size // 2, block, 2),
            graph_input(f"values{end}", dtype, "blocks", heads, block // 2, padded_size(size), 2),
        )
    return (
        graph_input(f"keys{end}", dtype, "blocks", heads, size, block),
        graph_input(f"values{end}", dtype, "blocks", heads, block, padded_size(size)),
    )


def graph_input(name: str, dtype: DType, *shape: int | str) -> ir.Value:
    """An input of a graph."""
    return ir.Value(name, dtype, shape)


def _is_uint4(weight: Blocked) -> bool:
    return weight.bits == 4 and weight.codes.dtype == np.uint8
