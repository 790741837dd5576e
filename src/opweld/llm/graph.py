"""The graph of a decoder: what one step computes of some tokens of several sequences.

Inputs, T tokens of all sequences of a step one after the other:

    tokens int64 [T]                   their ids
    places int64 [T, 2]                where their keys and values go: a block of the pool, and a place in it
    cosines.R, sines.R float32 [T, pairs]    angles of rotary embedding R (`Config.different_ropes`), at their positions
    positions int64 [T]                only where positions are embedded
    work, tables, owners, parts        what attention computes, see `tensor/paged.py`
    wanted int64 [L]                   the tokens of which logits are wanted
    keys.N, values.N                   the pool of layer N, a state

Outputs: logits [L, vocabulary], and the states.
"""

from __future__ import annotations

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.llm.config import Config
from opweld.llm.graph_builder import GraphBuilder, graph_input, pool_inputs, step_inputs
from opweld.llm.weights import Weights
from opweld.tensor.dtype import DType


def decoder_graph(
    config: Config,
    weights: Weights,
    block: int,
    pool: DType = DType.F32,
    joined: bool = False,
    rounded: bool = False,
    paired: bool = False,
) -> ir.Graph:
    """The graph of a decoder with blocks of so many tokens, whose keys and values are kept as `pool`. joined: whether
    queries, keys and values are computed by one product, for which integers in blocks are decoded. rounded: see
    `GraphBuilder`. paired: whether keys and values lie in pairs of bfloat16, see `tensor/paged.py`.

    Raises ModelError naming a weight that is missing or of another shape."""
    return _Builder(config, weights, block, pool, joined, rounded, paired).built()


