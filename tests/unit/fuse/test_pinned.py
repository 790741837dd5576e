"""What may be apart or together, whichever takes less: pinned, either gives the right answer."""

from __future__ import annotations

import pytest

from opweld.ledger import Ledger
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile.pipeline import check_compiled, compile_with, with_data

GATHER = """program gather
input x f32[5, 13]
input which i64[4]
tensor rows f32[i0: 4, i1: 13] from "Gather"
  = x[at(which[i0], 5), i1]
tensor y f32[i0: 4, i1: 13] from "Neg"
  = neg(rows[i0, i1])
output y = y
"""

PICKED = """program picked
input x f32[5, 13]
input which i64[4]
tensor raised f32[i0: 5, i1: 13] from "Exp"
  = exp(x[i0, i1])
tensor y f32[i0: 4, i1: 13] from "Gather"
  = neg(raised[at(which[i0], 5), i1])
output y = y
"""

SPREAD = """program spread
input x f32[13]
input z f32[9, 13]
tensor raised f32[i0: 13] from "Exp"
  = exp(x[i0])
tensor y f32[i0: 9, i1: 13] from "Add"
  = add(z[i0, i1], raised[i1])
output y = y
"""

MULTIPLIED = """program multiplied
input x f32[5, 13]
input which i64[9]
constant w f32[13, 21]
tensor rows f32[i0: 9, i1: 13] from "Gather"
  = x[at(which[i0], 5), i1]
tensor y f32[i0: 9, i1: 21] from "MatMul"
  over r0: 13
  = sum<r0>(mul(rows[i0, r0], w[r0, i1]))
output y = y
"""


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize(
    ("text", "rule"),
    [(GATHER, "fuse.view"), (MULTIPLIED, "fuse.view"), (PICKED, "fuse.chain"), (SPREAD, "fuse.chain")],
    ids=["gather", "gathered operand", "picked", "spread"],
)
def test_what_is_pinned_is_right(text: str, rule: str, target: str) -> None:
    program, machine = with_data(parse_program(text)), Target.of(target)
    (decision,) = (d for d in compile_with(program, Ledger(), machine).ledger if d.rule == rule)
    assert not decision.failed
    ways = [Ledger(pins={decision.id: alternative.name}) for alternative in decision.alternatives]
    apart, together = (compile_with(program, ledger, machine) for ledger in ways)
    assert len(together.kernels) == max(1, len(apart.kernels) - 1)
    for made in (apart, together):
        assert set(decision.site) <= {name for item in made.kernels for name in item.kernel.origin}
        check_compiled(program, made, {})
