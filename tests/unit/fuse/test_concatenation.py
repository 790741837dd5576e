from __future__ import annotations

from opweld.fuse.concatenation import concatenation_of, is_joined
from opweld.tensor.dim import ZERO, Axis, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import at_least_zero, load, select
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor


def tensor(body: str) -> Tensor:
    program = parse_program(
        f"program p\ninput a f32[2, 3]\ninput b f32[2, 4]\ninput c f32[2, 9]\n"
        f"tensor t f32[i0: 2, i1: 9]\n  = {body}\noutput y = t\n"
    )
    found = program.items[0]
    assert isinstance(found, Tensor)
    return found


def test_nested_selects_are_parts_in_order() -> None:
    upper = "select(ge(index(i1 - 7), 0:i64), c[i0, i1 - 7], b[i0, i1 - 3])"
    found = concatenation_of(tensor(f"select(ge(index(i1 - 3), 0:i64), {upper}, a[i0, i1])"))
    assert found is not None
    assert found.axis == 1
    assert [(p.source, int(p.start), int(p.end)) for p in found.parts] == [("a", 0, 3), ("b", 3, 7), ("c", 7, 9)]
    assert [part.whole for part in found.parts] == [True, True, True]


def test_the_other_way_round() -> None:
    found = concatenation_of(tensor("select(ge(index(2 - i1), 0:i64), a[i0, i1], c[i0, i1 - 3])"))
    assert found is not None
    assert [(p.source, int(p.start), int(p.end)) for p in found.parts] == [("a", 0, 3), ("c", 3, 9)]


def test_a_shifted_part_is_not_whole() -> None:
    found = concatenation_of(tensor("select(ge(index(i1 - 3), 0:i64), c[i0, i1], a[i0, i1])"))
    assert found is not None
    assert [part.whole for part in found.parts] == [True, False]


def test_arithmetic_is_no_concatenation() -> None:
    assert concatenation_of(tensor("select(ge(index(i1 - 3), 0:i64), neg(c[i0, i1]), c[i0, i1])")) is None
    assert concatenation_of(tensor("select(ge(c[i0, i1], 0.0), c[i0, i1], 0.0)")) is None
    assert concatenation_of(tensor("c[i0, i1]")) is None


def test_parts_that_are_computed_are_joined_all_the_same() -> None:
    assert is_joined(tensor("select(ge(index(i1 - 3), 0:i64), neg(c[i0, i1]), c[i0, i1])"))
    inner = "select(ge(c[i0, i1], 0.0), c[i0, i1], 0.0)"
    assert is_joined(tensor(f"select(ge(index(i1 - 3), 0:i64), {inner}, 0.0)"))


def test_a_mask_or_a_choice_by_value_joins_nothing() -> None:
    assert not is_joined(tensor("select(ge(index(i0 - i1), 0:i64), c[i0, i1], 0.0)"))
    assert not is_joined(tensor("select(ge(c[i0, i1], 0.0), c[i0, i1], 0.0)"))
    assert not is_joined(tensor("select(ge(index(i1 - 3), 0:i64), 1.0, 0.0)"))


def test_a_thousand_parts_need_no_recursion() -> None:
    axis, parts = Axis("i0", as_dim(3000)), 3000
    body = load("x2999", DType.F32, (ZERO,))
    for part in reversed(range(parts - 1)):
        body = select(at_least_zero(part - axis.dim), load(f"x{part}", DType.F32, (ZERO,)), body)
    found = concatenation_of(Tensor("t", DType.F32, (axis,), body))
    assert found is not None
    assert [int(part.start) for part in found.parts] == list(range(parts))
