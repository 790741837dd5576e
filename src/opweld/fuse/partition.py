"""Partitions a tensor program into regions by greedy passes, in this order; each fusion is a decision of the ledger.

1. views     data movement (transpose, slice, pad) becomes index arithmetic in the tensors that load it;
2. integers  contractions of quantized values become integer contractions, with scales and zero points moved out of the
             sum; operands of other contractions are rounded to bfloat16 where the program permits it; of those that
             stay float32, denormal weights are scaled;
3. prologues an operand of a contraction that is computed from a narrower type is converted in registers, or once
             in memory;
4. chains    an elementwise tensor with one elementwise user is inlined into it;
5. epilogues elementwise users of an anchor (matrix product, convolution, pooling) are computed on its accumulators;
6. scales    a literal that scales an operand of contractions scales their results instead;
7. tables    an elementwise function of a byte becomes a lookup in a table of its 256 values; what is rounded to a byte
             inside of any other expression stays a float, and what scales a sum is divided by the scale of the
             byte that it is rounded to (`requantization`);
8. rows      reductions over the same rows, and the elementwise tensors around them, become one row-by-row kernel.

Before that, and without a decision, axes of extent one are dropped, and taps of windows that read only padding
(`views.prepared`).

Why this order: views hide the real users of a value; a prologue of another dtype changes its users; chains merge x *
sigmoid(x), which leaves the anchor before it with one user; only then is it known whether a tensor is the epilogue of
an anchor or belongs to a row. A scaling of an operand that no earlier pass has fused would be a kernel of its own.

At last, pairs of a value and its user that no pass has considered are recorded as refused.

Each pass visits every item (a statement of the tensor program) once, in time proportional to its size: `use_def` keeps
users and facts up to date, `order` tests whether fusing would make a cycle, and fused expressions have a size limit
(`use_def.MOST_NODES`, `MOST_OPERANDS`, `MOST_TERMS`).
"""

from __future__ import annotations

from opweld.fuse.chains import fold_chains
from opweld.fuse.denormals import scale_denormals
from opweld.fuse.epilogues import fold_epilogues
from opweld.fuse.grouping import join_rows
from opweld.fuse.integers import integer_products
from opweld.fuse.narrow_values import widen_in_readers
from opweld.fuse.narrowing import clamp_last, without_flips
from opweld.fuse.precision import reduce_precision
from opweld.fuse.prologues import place_prologues
from opweld.fuse.refusals import record_rest
from opweld.fuse.region import Regions
from opweld.fuse.requantization import merge_scales
from opweld.fuse.scales import move_scales
from opweld.fuse.tables import tabulate
from opweld.fuse.use_def import UseDef
from opweld.fuse.views import fold_views, prepared
from opweld.ledger import Ledger
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tensor.rounding import without_integers


def partition(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """The regions of a program."""
    graph = UseDef(prepared(program), expected, target, ledger)
    fold_views(graph)
    program = graph.program()
    if target.kind == "gpu":
        program = widen_in_readers(program)
    program = integer_products(program, expected, target, ledger)
    program = reduce_precision(program, expected, target, ledger)
    if target.kind == "cpu":  # GPUs multiply denormal numbers as fast as others
        program = scale_denormals(program, ledger)
    graph = UseDef(place_prologues(program, expected, target, ledger), expected, target, ledger)
    fold_chains(graph)
    fold_epilogues(graph)
    graph.drop_unused()
    move_scales(graph)
    tabulate(graph)
    graph.rewrite(without_integers)
    without_flips(graph)
    merge_scales(graph)
    clamp_last(graph)
    rows = join_rows(graph)
    record_rest(graph, rows)
    return Regions(graph.program(), rows.regions())
