from __future__ import annotations

from opweld.fuse.views import fold_views, prepared
from opweld.fuse.web import MOST_TERMS, Web
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.parse import parse_program
from opweld.tensor.text import print_program

TARGET = Target.of("x86-64-v4")

GATHER = """program gather
input x f32[5, 6]
input which i64[4]
tensor rows f32[i0: 4, i1: 6] from "Gather"
  = x[at(which[i0], 5), i1]
tensor y f32[i0: 4, i1: 6] from "Neg"
  = neg(rows[i0, i1])
output y = y
"""


def folded(text: str, level: str = "all", ledger: Ledger | None = None) -> Web:
    program = prepared(parse_program(text))
    web = Web(program, expected_sizes(program), TARGET, Ledger(level=level) if ledger is None else ledger)
    fold_views(web)
    return web


def transposed(pairs: int) -> str:
    """Reshape to the other order of dims and Transpose back, again and again: the elements are shuffled."""
    lines = ["program shuffle", "symbol n >= 1 = dim 0 of x", "symbol m >= 1 = dim 1 of x", "input x f32[n, m]"]
    last = "x"
    for pair in range(pairs):
        flat = "(n*i0 + i1)"
        lines += [f'tensor r{pair} f32[i0: m, i1: n] from "Reshape"', f"  = {last}[({flat} // m), ({flat} % m)]"]
        lines += [f'tensor t{pair} f32[i0: n, i1: m] from "Transpose"', f"  = r{pair}[i1, i0]"]
        last = f"t{pair}"
    lines += ['tensor y f32[i0: n, i1: m] from "Neg"', f"  = neg({last}[i0, i1])", "output y = y"]
    return "\n".join(lines) + "\n"


def test_an_output_that_is_a_view_stays_and_its_users_look_through_it() -> None:
    web = folded(
        "program p\ninput x f32[4, 6]\ntensor a f32[i0: 6, i1: 4]\n  = x[i1, i0]\n"
        "tensor b f32[i0: 6, i1: 4]\n  = neg(a[i0, i1])\noutput first = a\noutput second = b\n"
    )
    assert list(web.items) == ["a", "b"]
    assert web.inputs(web.items["b"]) == ("x",)


def test_run_time_indices_are_checked_by_an_only_reader() -> None:
    ledger = Ledger()
    assert "rows" not in folded(GATHER, ledger=ledger).items
    (decision,) = ledger
    assert "rows" in folded(GATHER, ledger=Ledger(pins={decision.id: "copy"})).items


def test_level_none_computes_views_of_other_nodes() -> None:
    assert list(folded(transposed(1), level="none").items) == ["r0", "t0", "y"]


def test_index_arithmetic_has_a_limit() -> None:
    ledger = Ledger()
    web = folded(transposed(40), ledger=ledger)
    copies = [decision for decision in ledger if decision.taken == "copy"]
    assert len(web.items) == len(copies) + 1
    assert 2 <= len(copies) <= 20
    assert all(decision.failed["most"] == MOST_TERMS for decision in copies)
    assert len(print_program(web.program())) < 200_000


def test_axes_of_one_element_are_index_zero() -> None:
    program = prepared(
        parse_program("program p\ninput x f32[1, 6]\ntensor a f32[i0: 1, i1: 6]\n  = neg(x[i0, i1])\noutput y = a\n")
    )
    assert "x[0, i1]" in print_program(program)
