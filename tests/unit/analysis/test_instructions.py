"""Classes of instructions, of assembly as compilers write it."""

from __future__ import annotations

import pytest

from opweld.analysis.instructions import instruction_classes


@pytest.mark.parametrize(
    ("lines", "classes"),
    [
        (
            ["vpdpbusd (%rax), %zmm0, %zmm1", "vfmadd231ps %ymm1, %ymm2, %ymm3", "vmovups %zmm0, (%rdi)"],
            ("vpdpbusd 512-bit", "fma 256-bit"),
        ),
        (["vfmadd213ss %xmm1, %xmm2, %xmm3", "vfmadd213ps %xmm1, %xmm2, %xmm3"], ("fma 128-bit", "fma scalar")),
        (
            ["vpmaddwd %ymm1, %ymm2, %ymm3", "vpaddd %ymm1, %ymm2, %ymm3"],
            ("vpmaddwd 256-bit", "integer arithmetic 256-bit"),
        ),
        (["vdpbf16ps %zmm1, %zmm2, %zmm3"], ("vdpbf16ps 512-bit",)),
        (["udot v1.4s, v2.16b, v3.4b[1]", "fmla v1.4s, v2.4s, v3.s[0]"], ("udot 128-bit", "fma 128-bit")),
        (["fmadd s0, s1, s2, s3", "smmla v1.4s, v2.16b, v3.16b"], ("smmla 128-bit", "fma scalar")),
        (["vmaxps %zmm1, %zmm2, %zmm3", "addq $8, %rax"], ("float arithmetic 512-bit",)),
        (["vgatherdps (%rax,%ymm1), %ymm2, %ymm3"], ("gather 256-bit",)),
        (["leaq (%rax), %rbx", "ret"], ()),
    ],
)
def test_classes_of_instructions(lines: list[str], classes: tuple[str, ...]) -> None:
    assert instruction_classes(lines) == classes
