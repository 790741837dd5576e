"""That the stages take as much work a node for a model of any size, counted in calls rather than in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.compile_time import EnoughError, Measured, compiled, measure, table
from benchmarks.sized_models import SHAPES
from tests.counted import calls

UNTIL = "simplify"
"""The last stage that is held to this."""


def calls_by_stage(shape: str, nodes: int) -> dict[str, float]:
    """Calls a node, of each stage up to `UNTIL`."""
    model = SHAPES[shape](nodes)
    found: dict[str, float] = {}

    def counted(name: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        count, made = calls(lambda: run(*args, **kwargs))
        found[name] = count / len(model.graph.node)
        if name == UNTIL:
            raise EnoughError
        return made

    with pytest.raises(EnoughError):
        compiled(model, "all", counted)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_work_a_node_does_not_grow_with_the_model(shape: str) -> None:
    calls_by_stage(shape, 100)  # what is done once, such as reading the definitions of operators
    small, big = calls_by_stage(shape, 200), calls_by_stage(shape, 800)
    assert {name: big[name] / small[name] for name in small if big[name] > 1.15 * small[name] + 5} == {}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_stage_is_measured(shape: str) -> None:
    records: list[dict[str, Any]] = []
    measure(shape, 40, "all", "render", records.append)
    first, *after = records
    assert first["nodes"] >= 40
    names = [record["stage"] for record in after]
    assert names[:3] == ["load", "rewrite", "explore"] and names[-1] == "render"
    assert all(record["seconds"] >= 0 and record["kilobytes"] >= first["kilobytes"] for record in after)


def test_the_table_says_what_was_too_slow_and_what_did_not_end() -> None:
    results = [
        Measured("chain", 500, {"load": 1.0}, {"load": 3000}, 1000),
        Measured("chain", 1000, {"load": 5.0}, {"load": 3000}, 1000),
        Measured("mlp", 500, {}, failed="more than 1 s"),
    ]
    lines = table(results).splitlines()
    assert lines[1].split() == ["chain", "500", "2.000", "2.000", "4.0"]
    assert lines[2].endswith("too slow") and lines[3].endswith("more than 1 s")
