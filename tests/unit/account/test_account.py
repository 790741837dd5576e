"""What became of nodes, what is saved, and what nearly was, of a compilation that is written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.account.account import Account
from opweld.account.misses import ends_of, suggested_fix
from opweld.account.summary import bytes_text, seconds_text, summary_text
from opweld.errors import ArtifactError
from opweld.ledger import Alternative, Ledger
from opweld.record import FileNode, Record
from tests.unit.account.compiled import GIVEN, NODES, RECORD, account, decided


def test_every_node_has_a_fate() -> None:
    outcomes = account().outcomes
    found = {node.name: outcomes.of(node) for node in NODES}
    assert {name: outcome.kind for name, outcome in found.items()} == {
        "shape": "known",
        "size": "known",
        "flat": "index arithmetic",
        "product": "fused",
        "add": "fused",
        "norm": "alone",
        "same": "simplified",
        "lost": "unused",
        "read": "unreached",
    }
    assert [kernel.name for _, kernel in found["flat"].kernels] == ["k1_contraction"], "the kernel that reads it"
    assert [place for place, _ in found["norm"].kernels] == ["main", "other"]
    assert found["same"].kernels == ()


def test_what_a_rewrite_took_is_followed_to_the_kernels_of_what_it_left() -> None:
    ledger = Ledger()
    ledger.decide(
        rule="rewrite.siblings",
        site=("product", "gone"),
        subject=("p",),
        alternatives=(Alternative("as written"), Alternative("rewritten")),
        prefer="rewritten",
        reason="2 products read the same",
    )
    gone = FileNode("gone", "MatMul", ("f", "v"), ("y",), called=("gone",), reached=True)
    outcome = Account(ledger, GIVEN, replace(RECORD, nodes=(*NODES, gone))).outcomes.of(gone)
    assert outcome.kind == "rewritten"
    assert [kernel.name for _, kernel in outcome.kernels] == ["k1_contraction"]
    assert [decision.rule for decision in outcome.decisions] == ["rewrite.siblings"]


def test_what_every_reader_computes_again_is_fused_with_them() -> None:
    ledger = Ledger()
    ledger.decide(
        rule="fuse.chain",
        site=("scale", "add", "norm"),
        subject=("scale 0", "all users"),
        alternatives=(Alternative("separate"), Alternative("fused")),
        prefer="fused",
        reason="one element: each user computes it for itself",
    )
    scale = FileNode("scale", "Sqrt", ("b",), ("y",), called=("scale",), reached=True)
    outcome = Account(ledger, GIVEN, replace(RECORD, nodes=(*NODES, scale))).outcomes.of(scale)
    assert outcome.kind == "fused"
    assert {kernel.name for _, kernel in outcome.kernels} == {"k1_contraction", "k2_rows", "k1_rows"}


def test_savings_and_shares_are_those_of_a_usual_run_at_the_expected_sizes() -> None:
    told = account()
    assert told.bytes == 4000 and told.seconds == pytest.approx(4e-6), "the likeliest variant alone"
    assert told.sizes == {"batch": 4}
    assert told.fused_nodes == pytest.approx(2 / 3) and told.fused_time == pytest.approx(3 / 4)
    rules = {count.rule: count for count in told.rules}
    assert (rules["fuse.view"].bytes, rules["fuse.view"].seconds) == (64, None)
    assert rules["fuse.epilogue"].bytes == 100 and rules["fuse.epilogue"].seconds == pytest.approx(2e-6)
    assert (rules["fuse.rows"].taken, rules["fuse.rows"].decisions, rules["fuse.rows"].bytes) == (0, 3, None)


def test_near_misses_leave_out_what_shares_a_kernel_anyway_and_say_what_helps() -> None:
    users, output = account().misses
    assert users.ends == (("add", "norm"),) and users.operators == ("Add", "LayerNormalization")
    assert users.bytes == 32 and users.fix == ""
    assert output.bytes is None, "a size that only a run tells"
    assert "leave the value out of the model's outputs" in output.fix
    assert output.ends == (("product", "norm"),)


def test_a_miss_is_told_with_the_node_that_reads_the_value() -> None:
    tail = FileNode("tail", "Relu", ("n",), ("t",), called=("tail",), reached=True)
    told = Account(Ledger(), GIVEN, replace(RECORD, nodes=(*NODES, tail)))
    nodes = {name: node for node in told.record.nodes for name in node.called}
    (decision,) = list(decided())[:1]
    about = replace(decision, site=("product", "add", "norm", "tail"), subject="add 0 > tail 0")
    assert ends_of(about, nodes, told.outcomes) == ("add", "norm"), "not with the last one of its kernel"
    assert ends_of(replace(about, site=("new",), subject="new 3"), nodes, told.outcomes) == ("new",)


def test_alike_misses_are_one() -> None:
    ledger = decided()
    ledger.variant("other", {})
    ledger.decide(
        rule="fuse.rows",
        site=("add", "norm"),
        subject=("add 0", "norm 0"),
        alternatives=(Alternative("separate", "80*batch"), Alternative("fused", 0)),
        prefer="separate",
        reason="read from memory",
        failed={"users": 3},
    )
    first, _ = Account(ledger, GIVEN, RECORD).misses
    assert [decision.failed["users"] for decision in first.decisions] == [3, 2], "the most expensive first"
    assert first.bytes == 352


def test_misses_differ_by_what_failed_and_not_by_words() -> None:
    ledger = decided()
    ledger.variant("other", {})
    for number, (reason, failed) in enumerate((("read from memory", {"loads": 1}), ("in other words", {"users": 3}))):
        ledger.decide(
            rule="fuse.rows",
            site=("add", "norm"),
            subject=(f"add {number}", "norm 0"),
            alternatives=(Alternative("separate", "80*batch"), Alternative("fused", 0)),
            prefer="separate",
            reason=reason,
            failed=failed,
        )
    misses = Account(ledger, GIVEN, RECORD).misses
    assert sorted(len(miss.decisions) for miss in misses if miss.operators == ("Add", "LayerNormalization")) == [1, 2]


@pytest.mark.parametrize(
    ("rule", "reason", "failed", "fix"),
    [
        ("rewrite.siblings", "the weights of one are computed", {"weights": "w"}, "as stored tensors"),
        ("schedule.prefetch", "in whatever words", {"trips": "vary"}, "--dim NAME=N"),
        ("schedule.prefetch", "how many trips there are is known at run time only", {"groups": 3}, ""),
        ("fuse.chain", "each of its users reads it", {"users": 2}, ""),
    ],
)
def test_mends(rule: str, reason: str, failed: dict[str, int | str], fix: str) -> None:
    (decision,) = list(decided())[:1]
    told = suggested_fix(replace(decision, rule=rule, reason=reason, failed=failed))
    assert fix in told and bool(told) == bool(fix)


def test_the_summary_comes_first_and_is_short() -> None:
    lines = summary_text(account(), "mlp.onnx", near_misses=1).splitlines()
    assert lines[0] == "mlp.onnx: 8 nodes (and 1 stored constants) -> 2 kernels"
    assert "  2 computed in kernels with other nodes" in lines
    assert "fused kernels cover 67% of the nodes that kernels compute (2 of 3), and 75% of the predicted time" in lines
    assert "predicted: 4 us on one core, 4 kB read and written, at batch=4" in lines
    assert "fusion saves 164 bytes of memory traffic and 2 us, as far as that was counted" in lines
    assert any(line.startswith("  fuse.epilogue  1 of 1  saves 100 bytes, 2 us") for line in lines)
    assert "  1. Add > LayerNormalization: costs 32 bytes" in lines
    assert "     at add > norm (model.py:9)" in lines, "the line of the program, where the exporter recorded it"
    assert lines[-1] == "  and 1 more: --near-misses N, or --all for every decision"
    empty = summary_text(Account(Ledger(), GIVEN, Record()), "\x1b[31m", 3)
    assert "\x1b" not in empty and "no near misses" in empty


def test_a_record_is_read_back() -> None:
    assert Record.loads(RECORD.dumps()) == RECORD
    for damaged, words in (
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", r"should be an object, but is '\[\]'; compile the model again"),
        ('{"nodes": [{}]}', r"graph\.json: nodes\[0\] lacks 'name'"),
        ('{"nodes": []}', "is a record of no kernels"),
        (RECORD.dumps().replace('"segment": 0', '"segment": "0"', 1), "segment should be int, but is '0'"),
        (RECORD.dumps().replace('"seconds": 3e-06', '"seconds": NaN', 1), "seconds should be a finite number"),
    ):
        with pytest.raises(ArtifactError, match=words):
            Record.loads(damaged)


def test_amounts_for_people() -> None:
    assert [bytes_text(n) for n in (0, 999, 1000, 34_500_000)] == ["0 bytes", "999 bytes", "1 kB", "34.5 MB"]
    assert [seconds_text(s) for s in (2.0, 3.57e-3, 1.5e-6, 4e-9)] == ["2 s", "3.57 ms", "1.5 us", "4 ns"]
