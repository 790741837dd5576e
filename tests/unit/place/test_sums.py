"""Long sums in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.fuse.region import Kind
from opweld.place import sums
from opweld.target import Target
from tests.unit.tile import programs
from tests.unit.tile.pipeline import TARGET, Compiled, check, compile_text

SMALL = replace(TARGET, l2_bytes=1 << 17)
"""A machine whose second-level cache does not hold rows of a thousand elements beside weights."""

LONG = programs.dense(14, 1100, 96)


def parts(compiled: Compiled) -> list[str]:
    """What the parts before the last ones are called."""
    made = [region.outputs[0] for region in compiled.placed.regions if region.outputs]
    return [compiled.ledger.label(name) for name in made if "_sums" in name]


def test_rows_that_do_not_fit_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "LAUNCH", 0.0)  # of a size that is interpreted
    compiled = compile_text(LONG, target=SMALL)
    assert parts(compiled) == ["Relu 0 sums 0"]
    assert compiled.names == ["contraction", "contraction"]
    (decision,) = (d for d in compiled.ledger if d.rule == "place.sums")
    assert decision.fired and "stays in the second-level cache" in decision.reason


def test_rows_that_fit_are_summed_at_once() -> None:
    compiled = compile_text(LONG, target=replace(SMALL, l2_bytes=1 << 20))
    assert not parts(compiled)
    (decision,) = (d for d in compiled.ledger if d.rule == "place.sums")
    assert not decision.fired and "stay in the second-level cache" in decision.reason


def test_short_sums_are_not_asked_about() -> None:
    compiled = compile_text(programs.dense(14, 1000, 96), target=SMALL)
    assert not [d for d in compiled.ledger if d.rule == "place.sums"]


@pytest.mark.parametrize("disable", ["place.sums", "place"])
def test_disabled_sums_are_whole(disable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "LAUNCH", 0.0)
    assert not parts(compile_text(LONG, target=SMALL, disable=(disable,)))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 20 elements wherever a sum has more."""
    monkeypatch.setattr(sums, "SHORTEST", 11)
    monkeypatch.setattr(sums, "_choose", lambda *_: 20)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_several_parts(target: str) -> None:
    compiled = check(programs.dense(9, 50, 21), target=Target.of(target))
    assert parts(compiled) == ["Relu 0 sums 0", "Relu 0 sums 1"]
    assert compiled.names == ["contraction"] * 3


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
    monkeypatch.setattr(sums, "SHORTEST", 2)
    # A part of one element would be no sum.
    monkeypatch.setattr(sums, "_choose", lambda _, axis, *rest: next(n for n in (3, 4, 5) if int(axis.extent) % n != 1))
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
