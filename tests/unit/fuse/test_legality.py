from __future__ import annotations

import pytest

from opweld.fuse.legality import covers_once, inline
from opweld.tensor.expr import Load, loads
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor, TensorProgram
from opweld.tensor.verify import verify


def parse(text: str) -> tuple[TensorProgram, dict[str, Tensor]]:
    program = parse_program(text)
    verify(program)
    return program, {item.name: item for item in program.items if isinstance(item, Tensor)}


def pair(shape: str, user: str, index: str) -> tuple[Load, Tensor, Tensor]:
    """A tensor `a` of the shape, and a user that loads it at the index."""
    sizes = ", ".join(f"i{p}: {size}" for p, size in enumerate(shape.split()))
    axes = ", ".join(f"i{p}: {size}" for p, size in enumerate(user.split()))
    _, tensors = parse(
        f"program p\nsymbol n >= 1 = dim 0 of x\ninput x f32[n]\n"
        f"tensor a f32[{sizes}]\n  = x[0]\ntensor b f32[{axes}]\n  = neg(a[{index}])\noutput y = b\n"
    )
    (site,) = loads(tensors["b"].body)
    return site, tensors["b"], tensors["a"]


@pytest.mark.parametrize(
    ("shape", "user", "index"),
    [
        ("4 6", "4 6", "i0, i1"),
        ("4 6", "6 4", "i1, i0"),
        ("4 6", "24", "(i0 // 6), (i0 % 6)"),
        ("24", "4 6", "6*i0 + i1"),
        ("2 3 4", "2 12", "i0, (i1 // 4), (i1 % 4)"),
        ("n 6", "n 2 3", "i0, 3*i1 + i2"),
        ("1 6", "6", "0, i0"),
        ("6", "1 6", "i1"),
        ("1 6", "1 6", "i0, i1"),
    ],
)
def test_permutations_splits_and_merges_ask_for_each_element_once(shape: str, user: str, index: str) -> None:
    assert covers_once(*pair(shape, user, index))


@pytest.mark.parametrize(
    ("shape", "user", "index"),
    [
        ("4 6", "4 6", "i0, 5 - i1"),
        ("4 6", "4 3", "i0, 2*i1"),
        ("6", "4 6", "i1"),
        ("4 4", "4 4", "i0, i0"),
        ("24", "4 6", "5*i0 + i1"),
        ("4 6", "4 6", "i0, i1 if i1 - 1 >= 0 else 0.0"),
    ],
)
def test_other_accesses_do_not(shape: str, user: str, index: str) -> None:
    assert not covers_once(*pair(shape, user, index))


def test_guards_protect_what_is_inlined() -> None:
    _, tensors = parse(
        "program p\ninput x f32[4]\ntensor a f32[i0: 4]\n  = exp(x[i0])\n"
        "tensor b f32[i0: 6]\n  = a[i0 - 1 if i0 - 1 >= 0, 4 - i0 >= 0 else 0.0]\noutput y = b\n"
    )
    (site,) = loads(tensors["b"].body)
    found = repr(inline(site, tensors["a"]))
    assert found == "select(and(ge((i0 - 1), 0), ge((-i0 + 4), 0)), exp(x[i0 - 1]), 0.0)"


def test_guards_of_a_plain_view_are_joined() -> None:
    _, tensors = parse(
        "program p\ninput x f32[3]\ntensor a f32[i0: 4]\n  = x[i0 - 1 if i0 - 1 >= 0 else 0.0]\n"
        "tensor b f32[i0: 6]\n  = a[i0 - 1 if i0 - 1 >= 0, 4 - i0 >= 0 else 0.0]\noutput y = b\n"
    )
    (site,) = loads(tensors["b"].body)
    found = inline(site, tensors["a"])
    assert isinstance(found, Load)
    assert sorted(map(repr, found.guards)) == ["-i0 + 4", "i0 - 1", "i0 - 2"]
