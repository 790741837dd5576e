"""Long sums in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.fuse.region import Kind
from opweld.place import split_k
from opweld.place.parse import parse_placed
from opweld.place.text import print_placed
from opweld.schedule.cost import core_of
from opweld.target import Target
from opweld.tensor.dim import ONE
from tests.unit.tile import programs
from tests.unit.tile.pipeline import TARGET, Compiled, check, compile_text

SMALL = replace(TARGET, l2_bytes=1 << 16)
"""A machine whose second-level cache does not hold rows of a thousand elements beside weights."""

LONG = programs.dense(14, 1100, 96)


def parts(compiled: Compiled) -> list[str]:
    """What the parts before the last ones are called."""
    made = [region.outputs[0] for region in compiled.placed.regions if region.outputs]
    return [compiled.ledger.label(name) for name in made if "_sums" in name]


def test_rows_that_do_not_fit_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of a size that is interpreted, all of that is little.
    monkeypatch.setattr(split_k, "core_of", lambda target: replace(core_of(target), launch=0.0))
    monkeypatch.setattr(split_k, "SURE", 1.0)
    compiled = compile_text(LONG, target=SMALL)
    assert parts(compiled) == ["Relu 0 sums-0"]
    assert compiled.names == ["contraction", "contraction"]
    (decision,) = (d for d in compiled.ledger if d.rule == "place.split_k")
    assert decision.fired and "stays in the second-level cache" in decision.reason


def test_rows_that_fit_are_summed_at_once() -> None:
    compiled = compile_text(LONG, target=replace(SMALL, l2_bytes=1 << 20))
    assert not parts(compiled)
    (decision,) = (d for d in compiled.ledger if d.rule == "place.split_k")
    assert not decision.fired and "stay in the second-level cache" in decision.reason


def test_short_sums_are_not_asked_about() -> None:
    compiled = compile_text(programs.dense(14, 1000, 96), target=SMALL)
    assert not [d for d in compiled.ledger if d.rule == "place.split_k"]


@pytest.mark.parametrize("disable", ["place.split_k", "place"])
def test_disabled_sums_are_whole(disable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_k, "core_of", lambda target: replace(core_of(target), launch=0.0))
    monkeypatch.setattr(split_k, "SURE", 1.0)
    assert not parts(compile_text(LONG, target=SMALL, disable=(disable,)))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 20 elements wherever a sum has more."""
    monkeypatch.setattr(split_k, "SHORTEST", 11)
    monkeypatch.setattr(split_k, "ROOM", 0.0)
    monkeypatch.setattr(split_k, "_choose", lambda *_: 20)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_several_parts(target: str) -> None:
    compiled = check(programs.dense(9, 50, 21), target=Target.of(target))
    assert parts(compiled) == ["Relu 0 sums-0", "Relu 0 sums-1"]
    assert compiled.names == ["contraction"] * 3


@pytest.mark.usefixtures("always")
def test_parts_come_back_from_their_text() -> None:
    placed = compile_text(programs.dense(9, 50, 21)).placed
    text = print_placed(placed)
    data = {name: constant.read() for name, constant in placed.constants.items()}
    assert print_placed(parse_placed(text, data)) == text


@pytest.mark.usefixtures("always")
def test_what_is_summed_so_far_is_overwritten() -> None:
    """The parts share the memory of the result, which is none of the model's outputs here."""
    text = """program chain
input x f32[9, 50]
constant w f32[50, 21]
tensor product f32[i0: 9, i1: 21] from "MatMul"
  over r0: 50
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor top f32[i0: 9] from "ReduceMax"
  over r0: 21
  = max<r0>(product[i0, r0])
tensor y f32[i0: 9, i1: 21] from "Sub"
  = sub(product[i0, i1], top[i0])
output y = y
"""
    compiled = check(text)
    assert len(parts(compiled)) == 2
    made = [region.outputs[0] for region in compiled.placed.regions if region.kind is Kind.CONTRACTION]
    assert len({compiled.placed.storages[name].root for name in made}) == 1


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_programs_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_k, "SHORTEST", 2)
    # A part of one element would be no sum.
    monkeypatch.setattr(
        split_k, "_choose", lambda _, axis, *rest: next(n for n in (3, 4, 5) if int(axis.extent) % n != 1)
    )
    check(programs.PROGRAMS[name])


@pytest.mark.usefixtures("always")
def test_any_number_of_rows() -> None:
    text = programs.dense("M", 50, 19, programs.symbols(M="0 of x"))
    for rows in (1, 2, 7, 13):
        assert len(parts(check(text, {"M": rows}))) == 2


@pytest.mark.usefixtures("always")
def test_operands_of_a_batch() -> None:
    text = """program batch
input x f32[3, 9, 50]
input z f32[3, 50, 21]
tensor y f32[i0: 3, i1: 9, i2: 21] from "MatMul"
  over r0: 50
  = sum<r0>(mul(x[i0, i1, r0], z[i0, r0, i2]))
output y = y
"""
    assert len(parts(check(text))) == 2


@pytest.mark.usefixtures("always")
def test_names_that_the_model_has() -> None:
    text = programs.dense(9, 50, 21).replace("input x ", "input result_sums0 ").replace("mul(x[", "mul(result_sums0[")
    compiled = check(text)
    made = [region.outputs[0] for region in compiled.placed.regions]
    assert made == ["result_sums0_", "result_sums1", "result"]


@pytest.mark.usefixtures("always")
def test_what_is_summed_so_far_lies_as_lanes_run() -> None:
    """The result is channels first, its lanes are channels."""
    text = """program pointwise
input x f32[1, 50, 3, 3]
constant w f32[21, 50]
tensor y f32[i0: 1, i1: 21, i2: 3, i3: 3] from "Conv"
  over r0: 50
  = sum<r0>(mul(x[i0, r0, i2, i3], w[i1, r0]))
output y = y
"""
    placed = check(text).placed
    (lane,) = {lanes.axis.name for lanes in placed.lanes.values() if lanes.axis is not None}
    assert lane == "i1"
    assert placed.storages["y_sums0"].stride(1) is ONE


@pytest.mark.parametrize(
    ("rows", "reduced", "lane"),
    [(1, 25088, 4096), (1, 4096, 1000), (8, 4096, 4096), (400, 2048, 32), (600, 1024, 64)],
)
def test_no_parts_where_rows_fit_or_pass_once(rows: int, reduced: int, lane: int) -> None:
    assert not parts(compile_text(programs.dense(rows, reduced, lane), Target.of("x86-64-v4")))


def test_parts_of_a_real_size() -> None:
    """The second product of a transformer's MLP, where two megabytes of cache hold half of its rows."""
    assert (
        len(parts(compile_text(programs.dense(197, 3072, 768), replace(Target.of("x86-64-v4"), l2_bytes=1 << 21)))) == 2
    )


def test_rows_that_overlap_are_read_once() -> None:
    """Spectra of a signal: 300 windows of 1024 samples, each 256 later, are 76 thousand of them."""
    text = """program spectra
input x f32[77568]
constant w f32[1024, 513]
tensor y f32[i0: 300, i1: 513] from "STFT"
  over r0: 1024
  = sum<r0>(mul(x[256*i0 + r0], w[r0, i1]))
output y = y
"""
    assert not parts(compile_text(text, Target.of("x86-64-v4")))
