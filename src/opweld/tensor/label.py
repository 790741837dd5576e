"""Labels of values in the ids of decisions, derived from graph nodes, not from the order of lowering."""

from __future__ import annotations

from collections import Counter

from opweld.tensor.program import TensorProgram, item_outputs


def labels(program: TensorProgram) -> dict[str, str]:
    """A label for every computed value: its graph node and its number among that node's values.

    They do not change when a node is inserted elsewhere. Inputs keep their names; constants are numbered."""
    seen: Counter[str] = Counter()
    found: dict[str, str] = {}
    for position, constant in enumerate(program.constants):
        found[constant.name] = f"constant {position}"
    for item in program.items:
        node = item.origin[0] if item.origin and item.origin[0] else "value"
        for name in item_outputs(item):
            found[name] = f"{node} {seen[node]}"
            seen[node] += 1
    return found
