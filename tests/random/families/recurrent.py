"""LSTM, GRU and RNN in every direction, of one unit and of many."""

from __future__ import annotations

from typing import Any

from tests.random.families.registry import proposal
from tests.random.graph import F32, I64, Graph, Value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@proposal(2)
def recurrence(graph: Graph) -> Value:
    name = graph.choose(["LSTM", "LSTM", "GRU", "GRU", "RNN"])
    x = graph.pick(lambda v: v.dtype == F32 and v.rank == 3 and all(a.size for a in v.data))
    features = x.size(2)
    hidden = graph.choose([1, 2, 3, 5, 8, 9])
    direction = graph.choose(["forward", "reverse", "bidirectional"])
    directions = 2 if direction == "bidirectional" else 1
    gates = GATES[name]
    w = graph.constant(0.3 * graph.draw((directions, gates * hidden, features), F32), F32)
    r = graph.constant(0.3 * graph.draw((directions, gates * hidden, hidden), F32), F32)
    b = graph.constant(0.3 * graph.draw((directions, 2 * gates * hidden), F32), F32) if graph.chance(0.7) else None
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if name == "GRU":
        attributes["linear_before_reset"] = graph.between(0, 1)
    states: list[Value | None] = []
    if graph.chance(0.4) and x.static(1):
        states = [None]
        for _ in range(2 if name == "LSTM" else 1):
            states.append(graph.constant(graph.draw((directions, x.size(1), hidden), F32)))
    made = graph.several(name, x, w, r, b, *states, outputs=3 if name == "LSTM" else 2, **attributes)
    if graph.chance(0.3):
        return made[1]
    if directions == 1:
        return graph.node("Squeeze", made[0], graph.integers([1]))
    turned = graph.node("Transpose", made[0], perm=[0, 2, 1, 3])
    return graph.node("Reshape", turned, graph.constant([0, 0, -1], I64))
