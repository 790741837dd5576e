"""The launches of variants as text and back, and what malformed ones are told."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass, replace

import pytest

from opweld.errors import OpweldError
from opweld.tensor.dim import Symbol
from opweld.tensor.dtype import DType
from opweld.tensor.program import Guard, Input, SymbolSource
from opweld.tile.launches import parse_launches, print_launches, verify_launches
from opweld.tile.module import Launch, Memory, ModuleVariant
from opweld.tile.tile import Buffer, Kernel
from tests.unit.tile.pipeline import Compiled, compile_text
from tests.unit.tile.programs import PROGRAMS, convolution, symbols

SYMBOLIC = {"symbolic": convolution(3, 10, "H", "W", 1, "N", symbols(N="0 of x", H="2 of x", W="3 of x"))}


def compiled() -> Compiled:
    """Four products: a; b of a; c, of b, in place of a; the result of c."""
    return compile_text(PROGRAMS["residual"], disable=("fuse.block",))


def kernels_of(variant: ModuleVariant) -> dict[str, Kernel]:
    return {launch.kernel.name: launch.kernel for launch in variant.launches}


def fields_of(value: object) -> dict[str, object]:
    """The fields of a dataclass that is not compared by them."""
    assert is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def without_costs(text: str) -> str:
    """The text without the lines that say what launches cost, which schedules decide."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("    "))


def test_launches_read_phase_by_phase() -> None:
    variant, _ = compiled().assembled
    assert without_costs(print_launches(variant)) == (
        "variant test\n"
        "input x f32[9, 16]\n"
        "output y f32[9, 16]\n"
        "\n"
        "memory x input 0\n"
        "memory w0_packed0 constant at 0\n"
        "memory a arena 576 bytes from phase 0 to 3\n"
        "memory w1_packed0 constant at 1\n"
        "memory b arena 576 bytes from phase 1 to 2\n"
        "memory w2_packed0 constant at 2\n"
        "memory result output 0\n"
        "\n"
        "phase 0\n"
        '  launch k1_contraction reads x, w0_packed0 writes a from "MatMul", "Relu"\n'
        "phase 1\n"
        '  launch k2_contraction reads a, w1_packed0 writes b from "MatMul_1"\n'
        "phase 2\n"
        '  launch k3_contraction reads b, w1_packed0 updates a from "MatMul_3", "Add"\n'
        "phase 3\n"
        '  launch k4_contraction reads a, w2_packed0 writes result from "MatMul_2"\n'
    )


def test_a_launch_says_what_it_costs_and_of_which_sizes() -> None:
    n = Symbol("n", 1)
    buffers = (Buffer("x", DType.F32, "read"), Buffer("y", DType.F32, "write"))
    kernel = Kernel("k1_map", buffers, (n,), (), ())
    launch = Launch(kernel, (0, 1), (n.dim,), n.dim * 3 + 300, n.dim * 8, n.dim, serial=True, origin=("Relu",))
    memory = (Memory("input", index=0, name="x"), Memory("output", index=0, name="y"))
    source = SymbolSource(n, "x", 0)
    shape = (DType.F32, (n.dim,))
    guard = Guard("least", n.dim - 2, "Relu wants two")
    variant = ModuleVariant("main", (Input("x", *shape),), (source,), (guard,), memory, (launch,), (shape,), ("y",))
    text = print_launches(variant)
    assert text == (
        "variant main\n"
        "symbol n >= 1 = dim 0 of x\n"
        'guard n - 2 >= 0 because "Relu wants two"\n'
        "input x f32[n]\n"
        "output y f32[n]\n"
        "\n"
        "memory x input 0\n"
        "memory y output 0\n"
        "\n"
        "phase 0\n"
        '  launch k1_map reads x writes y serial from "Relu"\n'
        "    bytes 8*n flops n work 3*n + 300 sizes n\n"
    )
    assert_same(parse_launches(text, {"k1_map": kernel}), variant)


def assert_same(one: ModuleVariant, other: ModuleVariant) -> None:
    """Every field is the same, but for guards and launches, whose fields are."""
    for name in ("guards", "launches"):
        assert list(map(fields_of, getattr(one, name))) == list(map(fields_of, getattr(other, name)))
    assert fields_of(replace(one, guards=(), launches=())) == fields_of(replace(other, guards=(), launches=()))


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", [*PROGRAMS, *SYMBOLIC])
def test_launches_of_the_programs_are_right_and_come_back(name: str, level: str) -> None:
    made = compile_text((PROGRAMS | SYMBOLIC)[name], level=level)
    variant, _ = made.assembled
    verify_launches(variant, made.kernels)
    text = print_launches(variant)
    assert text.count("\n  launch ") == len(made.kernels)
    again = parse_launches(text, kernels_of(variant))
    verify_launches(again, made.kernels)
    assert_same(again, variant)
    assert print_launches(again) == text


