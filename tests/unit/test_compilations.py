"""Compilations beside each other and one after the other."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks import compile_time
from benchmarks.sized_models import SHAPES
from opweld.stages import plain
from opweld.tensor.dim import Atom, Dim
from opweld.tensor.expr import Expr
from opweld.tensor.intern import compilation


def sources(model: Any) -> Any:
    """The C text of a model, made in tables of its own."""
    with compilation():
        return compile_time.compiled(model, "all", plain)


@pytest.mark.parametrize(("a", "b"), [("transformer", "transformer"), ("transformer", "mlp"), ("chain", "mlp")])
def test_two_threads_compile_what_each_compiles_alone(a: str, b: str) -> None:
    models = [SHAPES[a](90), SHAPES[b](60)]
    alone = [sources(model) for model in models]
    together = threading.Barrier(2)

    def compiled(model: Any) -> Any:
        together.wait()
        return sources(model)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(compiled, models)) == alone


def test_memory_of_compilations_in_a_row_is_flat() -> None:
    models = [SHAPES[shape](30) for shape in SHAPES]
    counts: list[int] = []
    for _ in range(4):
        for model in models:
            assert sources(model)
        gc.collect()
        counts.append(sum(issubclass(type(found), Dim | Atom | Expr) for found in gc.get_objects()))
    assert counts[0] == counts[-1] == max(counts)
