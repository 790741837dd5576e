"""The graph of an encoder: what one step computes of all tokens of several texts, one text after the other.

Inputs, T tokens:

    tokens, positions, types int64 [T]    ids, rows of the embedding of positions, and which text of a pair they are of
                                          (types only where the model embeds them)
    places, work, tables, owners, parts   what attention computes, see `tensor/paged.py`
    wanted int64 [L]                      the first token of each text; only where the others are not wanted
    keys, values                          a pool with room for all texts, whatever it holds

Outputs: `states` [T or L, hidden], or `scores` [L, 1] of a model with a head.

All layers write their keys and values into one pool, one after the other.
"""

from __future__ import annotations

from opweld import ir
from opweld.llm.encoder_config import EncoderConfig
from opweld.llm.graph_builder import GraphBuilder, graph_input, pool_inputs, step_inputs
from opweld.llm.weights import Weights
from opweld.tensor.dtype import DType


def encoder_graph(config: EncoderConfig, weights: Weights, block: int) -> ir.Graph:
    """The graph of an encoder whose pool has blocks of so many tokens.

    Raises ModelError naming a weight that is missing or of another shape."""
    return _Builder(config, weights, block).built()


class _Builder(GraphBuilder):
    def __init__(self, config: EncoderConfig, weights: Weights, block: int) -> None:
        super().__init__(config.architecture, weights)
        self._config, self._block = config, block

    def built(self) -> ir.Graph:
        config = self._config
        fed = step_inputs() | {"positions": graph_input("positions", DType.I64, "T")}
        self._pool = pool_inputs(config.heads, config.head_size, self._block)
        fed |= dict(zip(("keys", "values"), self._pool, strict=True))
        if config.types:
            fed["types"] = graph_input("types", DType.I64, "T")
        if not config.whole:
            fed["wanted"] = graph_input("wanted", DType.I64, "L")
        self._fed = fed
        self._where = "embedding"
        hidden = self._embedded()
        for number in range(config.layers):
            hidden = self._layer(f"layers.{number}", hidden)
        if not config.whole:
            self._where = "head"
            hidden = self._node("Gather", hidden, fed["wanted"], axis=0)
        if config.head is not None:
            hidden = self._scored(config.head.activation, hidden)
        hidden.name = "states" if config.head is None else "scores"
        return ir.Graph(fed.values(), [hidden], self._nodes, self._stored.values(), config.architecture)

    def _embedded(self) -> ir.Value:
        config, fed = self._config, self._fed
        hidden = self._gathered("embedding", fed["tokens"], (config.vocabulary, config.hidden))
        if config.types:
            types = self._gathered("types", fed["types"], (config.types, config.hidden))
            hidden = self._node("Add", hidden, types)
        positions = self._gathered("positions", fed["positions"], (config.rows, config.hidden))
        return self._norm("norm", self._node("Add", hidden, positions))

    def _layer(self, name: str, hidden: ir.Value) -> ir.Value:
        """Norms follow what is added, as in the first transformers."""
        self._where = f"{name}.attention"
        hidden = self._norm(f"{name}.attention_norm", self._node("Add", self._attention(name, hidden), hidden))
        self._where = f"{name}.feed"
        inner = self._activation(self._config.activation, self._linear(f"{name}.up", hidden, self._config.inner))
        fed = self._linear(f"{name}.down", inner, self._config.hidden)
        return self._norm(f"{name}.feed_norm", self._node("Add", fed, hidden))

    def _attention(self, name: str, given: ir.Value) -> ir.Value:
        config, fed = self._config, self._fed
        queries, new_keys, new_values = (
            self._linear(f"{name}.{part}", given, config.hidden) for part in ("query", "key", "value")
        )
        size = config.head_size
        scaled = self._scaled(queries, size**-0.5)
        mixed, self._pool = self._attended(self._pool, scaled, new_keys, new_values, fed, size, causal=0)
        return self._linear(f"{name}.output", mixed, config.hidden)

    def _scored(self, activation: str, first: ir.Value) -> ir.Value:
        inner = self._linear("head.inner", first, self._config.hidden)
        return self._linear("head.outer", self._activation(activation, inner), 1)

    def _norm(self, name: str, x: ir.Value) -> ir.Value:
        return self._layer_norm(name, x, self._config.epsilon)
