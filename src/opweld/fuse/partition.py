"""Partitions a tensor program into regions, greedily and in this order, each step a decision in the ledger:

1. views     data movement becomes index arithmetic in whoever loads it;
2. prologues operands of contractions that are computed from narrower ones are so in registers, or once, in memory;
3. chains    an elementwise tensor with one elementwise user is computed inside it;
4. epilogues what is done with the result of an anchor (a matrix product, convolution, pooling) is done before it
             leaves the registers;
5. rows      reductions over the same rows, and the elementwise work around them, are computed row by row.

What cannot be otherwise comes before, and is no decision: axes of extent one are dropped, and taps of windows that meet
nothing but padding (`views.prepared`).

Why this order: views hide who really uses whom; a value that is kept in another type has other users; chains put x *
sigmoid(x) together, so that the anchor before it has one user; and only then is it known whether a tensor is the
epilogue of one anchor or the beginning of a row.

Each pass goes through the program once, and what it does at an item costs what that item holds: `web` keeps users and
facts up to date, `order` knows what may be computed together without a cycle, and what is computed together has a size
limit (`web.MOST_NODES`, `web.MOST_OPERANDS`, `web.MOST_TERMS`).
"""

from __future__ import annotations

from opweld.fuse.chains import fold_chains
from opweld.fuse.epilogues import fold_epilogues
from opweld.fuse.grouping import join_rows
from opweld.fuse.prologues import place_prologues
from opweld.fuse.refusals import record_rest
from opweld.fuse.region import Regions
from opweld.fuse.use_def import UseDef
from opweld.fuse.views import fold_views, prepared
from opweld.ledger import Ledger
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.program import TensorProgram


def partition(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """The regions of a program."""
    web = UseDef(prepared(program), expected, target, ledger)
    fold_views(web)
    web = UseDef(place_prologues(web.program(), expected, target, ledger), expected, target, ledger)
    fold_chains(web)
    fold_epilogues(web)
    web.drop_unused()
    rows = join_rows(web)
    record_rest(web, rows)
    return Regions(web.program(), rows.regions())
