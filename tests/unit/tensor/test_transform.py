"""Rewriting expressions: each node once."""

from __future__ import annotations

from opweld.tensor.dim import Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, binary, const, index, load, select, substitute_loads

ROW, COLUMN = Axis("i", as_dim(4)).dim, Axis("j", as_dim(4)).dim


def read(tensor: str, *indices: Dim) -> Expr:
    return load(tensor, DType.F32, indices)


def test_what_a_choice_folds_to_is_not_rewritten_again() -> None:
    """Both loads become one, and the choice between them that one: it has one index then."""
    chosen = select(binary("ge", index(ROW), const(0, DType.I64)), read("x", ROW, COLUMN), read("x", ROW - 2, COLUMN))

    def flat(node: Load) -> Expr:
        assert len(node.indices) == 2
        return read(node.tensor, node.indices[1])

    assert substitute_loads(chosen, flat) is read("x", COLUMN)


def test_loads_change_places() -> None:
    names = {"x": "y", "y": "x"}
    both = binary("sub", read("x", ROW), read("y", ROW))
    swapped = substitute_loads(both, lambda node: load(names[node.tensor], node.dtype, node.indices))
    assert swapped is binary("sub", read("y", ROW), read("x", ROW))
