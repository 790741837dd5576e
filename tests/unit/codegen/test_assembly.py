"""Micro-kernels keep their accumulators in registers; the check itself finds spills."""

from __future__ import annotations

import platform

import pytest

from opweld.analysis.resources import Resources, Spill, innermost_loops, resource_text, resources_of, spills
from opweld.target import Target
from opweld.tile.tile import Kernel
from tests.unit.codegen.compiled import assembly, source
from tests.unit.codegen.hand_written import conv3x3, gemm

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembly is read as that of x86-64")

NESTED = """
.LBB0_1:
	vmovups	%zmm1, 64(%rsp)                 # 64-byte Spill
.LBB0_2:
	vfmadd231ps	(%rsi), %zmm2, %zmm1
	vmovups	128(%rsp), %zmm3                # 64-byte Reload
	movq	8(%rsp), %rax
	jne	.LBB0_2
	jmp	.LBB0_1
	vmovups	%zmm1, 64(%rsp)
"""


def test_finds_spills_of_innermost_loops_only() -> None:
    assert spills(NESTED.splitlines()) == [Spill(".LBB0_2", "vmovups\t128(%rsp), %zmm3")]
    assert innermost_loops(NESTED.splitlines()) == [(3, 7)]


def test_finds_them_in_a_tile_that_no_register_file_holds() -> None:
    text = assembly(source(gemm(160, 64, 64, rows=20), 16), Target.of("x86-64-v4"))
    assert spills(text.splitlines())


@pytest.mark.parametrize(
    "kernel",
    [
        gemm(128, 768, 768, 8, 32),
        gemm(140, 768, 768, 14, 32),
        gemm(128, 768, 768, 8, 48),
        gemm(126, 768, 768, 6, 64),
        conv3x3(28, 28, 128, 128, 14),
        conv3x3(28, 28, 128, 128, 8),
    ],
    ids=["gemm 8x32", "gemm 14x32", "gemm 8x48", "gemm 6x64", "conv 14x32", "conv 8x32"],
)
def test_avx512_micro_kernels_do_not_spill(kernel: Kernel) -> None:
    text = assembly(source(kernel, 16), Target.of("x86-64-v4"))
    assert "vfmadd" in text
    assert "%zmm" in text
    assert spills(text.splitlines()) == []


@pytest.mark.parametrize("rows", [4, 6])
def test_avx2_micro_kernels_do_not_spill(rows: int) -> None:
    text = assembly(source(gemm(24, 64, 64, rows, 16), 8), Target.of("x86-64-v3"))
    assert "vfmadd" in text
    assert spills(text.splitlines()) == []


X86 = """
opw_a:                                  # @opw_a
.Lfunc_begin0:
	subq	$200, %rsp
.LBB0_1:                                # =>This Inner Loop
	vmovups	64(%rsp), %zmm3                 # 64-byte Reload
	vaddps	%ymm3, %ymm17, %ymm3
	jne	.LBB0_1
	retq
.Lfunc_end0:
	.size	opw_a, .Lfunc_end0-opw_a
opw_b:                                  # @opw_b
	retq
.Lfunc_end1:
"""

ARM = """
opw_a:                                  // @opw_a
.Lfunc_begin0:
	sub	sp, sp, #96
.LBB0_1:
	ldr	q4, [sp, #16]                   // 16-byte Folded Reload
	fmla	v0.4s, v4.4s, v1.s[0]
	subs	x8, x8, #1
	b.ne	.LBB0_1
	ldr	q5, [sp, #32]
.Lfunc_end0:
"""


POINTER = """
opw_a:                                  # @opw_a
.LBB0_1:
	vfmadd231ps	(%rbp,%rax), %zmm2, %zmm1
	jne	.LBB0_1
.Lfunc_end0:
"""


def test_a_frame_pointer_is_a_pointer_like_any_other_where_no_frame_is_set_up() -> None:
    assert resources_of(POINTER)["opw_a"].spills == ()
    framed = POINTER.replace(".LBB0_1:\n", "\tmovq\t%rsp, %rbp\n.LBB0_1:\n", 1)
    assert len(resources_of(framed)["opw_a"].spills) == 1


def test_resources_of_functions() -> None:
    found = resources_of(X86)
    spill = Spill(".LBB0_1", "vmovups\t64(%rsp), %zmm3")
    assert found["opw_a"] == Resources(2, (spill,), 200, ("float arithmetic 256-bit",))
    assert found["opw_b"] == Resources(0, (), 0)
    spill = Spill(".LBB0_1", "ldr\tq4, [sp, #16]")
    assert resources_of(ARM)["opw_a"] == Resources(4, (spill,), 96, ("fma 128-bit",))
    assert resource_text(found["opw_b"]) == (
        "no arithmetic; 0 vector registers, none spilled in its inner loops, 0 bytes of stack"
    )
    assert "1 spilled" in resource_text(found["opw_a"])
