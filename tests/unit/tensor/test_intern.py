"""Equal objects are one object in a compilation, and of no concern to any other."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import threading
from concurrent.futures import ThreadPoolExecutor

import opweld
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, Symbol, as_dim, floordiv, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, const, index, load, unary
from opweld.tensor.intern import compilation


def some(width: int = 3) -> tuple[Dim, Expr]:
    """A size and an expression in which every kind of object takes part."""
    n, m = Symbol("n").dim, Symbol("m").dim
    size = minimum(floordiv(n * width + m, 7), mod(m, n)) + 12345
    x = load("x", DType.F32, (size,), (n - 5,))
    return size, binary("add", unary("exp", x), const(2.5, DType.F32))


def test_equal_objects_are_one_object_in_a_compilation() -> None:
    with compilation():
        assert all(a is b for a, b in zip(some(), some(), strict=True))
        assert as_dim(1) is ONE and as_dim(0) is ZERO and Symbol("n").dim - Symbol("n").dim is ZERO
        inside = some()
    assert all(a is not b for a, b in zip(inside, some(), strict=True))
    assert all(a is b for a, b in zip(some(), some(), strict=True))
    with compilation():
        assert all(a is not b for a, b in zip(inside, some(), strict=True))


def test_what_is_said_of_an_object_stays_right_when_it_outlives_its_compilation() -> None:
    with compilation():
        size, body = some()
    assert repr(size + 1) == repr(some()[0] + 1)
    assert {atom.text for atom in body.atoms} == {atom.text for atom in some()[1].atoms}


def test_threads_that_share_tables_agree_on_every_object() -> None:
    count = 8
    together = threading.Barrier(count)

    def build(_: int) -> list[object]:
        together.wait()
        return [part for width in range(200, 400) for part in some(width)]

    with ThreadPoolExecutor(count) as pool:
        first, *others = pool.map(build, range(count))
    assert all(a is b for other in others for a, b in zip(first, other, strict=True))


def test_a_compilation_leaves_nothing_behind() -> None:
    def live() -> int:
        gc.collect()
        return sum(issubclass(type(found), Dim | Atom | Expr) for found in gc.get_objects())

    def work() -> None:
        with compilation():
            body = some()[1]
            for step in range(300):
                body = binary("mul", body, index(Axis("i", step).dim) if body.dtype is DType.I64 else body)
                some(step)

    work()
    before = live()
    for _ in range(3):
        work()
    assert live() <= before


def test_no_module_keeps_an_object_that_other_tables_do_not_have() -> None:
    kept: list[str] = []
    for module in pkgutil.walk_packages(opweld.__path__, "opweld."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            inside = value if isinstance(value, tuple | list | set | frozenset) else (value,)
            if any(isinstance(v, Dim | Symbol | Axis | Expr) and v is not ZERO and v is not ONE for v in inside):
                kept.append(f"{module.name}.{name}")
    assert kept == []
