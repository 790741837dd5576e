"""What malformed regions are told: the text of right ones, changed in one place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.errors import OpweldError
from opweld.fuse.text import parse_regions, print_regions
from opweld.fuse.verify import verify_regions
from tests.unit.tile.pipeline import compile_text
from tests.unit.tile.programs import PROGRAMS

SUM = "      over r0: 7\n      = max(add(sum<r0>(mul(x[i0, r0], w[r0, i1])), b[i1]), 0.0)\n"
MEMBER = '  member contraction\n    tensor result f32[i0: 17, i1: 33] from "MatMul", "Add", "Relu"\n' + SUM
PLACE = "    place [i0, i1]\n"

CHANGES = {
    "not computed": ("dense", "region result\n" + MEMBER + PLACE, "", "no region computes 'result'"),
    "computed twice": ("concatenation", "region joined", "region joined\n  member map\n    same joined\nregion joined",
                       "region 'joined' computes 'joined', which is computed already"),
    "extern with members": ("best", "  extern\n", "  extern\n  member map\n    same relu\n", "beside its extern"),
    "no members": ("dense", MEMBER + PLACE, "", "region 'result' has no members"),
    "not kept": ("residual", "region result", "region result_2", "keeps 'result_2', which it does not compute"),
    "no map": ("dense", "member contraction", "member map", "of 'result' that is a map and reduces"),
    "no contraction": ("max_pool", "member window", "member contraction", "is a contraction and no sum of products"),
    "no reduction": ("transpose", "member map", "member window", "is a window with 0 reductions"),
    "no rows": ("dense", "member contraction", "member rowwise", "has not its own tensors in its rows"),
    "two maps": ("softmax", "member rowwise", "member map", "is a map of 4 tensors"),
    "no place in the rows": ("softmax", "    at total (row 0)\n", "", "has no place in its rows"),
    "another dtype": ("dense", "mul(x[i0, r0], w[r0, i1])", "mul(x[i0, r0], b[r0, i1])", "loads 'b' of rank 1"),
    "another rank": ("dense", PLACE, "    place [i0]\n", "computes 'result', f32 of rank 2, as f32 at 1 indices"),
    "a place of no axis": ("dense", PLACE, "    place [i0, r0]\n", "has 'result' at r0, which depends on no axis"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_wrong_is_told(name: str) -> None:
    program, old, new, expected = CHANGES[name]
    text = print_regions(compile_text(PROGRAMS[program]).regions)
    head, found, tail = text.rpartition(old)
    assert found, text
    with pytest.raises(OpweldError) as raised:
        verify_regions(parse_regions(head + new + tail))
    assert expected in str(raised.value)


def test_a_region_keeps_something() -> None:
    made = compile_text(PROGRAMS["dense"]).regions
    (region,) = made.regions
    with pytest.raises(OpweldError, match="keeps nothing in memory"):
        verify_regions(replace(made, regions=(replace(region, outputs=()),)))


def test_a_block_has_rows_for_each_of_its_members() -> None:
    made = compile_text(PROGRAMS["attention"]).regions
    (region,) = made.regions
    assert region.block is not None
    changed = replace(region, block=replace(region.block, rows=region.block.rows[:2]))
    with pytest.raises(OpweldError, match="has the rows of 2 members in its block"):
        verify_regions(replace(made, regions=(changed,)))


def regions_of(name: str, level: str = "all") -> tuple[str, list[str]]:
    """The program's text and that of each region."""
    text = print_regions(compile_text(PROGRAMS[name], level=level).regions)
    head, *regions = text.split("\nregion ")
    return head, regions


def rejected(text: str) -> str:
    with pytest.raises(OpweldError) as raised:
        verify_regions(parse_regions(text))
    return str(raised.value)


def test_a_region_reads_what_regions_before_it_keep() -> None:
    head, regions = regions_of("convolution")
    assert len(regions) > 1
    told = rejected("\nregion ".join((head, *reversed(regions))))
    assert "which no region before it keeps in memory" in told


def test_a_member_reads_what_members_before_it_compute() -> None:
    head, (region,) = regions_of("attention")
    members = region.split("  member ")
    moved = "  member ".join((members[0], members[2], members[1], members[3]))
    assert "reads 'scaled' in 'top', before it is computed" in rejected(f"{head}\nregion {moved}")


def test_steps_of_a_recurrence_may_read_its_states_and_nothing_that_is_later() -> None:
    head, regions = regions_of("pursuit")
    verify_regions(parse_regions("\nregion ".join((head, *regions))))


def test_outputs_are_kept() -> None:
    head, regions = regions_of("softmax")
    told = rejected("\nregion ".join((head, *regions)).replace("region result", "region total"))
    assert "no region keeps 'result', the output 'y', in memory" in told
