"""Which tensors share a region, and what the ledger says about it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from opweld.fuse import use_def
from opweld.fuse.outputs import own_outputs
from opweld.fuse.partition import partition
from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_program
from opweld.tensor.verify import verify
from tests.unit.fuse.programs import SIZE, chain, layers, random_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import with_data

TARGET = Target.of("x86-64-v4")


def regions_of(text: str, level: str = "all", ledger: Ledger | None = None) -> Regions:
    program = own_outputs(simplify_program(with_data(parse_program(text))))
    found = partition(program, expected_sizes(program), TARGET, Ledger(level=level) if ledger is None else ledger)
    verify(found.program)
    return found


def kinds(found: Regions) -> list[str]:
    return [
        "scan" if region.scan else ",".join(member.kind.value for member in region.members) for region in found.regions
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (programs.dense(8, 8, 8), ["contraction"]),
        (programs.dense(1, 8, 8), ["contraction"]),
        (programs.convolution(4, 8, 6, 6), ["contraction", "contraction"]),
        (programs.separable(4, 8, 6, 6), ["contraction", "window", "contraction"]),
        (programs.max_pool(8, 6, 6), ["contraction", "window"]),
        (programs.softmax(4, 9), ["rowwise"]),
        (programs.softmax(4, 9, axis=0), ["rowwise"]),
        (programs.layer_norm(4, 9), ["rowwise"]),
        (programs.global_pool(8, 4, 4), ["contraction", "rowwise", "contraction", "map"]),
        (programs.concatenation(4, 8, 6, 6), ["contraction", "contraction", "map", "contraction"]),
        (programs.upsampling(4, 8, 3, 3), ["contraction"]),
        (programs.lstm(3, 2, 4, 5), ["contraction", "scan"]),
        (programs.attention(2, 5, 3, 4), ["contraction", "rowwise", "contraction"]),
        (programs.elementwise((3, 4), "neg(x[i0, i1])"), ["map"]),
    ],
)
def test_regions(text: str, expected: list[str]) -> None:
    assert kinds(regions_of(text)) == expected


def test_regions_read_only_what_is_there() -> None:
    for text in (programs.global_pool(8, 4, 4), programs.attention(2, 5, 3, 4), programs.layer_norm(4, 9)):
        found = regions_of(text)
        there = {value.name for value in (*found.program.inputs, *found.program.constants)}
        for region in found.regions:
            assert set(region.inputs) <= there
            there |= set(region.outputs)
        assert {value for _, value in found.program.outputs} <= there


def test_level_none_keeps_graph_nodes_apart() -> None:
    found = regions_of(programs.dense(8, 8, 8), level="none")
    assert [region.origin for region in found.regions] == [("MatMul",), ("Add",), ("Relu",)]
    found = regions_of(programs.softmax(4, 9), level="none")
    assert [region.origin for region in found.regions] == [("Softmax",)]


def test_every_merge_is_a_decision_that_can_be_disabled() -> None:
    ledger = Ledger()
    regions_of(programs.dense(8, 8, 8), ledger=ledger)
    assert ledger.counts() == {"fuse.chain": (1, 1), "fuse.epilogue": (1, 1)}
    (epilogue,) = [decision for decision in ledger if decision.rule == "fuse.epilogue"]
    assert epilogue.site == ("MatMul", "Add", "Relu")
    assert kinds(regions_of(programs.dense(8, 8, 8), ledger=Ledger([epilogue.id]))) == ["contraction", "map"]


def test_a_result_with_two_users_stays_in_memory() -> None:
    found = regions_of(
        """program diamond
input x f32[4, 8]
constant w f32[8, 8]
tensor a f32[i0: 4, i1: 8] from "MatMul"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor b f32[i0: 4, i1: 8] from "MatMul_1"
  over r0: 8
  = sum<r0>(mul(a[i0, r0], w[r0, i1]))
tensor c f32[i0: 4, i1: 8] from "Add"
  = add(a[i0, i1], b[i0, i1])
