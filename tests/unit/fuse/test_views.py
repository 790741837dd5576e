from __future__ import annotations

from opweld.fuse.use_def import MOST_TERMS, UseDef
from opweld.fuse.views import fold_views, prepared
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


def folded(text: str, level: str = "all", ledger: Ledger | None = None) -> UseDef:
    program = prepared(parse_program(text))
    graph = UseDef(program, expected_sizes(program), TARGET, Ledger(level=level) if ledger is None else ledger)
    fold_views(graph)
    return graph


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
    graph = folded(
        "program p\ninput x f32[4, 6]\ntensor a f32[i0: 6, i1: 4]\n  = x[i1, i0]\n"
        "tensor b f32[i0: 6, i1: 4]\n  = neg(a[i0, i1])\noutput first = a\noutput second = b\n"
    )
    assert list(graph.items) == ["a", "b"]
    assert graph.inputs(graph.items["b"]) == ("x",)


def test_run_time_indices_are_checked_by_an_only_reader() -> None:
    ledger = Ledger()
    assert "rows" not in folded(GATHER, ledger=ledger).items
    (decision,) = ledger
    assert "rows" in folded(GATHER, ledger=Ledger(pins={decision.id: "copy"})).items


def test_level_none_computes_views_of_other_nodes() -> None:
    assert list(folded(transposed(1), level="none").items) == ["r0", "t0", "y"]


def test_index_arithmetic_has_a_limit() -> None:
    ledger = Ledger()
    graph = folded(transposed(40), ledger=ledger)
    copies = [decision for decision in ledger if decision.taken == "copy"]
    assert len(graph.items) == len(copies) + 1
    assert 2 <= len(copies) <= 20
    assert all(decision.failed["most"] == MOST_TERMS for decision in copies)
    assert len(print_program(graph.program())) < 200_000


def test_axes_of_one_element_are_index_zero() -> None:
    program = prepared(
        parse_program("program p\ninput x f32[1, 6]\ntensor a f32[i0: 1, i1: 6]\n  = neg(x[i0, i1])\noutput y = a\n")
    )
    assert "x[0, i1]" in print_program(program)


PADDED = """program padded
input x f32[1, 4, 6, 6]
constant w f32[4, 3, 3]
tensor a f32[i0: 1, i1: 4, i2: 6, i3: 6]
  = max(x[i0, i1, i2, i3], 0.0)
tensor p f32[i0: 1, i1: 4, i2: 8, i3: 8] from "Pad"
  = a[0, i1, i2 - 1, i3 - 1 if i2 - 1 >= 0, -i2 + 6 >= 0, i3 - 1 >= 0, -i3 + 6 >= 0 else FILL]
tensor y f32[i0: 1, i1: 4, i2: 6, i3: 6] from "Conv"
  over r0: 3, r1: 3
  %0 = mul(p[0, i1, i2 + r0, i3 + r1GUARD], w[i1, r0, r1])
  = sum<r0, r1>(%0)
output y = y
"""


def test_a_constant_around_a_value_is_the_edge_of_what_slides_over_it() -> None:
    def edges(fill: str, guard: str = "", text: str = PADDED) -> bool:
        return "p" not in folded(text.replace("FILL", fill).replace("GUARD", guard)).items

    assert edges("0.0")
    assert edges("-1.0")
    assert edges("0.0", " if i2 + r0 - 1 >= 0 else 0.0")
    assert not edges("1.0", " if i2 + r0 - 1 >= 0 else 0.0"), "two constants"
    read = "tensor z f32[i0: 1, i1: 4, i2: 8, i3: 8]\n  = exp(p[i0, i1, i2, i3])\noutput y = y\noutput z = z"
    assert not edges("0.0", text=PADDED.replace("output y = y", read))
