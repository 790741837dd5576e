"""Intern tables, which make equal sizes and expressions one object: a set of tables for each compilation.

Objects created inside of `compilation()` are in its tables only. Two compilations in two threads never share objects,
and the memory of a compilation is freed with its last object. Outside of any, as in tests and at a prompt, the process
has permanent tables. Objects of different tables must not be mixed, because equal ones are not identical; only objects
registered by `everywhere` are in all tables. A thread that works for a compilation of another thread must run in its
context (`contextvars.copy_context().run`).

Tables grow by `setdefault`, which is atomic: threads that share them agree on which of two equal objects was first.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opweld.collector import collected_seldom

if TYPE_CHECKING:
    from opweld.tensor.atoms import Atom, Axis
    from opweld.tensor.expr import Expr
    from opweld.tensor.polynomial import Dim, Monomial

_numbers: dict[int, Dim] = {}


class Tables:
    """What one compilation has made, by content: polynomials (by terms in any order they came in), integers, atoms,
    expressions, axes for comparison, the simpler form of expressions, and the text of kernels.

    `count` numbers atoms, from zero in every compilation, so that names and orders that depend on it are
    deterministic."""

    __slots__ = ("atoms", "axes", "count", "dims", "integers", "nodes", "simplified", "texts")

    def __init__(self) -> None:
        self.integers: dict[int, Dim] = dict(_numbers)
        self.dims: dict[tuple[tuple[Monomial, int], ...], Dim] = {dim.terms: dim for dim in _numbers.values()}
        self.atoms: dict[tuple[object, ...], Atom] = {}
        self.nodes: dict[tuple[object, ...], Expr] = {}
        self.axes: dict[tuple[str, int, Dim], Axis] = {}
        self.simplified: dict[Expr, Expr] = {}
        self.texts: dict[tuple[int, str], str] = {}
        self.count = itertools.count()


current: ContextVar[Tables] = ContextVar("current", default=Tables())  # noqa: B039 - one for the process, on purpose
"""The tables in use."""


@contextlib.contextmanager
def compilation() -> Generator[None]:
    """New tables for everything inside, with fewer runs of the garbage collector."""
    token = current.set(Tables())
    try:
        with collected_seldom():
            yield
    finally:
        current.reset(token)


def everywhere(number: int, dim: Dim) -> Dim:
    """Puts the polynomial of an integer into the process's tables and into all tables created later."""
    return _numbers.setdefault(number, dim)