class _Builder(GraphBuilder):
    def __init__(
        self, config: Config, weights: Weights, block: int, pool: DType, joined: bool, rounded: bool, paired: bool
    ) -> None:
        super().__init__(config.architecture, weights, rounded)
        self._config, self._block, self._pool, self._joined, self._paired = config, block, pool, joined, paired

    def built(self) -> ir.Graph:
        config = self._config
        ropes = config.different_ropes
        fed = step_inputs() | {"wanted": graph_input("wanted", DType.I64, "L")}
        if "positions" in self._weights:
            fed["positions"] = graph_input("positions", DType.I64, "T")
        for number, rope in enumerate(ropes):
            for name in (f"cosines.{number}", f"sines.{number}"):
                fed[name] = graph_input(name, DType.F32, "T", len(rope.frequencies))
        self._fed = fed
        shape = (config.kv_heads, config.head_size, self._block)
        pools = [pool_inputs(*shape, self._pool, f".{n}", self._paired) for n in range(config.layers)]
        self._where = "embedding"
        tied = "head" not in self._weights
        hidden = self._gathered("embedding", fed["tokens"], (config.vocabulary, config.hidden), tied)
        if config.embedding_scale != 1:
            hidden = self._scaled(hidden, config.embedding_scale)
        if "positions" in fed:
            hidden = self._node("Add", hidden, self._gathered("positions", fed["positions"], None))
        after: list[ir.Value] = []
        for number, pool in enumerate(pools):
            hidden, *own = self._layer(number, hidden, *pool)
            after += own
        self._where = "head"
        hidden = self._node("Gather", hidden, fed["wanted"], axis=0)
        hidden = self._norm("norm", hidden)
        head = "embedding" if tied else "head"
        logits = self._linear(head, hidden, config.vocabulary)
        if config.logit_cap is not None:
            logits = self._capped(logits, config.logit_cap)
        logits.name = "logits"
        inputs = [*fed.values(), *(value for pool in pools for value in pool)]
        return ir.Graph(inputs, [logits, *after], self._nodes, self._stored.values(), config.architecture)

    # ------------------------------------------------------------------------------------------------------- a layer

    def _layer(
        self, number: int, hidden: ir.Value, keys: ir.Value, values: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        name = f"layers.{number}"
        self._where = f"{name}.attention"
        mixed, *after = self._attention(number, self._norm(f"{name}.attention_norm", hidden), keys, values)
        if f"{name}.post_attention_norm" in self._weights:
            mixed = self._norm(f"{name}.post_attention_norm", mixed)
        hidden = self._node("Add", hidden, mixed)
        self._where = f"{name}.feed"
        given = self._norm(f"{name}.feed_norm", hidden)
        fed = self._experts(name, given) if f"{name}.router" in self._weights else self._dense(name, given)
        if f"{name}.post_feed_norm" in self._weights:
            fed = self._norm(f"{name}.post_feed_norm", fed)
        return self._node("Add", hidden, fed), after[0], after[1]

    def _dense(self, name: str, given: ir.Value) -> ir.Value:
        """A feed-forward layer."""
        activation = self._config.activation
        if self._config.gated:
            gate = self._activation(activation, self._linear(f"{name}.gate", given))
            inner = self._node("Mul", gate, self._linear(f"{name}.up", given))
        else:
            inner = self._activation(activation, self._linear(f"{name}.up", given))
        return self._linear(f"{name}.down", inner, self._config.hidden)

    def _experts(self, name: str, given: ir.Value) -> ir.Value:
        """Each token by the experts that it chose, and no others; see `tensor/experts.py`."""
        experts = self._config.experts
        if experts is None:
            raise ModelError(f"{name} has a router, and the configuration no experts")
        shares = self._node("Softmax", self._linear(f"{name}.router", given, experts.count), axis=-1)
        chosen = ir.Value(f"{self._where}.chosen.{len(self._nodes)}")
        largest = self._node("TopK", shares, self._array([experts.chosen]), more=(chosen,), axis=-1)
        if experts.normalized:
            largest = self._node("Div", largest, self._node("ReduceSum", largest, self._array([-1]), keepdims=1))
        pairs = self._grouped(chosen, experts.count)
        activation, names = self._config.activation, [f"{name}.experts.{n}" for n in range(experts.count)]
        inner = self._by_experts([f"{one}.up" for one in names], given, pairs)
        if self._config.gated:
            gate = self._activation(activation, self._by_experts([f"{one}.gate" for one in names], given, pairs))
            inner = self._node("Mul", gate, inner)
        else:
            inner = self._activation(activation, inner)
        made = self._by_experts([f"{one}.down" for one in names], inner, pairs)
        apart = self._node("Reshape", made, self._array([-1, experts.chosen, self._config.hidden]))
        weights = self._node("Reshape", largest, self._array([-1, experts.chosen, 1]))
        total = self._node("ReduceSum", self._node("Mul", apart, weights), self._array([1]), keepdims=0)
        if f"{name}.shared_router" in self._weights:
            gate = self._node("Sigmoid", self._linear(f"{name}.shared_router", given, 1))
            total = self._node("Add", total, self._node("Mul", gate, self._dense(f"{name}.shared", given)))
        return total

    def _attention(
        self, number: int, given: ir.Value, keys: ir.Value, values: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        config, name, fed = self._config, f"layers.{number}", self._fed
        size = config.head_size
        names = [f"{name}.{part}" for part in ("query", "key", "value")]
        rows = [heads * size for heads in (config.heads, config.kv_heads, config.kv_heads)]
        if self._joined:
            queries, new_keys, new_values = self._linears(names, given, rows)
        else:
            queries, new_keys, new_values = (self._linear(*own) for own in zip(names, [given] * 3, rows, strict=True))
        queries = self._head_norm(f"{name}.query_norm", queries, config.heads)
        new_keys = self._head_norm(f"{name}.key_norm", new_keys, config.kv_heads)
        rope = config.ropes[number]
        if rope is None:
            queries = self._scaled(queries, config.scale)
        else:
            own = config.different_ropes.index(rope)
            angles = (fed[f"cosines.{own}"], fed[f"sines.{own}"])
            turned = {"size": size, "interleaved": int(rope.interleaved)}
            queries = self._decoder("Rotary", queries, *angles, **turned, scale=config.scale)
            new_keys = self._decoder("Rotary", new_keys, *angles, **turned)
        mixed, (keys, values) = self._attended(
            (keys, values),
            *(queries, new_keys, new_values, fed),
            size=size,
            window=config.windows[number] or 0,
            cap=config.score_cap or 0.0,
        )
        keys.name, values.name = f"keys_after.{number}", f"values_after.{number}"
        return self._linear(f"{name}.output", mixed, config.hidden), keys, values

    def _head_norm(self, name: str, x: ir.Value, heads: int) -> ir.Value:
        if name not in self._weights:
            return x
        size = self._config.head_size
        apart = self._node("Reshape", x, self._array([-1, heads, size]))
        return self._node("Reshape", self._norm(name, apart), self._array([-1, heads * size]))

    # ------------------------------------------------------------------------------------------------------ its parts

    def _norm(self, name: str, x: ir.Value) -> ir.Value:
        config = self._config
        if config.norm == "layer":
            return self._layer_norm(name, x, config.epsilon, config.norm_offset)
        weight = self._value(name, self._floats(name) + np.float32(config.norm_offset))
        return self._node("RMSNormalization", x, weight, axis=-1, epsilon=config.epsilon)

    def _capped(self, x: ir.Value, cap: float) -> ir.Value:
        inner = self._node("Tanh", self._node("Div", x, self._array(np.float32(cap))))
        return self._node("Mul", inner, self._array(np.float32(cap)))
