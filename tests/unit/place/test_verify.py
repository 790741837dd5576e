"""What malformed storage is told: the text of right one, changed in one place."""

from __future__ import annotations

import pytest

from opweld.errors import OpweldError
from opweld.place.text import parse_placed, print_placed
from opweld.place.verify import verify_placed
from tests.unit.tile.pipeline import compile_text
from tests.unit.tile.programs import PROGRAMS

HALO = "(0, 0), (0, 0), (1, 1), (1, 1) fill 0.0"
RELU = f"value relu f32[630] of i1 by 63, i2 + 1 by 9, i3 + 1 by 1 halo {HALO}\n"
RESULT = "value result f32[561] of i0 by 33, i1 by 1\n"
PACKED = "value w_packed0 f32[336] of i1 % 16 by 1, i0 by 16, i1 // 16 by 112\n"
RIGHT = "value right f32[225] in joined at 105 of i1 by 15, i2 by 5, i3 by 1\n"

CHANGES = {
    # 1. memory
    "no storage": ("dense", "value b f32[33] of i0 by 1\n", "", "'b' has no storage"),
    "no memory": ("dense", "value b f32[33]", "value b f32[33] in c",
                  "'b' is in 'c', which has no memory of its own"),
    "memory of another": ("concatenation", "value x f32[45]", "value x f32[45] in left",
                          "'x' is in 'left', which has no memory of its own"),
    "another dtype": ("dense", "value b f32[33]", "value b f64[33]", "'b' is f32, but stored as f64"),
    "another size": ("concatenation", "right f32[225]", "right f32[240]",
                     "'right' has memory of 240 f32 in 'joined', which has other"),
    # 2. addresses
    "beyond the end": ("dense", RESULT, RESULT.replace("561", "560"), "'result' ends at element 560 of 560"),
    "offset beyond the end": ("concatenation", RIGHT, RIGHT.replace("at 105", "at 151"), "ends at element 225 of 225"),
    "halo beyond the end": ("convolution", RELU, RELU.replace("630", "620"), "'relu' ends at element 629 of 620"),
    "a block too few": ("dense", PACKED, PACKED.replace("336", "224"), "ends at element 335 of 224"),
    "one address for two": ("dense", RESULT, RESULT.replace("by 33", "by 32"), "has two elements at one address"),
    "blocks that overlap": ("dense", PACKED, PACKED.replace("by 112", "by 96"), "has two elements at one address"),
    "an axis left out": ("dense", RESULT, RESULT.replace(", i1 by 1", ""), "the same address for all of its axis 1"),
    "a digit left out": ("dense", PACKED, PACKED.replace(", i1 // 16 by 112", ""), "does not tell all of its axis 1"),
    "digits that do not meet": ("dense", PACKED, PACKED.replace("// 16", "// 8"), "does not tell all of its axis 1"),
    "too many axes": ("dense", RESULT, RESULT.replace("i1 by 1", "i1 by 1, i2 by 1"), "has more axes in its address"),
    "a halo of other axes": ("convolution", RELU, RELU.replace("(0, 0), (0, 0), ", "(0, 0), "), "around 3 axes"),
    "a halo beside its address": ("convolution", RELU, RELU.replace("i2 + 1", "i2"),
                                  "'relu' is padded by 1 before axis 2, and its address by 0"),
    # 3. what is fixed
    "an input in another order": ("dense", "x f32[119] of i0 by 7, i1 by 1", "x f32[119] of i0 by 1, i1 by 17",
                                  "'x' is not dense and row-major"),
    "an output in another order": ("dense", RESULT, "value result f32[561] of i0 by 1, i1 by 17\n",
                                   "'result' is not dense and row-major"),
    "an extern's operand": ("best", "value keys f32[95] of i0 by 19, i1 by 1", "value keys f32[95] of i0 by 1, i1 by 5",
                            "'keys' is not dense and row-major"),
    "an output in another's memory": ("residual", "value result f32[144]", "value result f32[144] in b",
                                      "'result' is an output and has no memory of its own"),
    "an input overwritten": ("residual", "value b f32[144]", "value b f32[144] in x",
                             "'b' is in 'x', which must not be overwritten"),
    # 4. lifetimes
    "overwritten before it is read": ("residual", "value b f32[144]", "value b f32[144] in a",
                                      "is written into the memory of 'a', which is read after it"),
    "parts that overlap": ("concatenation", RIGHT, RIGHT.replace("at 105", "at 90"),
                           "is written into the memory of"),
    # 5. halos
    "a halo too narrow": ("convolution", RELU, RELU.replace("(1, 1) fill", "(1, 0) fill"), "but is read further"),
    "a halo of another fill": ("convolution", RELU, RELU.replace("fill 0.0", "fill 1.0"), "but is read further"),
    # 6. lanes
    "no lanes": ("dense", "    lanes i1 vectors 2 along w[r0, i1] across x[i0, r0]\n", "", "'result' has no lanes"),
    "lanes along a reduced axis": ("dense", "lanes i1", "lanes r0", "which is not one of its axes"),
    "too many vectors": ("dense", "vectors 2", "vectors 9", "has tiles of 9 vectors, expected 1 to 4"),
}  # fmt: skip


def rejected(name: str, old: str, new: str) -> str:
    text = print_placed(compile_text(PROGRAMS[name], disable=("fuse.block",)).placed)
    assert old in text, text[text.index("\nregion") :]
    with pytest.raises(OpweldError) as raised:
        verify_placed(parse_placed(text.replace(old, new)))
    return str(raised.value)


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_wrong_is_told(change: str) -> None:
    name, old, new, expected = CHANGES[change]
    assert expected in rejected(name, old, new)


def test_in_place_only_where_each_element_is_read_where_it_is_overwritten() -> None:
    # c = b w1 + a may take over a, but not b, which it reads for every column
    told = rejected("residual", "value c f32[144] in a", "value c f32[144] in b")
    assert "'c' is written into the memory of 'b', which is read after it" in told
