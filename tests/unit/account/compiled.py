"""A compilation made up for tests: a small classifier whose decisions, nodes and kernels are written by hand."""

from __future__ import annotations

from opweld.account.account import Account
from opweld.ledger import Alternative, Ledger
from opweld.record import FileNode, KernelEntry, Record, VariantEntry
from opweld.schedules_file import PinnedRegion, SchedulesFile

NODES = (
    FileNode("shape", "Constant", (), ("s",), known=True),
    FileNode("size", "Shape", ("x",), ("d",), called=("size",), reached=True, known=True),
    FileNode("flat", "Reshape", ("x", "s"), ("f",), called=("flat",), reached=True),
    FileNode("product", "MatMul", ("f", "w"), ("p",), "model.py:7", called=("product",), reached=True),
    FileNode("add", "Add", ("p", "b"), ("a",), called=("add",), reached=True),
    FileNode("norm", "LayerNormalization", ("a",), ("n",), "model.py:9", called=("norm",), reached=True),
    FileNode("same", "Identity", ("n",), ("y",), called=("same",), reached=True),
    FileNode("lost", "Exp", ("x",), ("l",), called=("lost",), reached=True),
    FileNode("read", "SequenceAt", ("q",), ("y2",), body=""),
)

RECORD = Record(
    NODES,
    ("y", "y2"),
    (
        VariantEntry(
            "main",
            0,
            {"batch": 4},
            (
                KernelEntry("k1_contraction", "add 0", ("product", "add"), 0, 3e-6, 3000, 100),
                KernelEntry("k2_rows", "norm 0", ("norm",), 1, 1e-6, 1000, 50),
            ),
        ),
        VariantEntry("other", 0, {"batch": 4}, (KernelEntry("k1_rows", "norm 0", ("norm",), 0, 1.0, 9, 9),)),
    ),
)

GIVEN = SchedulesFile("", {}, {("main", "add 0"): PinnedRegion(1, "contraction height=2", {})})


def decided() -> Ledger:
    """One view and one epilogue that were taken; of misses two that nodes share a kernel after all, two that not."""
    ledger = Ledger()
    ledger.variant("main", {})
    ledger.decide(
        rule="fuse.view",
        site=("flat",),
        subject=("flat 0",),
        alternatives=(Alternative("copy", "16*batch"), Alternative("index", 0)),
        prefer="index",
        reason="moves data",
    )
    ledger.decide(
        rule="fuse.epilogue",
        site=("product", "add"),
        subject=("product 0", "add 0"),
        alternatives=(Alternative("separate", 100, seconds=3e-6), Alternative("fused", 0, seconds=1e-6)),
        prefer="fused",
        reason="on the accumulators",
    )
    for source, user, cost, key in (
        ("product", "add", "1000*batch", "users"),
        ("add", "norm", "8*batch", "users"),
        ("product", "norm", "at(nobody knows)", "output"),
    ):
        ledger.decide(
            rule="fuse.rows",
            site=("product", "add", "norm"),
            subject=(f"{source} 0", f"{user} 0", "again"),
            alternatives=(Alternative("separate", cost), Alternative("fused", 0)),
            prefer="separate",
            reason="read from memory",
            failed={key: 2},
        )
    return ledger


def account() -> Account:
    """What they leave."""
    return Account(decided(), GIVEN, RECORD)
