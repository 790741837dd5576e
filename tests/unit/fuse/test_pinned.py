"""What is better apart, and may be together: pinned, it gives the right answer."""

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
    ("text", "rule", "alternative"),
    [
        (GATHER, "fuse.view", "index"),
        (MULTIPLIED, "fuse.view", "index"),
        (PICKED, "fuse.chain", "fused"),
        (SPREAD, "fuse.chain", "fused"),
    ],
    ids=["gather", "gathered operand", "picked", "spread"],
)
def test_what_is_pinned_is_right(text: str, rule: str, alternative: str, target: str) -> None:
    program, machine = with_data(parse_program(text)), Target.of(target)
    before = compile_with(program, Ledger(), machine)
    (decision,) = (d for d in before.ledger if d.rule == rule and d.taken != alternative)
    assert not decision.failed
    made = compile_with(program, Ledger(pins={decision.id: alternative}), machine)
    assert len(made.kernels) == max(1, len(before.kernels) - 1)
    assert set(decision.site) <= {name for item in made.kernels for name in item.kernel.origin}
    check_compiled(program, made, {})