@pytest.mark.parametrize("name", ["reads", "serial", "from", "arena", "phase", "bytes", 'quo"te', "a, b", "i0", "ü"])
def test_any_name_comes_back(name: str) -> None:
    text = PROGRAMS["residual"].replace("tensor b ", f"tensor {json.dumps(name)} ")
    variant, _ = compile_text(text.replace("b[", f"{json.dumps(name)}[")).assembled
    assert name in {memory.name for memory in variant.memory}
    assert_same(parse_launches(print_launches(variant), kernels_of(variant)), variant)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("variant test", "variants test", "expected 'variant', found 'variants'"),
        ("memory x input", "memory x register", "expected input, output, constant or arena, found 'register'"),
        ("memory b arena", "memory a arena", "expected a name that no memory before has, found 'a'"),
        ("576 bytes", "576*n bytes", "expected a size or an index that is known here, found 'n'"),
        ("phase 3\n", "phase\n", "expected an integer, found 'launch'"),
        ("phase 3\n", "phase 3 phase 4\n", "expected 'launch', found 'phase'"),
        ("k4_contraction", "k9_contraction", "expected one of the kernels, found 'k9_contraction'"),
        ("reads x, w0_packed0", "reads x, w9", "expected one of the pieces of memory, found 'w9'"),
        (
            "reads x, w0_packed0",
            "reads x",
            "expected memory for the 2 buffers that k1_contraction reads, found 'writes'",
        ),
        ("writes b", "updates b", "expected memory for the 1 buffers that k2_contraction writes, found 'updates'"),
        (" flops ", " operations ", "expected 'flops', found 'operations'"),
        ('"MatMul_2"', '"MatMul_2" twice', "expected 'bytes', found 'twice'"),
    ],
)
def test_what_is_not_understood_is_told_with_its_line(old: str, new: str, expected: str) -> None:
    variant, _ = compiled().assembled
    text = print_launches(variant)
    assert old in text
    with pytest.raises(OpweldError, match=r"launches, line [0-9]+: ") as raised:
        parse_launches(text.replace(old, new, 1), kernels_of(variant))
    assert expected in str(raised.value)


CHANGES: dict[str, tuple[str, str, str]] = {
    "not launched": (r"phase 3\n.*", "", "k4_contraction is not launched"),
    "launched twice": (r"(phase 3\n)(.*)", r"\1\2\2", "k4_contraction is launched once more than it was scheduled"),
    "a phase left out": (r"\nphase 3", "\nphase 4", "k4_contraction is in phase 4 after phase 2"),
    "a first phase left out": (r"\nphase 0", "\nphase 1", "k1_contraction is in phase 1 after phase 0"),
    "phases out of order": (r"\nphase 2", "\nphase 0", "k3_contraction is in phase 0 after phase 1"),
    "beside what it reads": (r"\nphase 3", "", "k4_contraction reads 'a' in a phase of what it depends on"),
    "a size too many": (
        r"(k2_contraction.*?work [0-9]+)",
        r"\1 sizes 3",
        "k2_contraction is bound to 3 pieces of memory and 1 sizes, expected 3 and 0",
    ),
    "a constant overwritten": (r"writes b", "writes w0_packed0", "k2_contraction writes 'w0_packed0', the constant"),
    "memory that is dead": (r"0 to 3", "0 to 2", "k4_contraction uses 'a' in phase 3, when it does not live"),
    "read before it is written": (
        r"reads a, w1_packed0 writes b",
        "reads b, w1_packed0 writes b",
        "k2_contraction reads 'b', which nothing has written",
    ),
    "an output left out": (r"(output )y(.*?\n)", r"\1y\2\1z\2", "none writes the output 'z'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_wrong_is_told(change: str) -> None:
    made = compiled()
    variant, _ = made.assembled
    old, new, expected = CHANGES[change]
    text, count = re.subn(old, new, print_launches(variant), count=1, flags=re.DOTALL)
    assert count == 1
    with pytest.raises(OpweldError) as raised:
        verify_launches(parse_launches(text, kernels_of(variant)), made.kernels)
    assert "launches of 'test': " in str(raised.value) and expected in str(raised.value)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ((0, 1), "k2_contraction is bound to 2 pieces of memory and 0 sizes, expected 3 and 0"),
        ((0, 1, 99), "k2_contraction is bound to memory 99 of 7"),
    ],
)
def test_memory_that_no_text_says_is_wrong_too(memory: tuple[int, ...], expected: str) -> None:
    made = compiled()
    variant, _ = made.assembled
    first, second, *others = variant.launches
    launches = (first, replace(second, memory=memory), *others)
    with pytest.raises(OpweldError, match=expected):
        verify_launches(replace(variant, launches=launches), made.kernels)
