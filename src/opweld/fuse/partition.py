"""Partitions a tensor program into regions, greedily and in this order, each step a decision in the ledger:

1. views     data movement becomes index arithmetic in whoever loads it;
2. chains    an elementwise tensor with one elementwise user is computed inside it;
3. epilogues what is done with the result of a contraction or window is done before it leaves the registers;
4. rows      reductions over one row space, and the elementwise work around them, share a resident row.

Why this order: views hide who really uses whom, chains make the diamonds of activations single users, and only then is
it known whether a tensor is the epilogue of one anchor or the beginning of a row.

Each pass goes through the program once, and what it does at an item costs what that item holds: `web` keeps users and
facts up to date, `order` knows what may be computed together without a cycle, and what is computed together has a size
limit (`web.MOST_NODES`, `web.MOST_OPERANDS`).
"""

from __future__ import annotations

from opweld.fuse.chains import fold_chains
from opweld.fuse.epilogues import fold_epilogues
from opweld.fuse.grouping import Rows
from opweld.fuse.refusals import record_rest
from opweld.fuse.region import Regions
from opweld.fuse.views import fold_views, prepared
from opweld.fuse.web import Web
from opweld.ledger import Ledger
from opweld.tensor.program import TensorProgram


def partition(program: TensorProgram, level: str, ledger: Ledger) -> Regions:
    """The regions of a program. At level `none`, only tensors of one graph node are computed together."""
    web = Web(prepared(program), level, ledger)
    fold_views(web)
    fold_chains(web)
    fold_epilogues(web)
    web.drop_unused()
    rows = Rows(web)
    record_rest(web, rows)
    return Regions(web.program(), rows.regions())
