"""Instructions are counted in what the disassembler prints."""

from __future__ import annotations

from opweld.codegen.triton.sass import count_instructions, spilled_bytes

TEXT = """
.text.product:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0070*/                   LDGSTS.E.BYPASS.LTC128B.128.ZFILL [R7], desc[UR4][R8.64], P0 ;
        /*0080*/              @!P0 LDG.E.U16 R3, desc[UR4][R8.64] ;
        /*0090*/               @P2 LDG.E.128 R4, desc[UR4][R8.64] ;
        /*00a0*/              @UP0 HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*00b0*/                   LDG.E R3, desc[UR4][R8.64] ;
        /*00c0*/                   STL.64 [R1+0x8], R2 ;
        /*00d0*/                   STL [R1], R2 ;
        /*00e0*/                   LDL.LU.128 R4, [R1+0x10] ;
.L_x_0:
        /*1f0e0*/                  BRA `(.L_x_0);
"""


def test_accesses_are_counted_by_their_width() -> None:
    assert count_instructions(TEXT) == {
        "BRA": 1, "HGMMA": 1, "LDC": 1, "LDG.128": 1, "LDG.16": 1, "LDG.32": 1,
        "LDGSTS.128": 1, "LDL.128": 1, "STL.32": 1, "STL.64": 1,
    }  # fmt: skip


def test_spills_are_bytes_to_and_from_local_memory() -> None:
    assert spilled_bytes(count_instructions(TEXT)) == 8 + 4 + 16
    assert spilled_bytes({"STG.128": 3, "STS.32": 1}) == 0
