"""The launches of variants as text, and what malformed ones are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from opweld.errors import OpweldError
from opweld.tensor.dim import as_dim
from opweld.tile.launches import print_launches, verify_launches
from opweld.tile.module import Launch, Memory, Variant
from tests.unit.tile.pipeline import Compiled, compile_text
from tests.unit.tile.programs import PROGRAMS


def compiled() -> Compiled:
    """Four products: a; b of a; c, of b, in place of a; the result of c."""
    return compile_text(PROGRAMS["residual"])


def number_of(variant: Variant, name: str) -> int:
    return next(number for number, memory in enumerate(variant.memory) if memory.name == name)


def with_launch(variant: Variant, at: int, change: Callable[[Launch], Launch]) -> Variant:
    launches = list(variant.launches)
    launches[at] = change(launches[at])
    return replace(variant, launches=tuple(launches))


def with_memory(variant: Variant, name: str, change: Callable[[Memory], Memory]) -> Variant:
    memory = tuple(change(m) if m.name == name else m for m in variant.memory)
    return replace(variant, memory=memory)


def test_launches_read_phase_by_phase() -> None:
    variant, _ = compiled().assembled
    assert print_launches(variant) == (
        "variant test\n"
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_launches_of_the_programs_are_right(name: str) -> None:
    made = compile_text(PROGRAMS[name])
    variant, _ = made.assembled
    verify_launches(variant, made.kernels)
    assert print_launches(variant).count("\n  launch ") == len(made.kernels)


CHANGES: dict[str, tuple[Callable[[Variant], Variant], str]] = {
    "not launched": (lambda v: replace(v, launches=v.launches[:-1]), "k4_contraction is not launched"),
    "launched twice": (
        lambda v: replace(v, launches=(*v.launches, v.launches[-1])),
        "k4_contraction is launched once more than it was scheduled",
    ),
    "a phase left out": (lambda v: with_launch(v, 3, lambda n: replace(n, phase=4)), "is in phase 4 after phase 2"),
    "a first phase left out": (lambda v: with_launch(v, 0, lambda n: replace(n, phase=1)), "is in phase 1 after"),
    "phases out of order": (
        lambda v: replace(v, launches=(v.launches[1], v.launches[0], *v.launches[2:])),
        "is in phase 1 after phase 0",
    ),
    "beside what it reads": (
        lambda v: with_memory(
            with_memory(
                replace(v, launches=tuple(replace(n, phase=max(0, n.phase - 1)) for n in v.launches)),
                "a",
                lambda m: replace(m, first=0),
            ),
            "b",
            lambda m: replace(m, first=0),
        ),
        "k2_contraction reads 'a' in a phase of what it depends on",
    ),
    "a buffer without memory": (
        lambda v: with_launch(v, 1, lambda n: replace(n, memory=n.memory[:-1])),
        "k2_contraction is bound to 2 pieces of memory and 0 sizes, expected 3 and 0",
    ),
    "a size too many": (
        lambda v: with_launch(v, 1, lambda n: replace(n, sizes=(as_dim(3),))),
        "is bound to 3 pieces of memory and 1 sizes, expected 3 and 0",
    ),
    "memory that is not": (
        lambda v: with_launch(v, 1, lambda n: replace(n, memory=(*n.memory[:-1], 99))),
        "is bound to memory 99 of 7",
    ),
    "a constant overwritten": (
        lambda v: with_launch(v, 1, lambda n: replace(n, memory=(*n.memory[:-1], number_of(v, "w0_packed0")))),
        "k2_contraction writes 'w0_packed0', the constant",
    ),
    "memory that is dead": (
        lambda v: with_memory(v, "a", lambda m: replace(m, last=2)),
        "k4_contraction uses 'a' in phase 3, when it does not live",
    ),
    "read before it is written": (
        lambda v: with_launch(
            with_memory(v, "b", lambda m: replace(m, first=0)),
            0,
            lambda n: replace(n, memory=(number_of(v, "b"), *n.memory[1:])),
        ),
        "k1_contraction reads 'b', which nothing has written",
    ),
    "an output left out": (
        lambda v: replace(v, names=("y", "z")),
        "none writes the output 'z'",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_wrong_is_told(change: str) -> None:
    made = compiled()
    apply, expected = CHANGES[change]
    with pytest.raises(OpweldError) as raised:
        verify_launches(apply(made.assembled[0]), made.kernels)
    assert "launches of 'test': " in str(raised.value) and expected in str(raised.value)