output y = c
"""
    )
    assert [region.outputs for region in found.regions] == [("a",), ("c",)]


def test_rows_keep_in_memory_only_what_others_read() -> None:
    (region,) = regions_of(programs.layer_norm(4, 9)).regions
    assert set(region.outputs) == {"added", "result"}
    assert len(region.tensors) > 2


def test_what_comes_between_two_row_members_splits_them() -> None:
    """The product needs the finished rows, and the sum needs the product: one kernel would wait for itself."""
    found = regions_of(
        """program between
input x f32[8, 8]
constant w f32[8, 8]
tensor top f32[i0: 8] from "ReduceMax"
  over r0: 8
  = max<r0>(x[i0, r0])
tensor shifted f32[i0: 8, i1: 8] from "Sub"
  = exp(sub(x[i0, i1], top[i0]))
tensor mixed f32[i0: 8, i1: 8] from "MatMul"
  over r0: 8
  = sum<r0>(mul(shifted[i0, r0], w[r0, i1]))
tensor total f32[i0: 8] from "ReduceSum"
  over r0: 8
  = sum<r0>(mul(shifted[i0, r0], mixed[i0, r0]))
output y = total
"""
    )
    assert kinds(found) == ["rowwise", "contraction", "rowwise"]


def test_views_vanish() -> None:
    found = regions_of(
        """program views
input x f32[4, 6]
tensor a f32[i0: 6, i1: 4] from "Transpose"
  = x[i1, i0]
tensor b f32[i0: 24] from "Reshape"
  = a[(i0 // 4), (i0 % 4)]
tensor c f32[i0: 24] from "Relu"
  = max(b[i0], 0.0)
output y = c
"""
    )
    (region,) = found.regions
    assert region.inputs == ("x",)


def test_outputs_own_their_memory() -> None:
    program = own_outputs(
        parse_program(
            "program p\ninput x f32[3]\nconstant k f32[2]\ntensor a f32[i0: 3]\n  = neg(x[i0])\n"
            "output first = a\noutput again = a\noutput fed = x\noutput fixed = k\n"
        )
    )
    values = [value for _, value in program.outputs]
    assert len(set(values)) == 4
    assert not {"x", "k"} & set(values)
    assert [public for public, _ in program.outputs] == ["first", "again", "fed", "fixed"]


@pytest.mark.parametrize("make", [chain, layers])
def test_work_grows_with_the_program_and_no_faster(make: Callable[[int], TensorProgram]) -> None:
    short, long = (calls(make(length)) for length in (500, 2000))
    assert long < 4.2 * short


def calls(program: TensorProgram) -> int:
    """How many functions are called to partition a program."""
    count = 0

    def entered(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        partition(program, expected_sizes(program), TARGET, Ledger())
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("level", ["all", "none"])
@pytest.mark.parametrize("limit", [256, 12])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_keep_their_values(seed: int, limit: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_def, "MOST_NODES", limit)
    program = random_program(seed)
    found = partition(program, expected_sizes(program), TARGET, Ledger(level=level))
    verify(found.program)
    there = {value.name for value in (*found.program.inputs, *found.program.constants)}
    for region in found.regions:
        assert set(region.inputs) <= there
        there |= set(region.outputs)
    assert {value for _, value in found.program.outputs} <= there
    feeds = {"x": np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32)}
    expected = interpret(program, feeds, float64=True)
    for name, value in interpret(found.program, feeds, float64=True).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", [1234, 1242])
def test_two_rows_are_never_begun_that_wait_for_each_other(seed: int) -> None:
    """None of their tensors depends on itself, but each row reads a value that the other one gives."""
    program = random_program(seed, 60)
    found = partition(program, expected_sizes(program), TARGET, Ledger())
    assert sum(len(region.outputs) for region in found.regions) >= 3
    assert {value for _, value in program.outputs} <= {name for region in found.regions for name in region.outputs}
