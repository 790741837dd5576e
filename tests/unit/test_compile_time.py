"""That the stages take as much work a node for a model of any size, counted in calls rather than in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.compile_time import EnoughError, Measured, compiled, measure, table
from benchmarks.sized_models import SHAPES
from opweld.tensor.dtype import DType
from opweld.tensor.program import Constant
from tests.counted import calls

UNUSED = 300
"""Constants that nothing reads, as most of a large model's are of no concern to one of its kernels."""


def calls_by_stage(shape: str, nodes: int, until: str = "simplify", unused: int = 0) -> dict[str, int]:
    """Calls of each stage up to the last one, which is named. From fusion on the program has so many `unused`
    constants more."""
    model = SHAPES[shape](nodes)
    found: dict[str, int] = {}

    def counted(name: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if name == "fuse":
            program, *rest = args
            args = (replace(program, constants=(*program.constants, *map(_constant, range(unused)))), *rest)
        found[name], made = calls(lambda: run(*args, **kwargs))
        if name == until:
            raise EnoughError
        return made

    with pytest.raises(EnoughError):
        compiled(model, "all", counted)
    return found


def _constant(number: int) -> Constant:
    return Constant(f"unused{number}", DType.F32, (4,), lambda: np.zeros(4, np.float32))


@pytest.mark.parametrize("shape", SHAPES)
def test_work_a_node_does_not_grow_with_the_model(shape: str) -> None:
    calls_by_stage(shape, 100)  # what is done once, such as reading the definitions of operators
    small, big = ({name: count / nodes for name, count in calls_by_stage(shape, nodes).items()} for nodes in (200, 800))
    assert {name: big[name] / small[name] for name in small if big[name] > 1.15 * small[name] + 5} == {}


@pytest.mark.parametrize(("shape", "few", "many"), [("mlp", 12, 36), ("chain", 32, 96)])
def test_a_kernel_takes_no_work_for_what_it_does_not_read(shape: str, few: int, many: int) -> None:
    """What passes over all values of a model does so once, not for each kernel: too little of a small model's work to
    be seen, and most of a large one's."""
    calls_by_stage(shape, many, "realise")  # what is done once
    more: list[dict[str, int]] = []
    for nodes in (few, many):
        bare, full = (calls_by_stage(shape, nodes, "realise", unused) for unused in (0, UNUSED))
        more.append({name: full[name] - count for name, count in bare.items()})
    small, big = more
    assert {name: big[name] / UNUSED for name in small if big[name] > small[name] + UNUSED} == {}
    assert small["place"] > UNUSED  # they were there


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
