"""Simplification of whole programs: what is folded, merged, forwarded and removed, and what must stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opweld.tensor import fold
from opweld.tensor.dim import Axis, Symbol, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Expr, Load, binary, cast, const, index, load, reduce, select, unary
from opweld.tensor.fold import Answer, Folding
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import (
    Constant,
    Extern,
    Input,
    Item,
    Result,
    Scan,
    State,
    SymbolSource,
    Tensor,
    TensorProgram,
)
from opweld.tensor.simplify import canonical_body, simplify_program
from opweld.tensor.verify import verify
from tests.unit.tensor.programs import (
    EXAMPLES,
    F32,
    I64,
    Array,
    axes,
    convolution,
    f32,
    normal,
    normalization,
    read,
    recurrence,
    shape,
    stored,
)


def program(*items: Item, constants: tuple[Constant, ...] = (), outputs: tuple[str, ...] = ("y",)) -> TensorProgram:
    made = TensorProgram(
        "p", (Input("x", F32, shape(4)),), constants, items, tuple((f"out {name}", name) for name in outputs)
    )
    verify(made)
    return made


def elementwise(name: str, body: Callable[[Axis], Expr], size: int = 4, origin: str = "") -> Tensor:
    (i,) = axes(i=size)
    made = body(i)
    return Tensor(name, made.dtype, (i,), made, (origin,) if origin else ())


def names(p: TensorProgram) -> list[str]:
    return [item.name for item in p.items if isinstance(item, Tensor)]


def simplified(p: TensorProgram) -> TensorProgram:
    result = simplify_program(p)
    verify(result)
    assert simplify_program(result) is result
    return result


@pytest.mark.parametrize("name", ["convolution", "recurrence", "embedding", "softmax"])
def test_a_program_with_nothing_to_do_stays_the_same_object(name: str) -> None:
    p = EXAMPLES[name]().program
    assert simplify_program(p) is p


def test_normalization_loses_everything_that_is_not_needed() -> None:
    result = simplified(normalization().program)
    assert names(result) == ["mean", "centred", "variance", "normed"]
    assert [constant.name for constant in result.constants] == ["scale"]
    assert result.outputs == (("out", "normed"),)


def test_constants_are_folded_in_float64_and_rounded_once() -> None:
    a, b = np.array([1e8], np.float32), np.array([1.0], np.float32)
    total = elementwise("sum", lambda i: binary("add", read("a", i), read("b", i)), 1)
    rest = elementwise("rest", lambda i: binary("sub", read("sum", i), read("a", i)), 1)
    y = elementwise("y", lambda i: binary("mul", read("x", i), load("rest", F32, (i.dim * 0,))))
    result = simplified(program(total, rest, y, constants=(stored("a", a), stored("b", b))))
    assert names(result) == ["y"]
    assert interpret(result, {"x": normal(4)})["out y"].tolist() == normal(4).tolist()


def test_uniform_constants_become_literals_with_guards() -> None:
    (i,) = axes(i=4)
    padded = load("c", F32, (i.dim - 1,), (i.dim - 1,), f32(5))
    y = Tensor("y", F32, (i,), binary("add", read("x", i), padded))
    result = simplified(program(y, constants=(stored("c", np.full(3, 2, np.float32)),)))
    assert not result.constants
    assert interpret(result, {"x": np.zeros(4, np.float32)})["out y"].tolist() == [5, 2, 2, 2]


def test_a_gather_of_a_uniform_constant_keeps_its_check() -> None:
    from opweld.tensor.dim import Value

    (i,) = axes(i=4)
    row = Value(cast(read("x", i), I64), 3)
    y = Tensor("y", F32, (i,), load("c", F32, (row.dim,)))
    p = program(y, constants=(stored("c", np.full(3, 2, np.float32)),))
    assert simplify_program(p) is p


def test_a_constant_that_fails_is_left_to_run_time_and_reported() -> None:
    zero = stored("zero", np.array([0, 1]))
    bad = elementwise("bad", lambda i: binary("div", const(1, I64), read("zero", i, dtype=I64)), 2)
    y = elementwise("y", lambda i: binary("add", read("x", i), cast(load("bad", I64, (i.dim * 0,)), F32)))
    p, asked = program(bad, y, constants=(zero,)), list[Folding]()

    def note(found: Folding) -> Answer:
        asked.append(found)
        return "in every run" if found.refused else "now"

    assert simplify_program(p, note) is p
    assert [found.name for found in asked] == ["bad"]
    assert "divides by zero" in str(asked[0].refused["error"])


def exchanged(cut: int) -> TensorProgram:
    """The rows of x + x from the cut on, and those before it behind them."""
    i, j = axes(i=4, j=3)
    double = Tensor("double", F32, (i, j), binary("add", read("x", i, j), read("x", i, j)))
    k, m = axes(k=4 - cut, m=cut)
    tail = Tensor("tail", F32, (k, j), load("double", F32, (k.dim + cut, j.dim)))
    head = Tensor("head", F32, (m, j), load("double", F32, (m.dim, j.dim)))
    first, second = load("tail", F32, (i.dim, j.dim)), load("head", F32, (i.dim - (4 - cut), j.dim))
    y = Tensor("y", F32, (i, j), select(binary("ge", index(3 - cut - i.dim), const(0, I64)), first, second))
    made = TensorProgram("p", (Input("x", F32, shape(4, 3)),), (), (double, tail, head, y), (("out", "y"),))
    verify(made)
    return made


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_parts_that_exchange_places_are_one_load(cut: int) -> None:
    p = exchanged(cut)
    result = simplified(p)
    assert names(result) == ["double", "y"]
    assert isinstance(result.items[1], Tensor) and isinstance(result.items[1].body, Load)
    x = normal(4, 3)
    assert interpret(result, {"x": x})["out"].tolist() == np.roll(x + x, -cut, 0).tolist()


def test_what_is_taken_apart_and_put_together_is_what_it_was() -> None:
    p = parse_program(
        "program p\ninput x f32[4, 2]\ntensor e f32[i0: 4, i1: 2]\n  = exp(x[i0, i1])\n"
        "tensor a f32[i0: 4]\n  = e[i0, 0]\ntensor b f32[i0: 4]\n  = e[i0, 1]\n"
        "tensor c f32[i0: 4, i1: 1]\n  = a[i0]\ntensor d f32[i0: 4, i1: 1]\n  = b[i0]\n"
        "tensor y f32[i0: 4, i1: 2]\n  = select(ge(index(-i1), 0:i64), c[i0, 0], d[i0, 0])\noutput out = y\n"
    )
    result = simplified(p)
    assert names(result) == ["e"]
    x = normal(4, 2)
    assert interpret(result, {"x": x})["out"].tobytes() == interpret(p, {"x": x})["out"].tobytes()


WRITTEN = {
    "rows": ("index(3*i0 + 6)", "i0: 2", "2, 3", "12, 2, 3", True),
    "a row": ("3", "i0: 1", "1, 3", "12, 1, 3", True),
    "a row along an axis of one": ("index(3*i0 + 3)", "i0: 1", "1, 3", "12, 1, 3", True),
    "an element along axes of one": ("index(3*i0 + i1 + 4)", "i0: 1, i1: 1", "1, 1", "12, 1, 1", True),
    "a block": ("index(3*i0 + i1 + 4)", "i0: 2, i1: 2", "2, 2", "12, 4, 1", True),
    "every other row": ("index(6*i0)", "i0: 2", "2, 3", "12, 2, 3", False),
    "rows across rows": ("index(3*i0 + 1)", "i0: 2", "2, 3", "12, 2, 3", False),
    "rows beyond": ("index(3*i0 + 9)", "i0: 2", "2, 3", "12, 2, 3", False),
    "a block across rows": ("index(3*i0 + i1 + 2)", "i0: 2, i1: 2", "2, 2", "12, 4, 1", False),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_block_that_is_written_is_a_choice(name: str) -> None:
    body, axes_, updates, numbers, plain = WRITTEN[name]
    p = parse_program(
        f"program p\ninput x f32[4, 3]\ninput u f32[{updates}]\ntensor places i64[{axes_}]\n  = {body}\n"
        f"extern scatter rows 1 of ({numbers})\n  operand x\n  operand places\n  operand u\n  result y f32[4, 3]\n"
        "output out = y\n"
    )
    result = simplify_program(p)
    verify(result)
    assert any(isinstance(item, Extern) for item in result.items) is not plain
    if name != "rows beyond":
        feeds = {"x": normal(4, 3), "u": normal(*map(int, updates.split(", ")))}
        feeds["x"][0, 0], feeds["u"][0, 0] = np.nan, -0.0
        assert interpret(result, feeds)["out"].tobytes() == interpret(p, feeds)["out"].tobytes()


def test_nothing_is_written_where_there_is_nothing() -> None:
    p = parse_program(
        "program p\ninput x f32[4, 0]\ninput u f32[2, 0]\ntensor places i64[i0: 2]\n  = 0:i64\n"
        "extern scatter rows 1 of (0, 2, 0)\n  operand x\n  operand places\n  operand u\n  result y f32[4, 0]\n"
        "output out = y\n"
    )
    verify(simplify_program(p))


def test_parts_that_are_read_with_guards_stay_parts() -> None:
    p = parse_program(
        "program p\ninput x f32[4]\ntensor e f32[i0: 4]\n  = exp(x[i0])\ntensor a f32[i0: 4]\n  = e[-i0 + 3]\n"
        "tensor b f32[i0: 2, i1: 4]\n"
        "  = select(ge(index(-i0), 0:i64), a[i1 if i1 - 2 >= 0 else 7.0], a[i1])\noutput out = b\n"
    )
    x = normal(4)
    assert interpret(simplified(p), {"x": x})["out"].tobytes() == interpret(p, {"x": x})["out"].tobytes()


def scattered(data: Array, places: Array, updates: Array) -> TensorProgram:
    """x + the data with one element replaced at each place."""
    numbers = tuple(as_dim(n) for n in (data.size, places.size, updates.size // places.size))
    call = Extern(
        "scatter", ("data", "places", "updates"), (Result("t", F32, shape(4)),), numbers, as_dim(1), ("node",)
    )
    y = elementwise("y", lambda i: binary("add", read("x", i), read("t", i)))
    constants = (stored("data", data), stored("places", places), stored("updates", updates))
    return program(call, y, constants=constants)


def test_an_extern_of_constants_is_folded_to_the_bit() -> None:
    data = np.array([1, -0.0, np.nan, np.inf], np.float32)
    p, asked = scattered(data, np.array([3, 0]), np.array([-0.0, 5], np.float32)), list[Folding]()
    result = simplify_program(p, lambda found: (asked.append(found), "now")[1])
    verify(result)
    assert [type(item) for item in result.items] == [Tensor]
    (folded,) = result.constants
    assert folded.read().tobytes() == np.array([5, -0.0, np.nan, -0.0], np.float32).tobytes()
    assert [(found.name, found.origin, found.after) for found in asked] == [("t", ("node",), 16)]


def test_an_extern_that_is_to_stay_stays() -> None:
    p = scattered(np.zeros(4, np.float32), np.array([1]), np.ones(1, np.float32) * 2)
    assert any(isinstance(item, Extern) for item in simplify_program(p, lambda found: "in every run").items)


def test_an_extern_that_fails_or_takes_long_is_left_to_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Folding] = []

    def note(found: Folding) -> Answer:
        asked.append(found)
        return "in every run" if found.refused else "now"

    outside = scattered(normal(4), np.array([4]), np.ones(1, np.float32))
    assert simplify_program(outside, note) is outside
    assert "out of range" in str(asked[-1].refused["error"])
    monkeypatch.setattr(fold, "EXTERN_WORK", 4)
    long = scattered(normal(4), np.array([3]), np.ones(1, np.float32))
    assert simplify_program(long, note) is long
    assert asked[-1].refused == {"operations": 5, "budget": 4}


def test_big_results_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "RESULT_BYTES", 1000)
    c = stored("c", normal(100))
    i, j = axes(i=100, j=5)
    grown = Tensor("grown", F32, (i, j), binary("mul", read("c", i), cast(index(j.dim), F32)))
    k, m = axes(k=100, m=4)
    small = Tensor("small", F32, (k, m), binary("mul", read("c", k), cast(index(m.dim), F32)))
    p, asked = program(grown, small, constants=(c,), outputs=("grown", "small")), dict[str, Folding]()

    def decide(found: Folding) -> Answer:
        asked[found.name] = found
        return "in every run" if found.refused else "now"

    assert names(simplify_program(p, decide)) == ["grown"]
    assert (asked["grown"].before, asked["grown"].after) == (400, 2000)
    assert asked["grown"].refused == {"bytes": 2000, "budget": 1600}
    assert (asked["small"].after, asked["small"].budget, asked["small"].refused) == (1600, 1600, {})
    assert names(simplify_program(p, lambda found: "in every run")) == ["grown", "small"], "who decides is heeded"


def test_terabytes_are_neither_folded_nor_made() -> None:
    size = 1 << 40
    (i,) = axes(i=size)
    ramp = Tensor("ramp", F32, (i,), cast(index(3 * i.dim), F32))
    (k,) = axes(k=size)
    far = Tensor("y", F32, (), reduce("max", (k,), read("ramp", k)))
    p = program(ramp, far)
    assert simplify_program(p) is p


def test_what_counts_is_no_tensor_of_its_own() -> None:
    """As exporters write indices: a range, an axis more, another range beside it, and a row of the two."""
    size = 300_000
    i, j, m, n = axes(i=size, j=size, m=size, n=size)
    ramp = Tensor("ramp", I64, (i,), index(3 * i.dim + 1))
    (two,) = axes(two=2)
    pair = select(binary("ge", index(-two.dim), const(0, I64)), read("ramp", j, dtype=I64), index(j.dim))
    pairs = Tensor("pairs", I64, (j, two), pair)
    y = Tensor("y", I64, (m,), binary("add", load("pairs", I64, (m.dim, as_dim(0))), load("ramp", I64, (m.dim,))))
    z = Tensor("z", I64, (n,), load("pairs", I64, (n.dim, as_dim(1)), (9 - n.dim,), const(-1, I64)))
    made = simplify_program(program(ramp, pairs, y, z, outputs=("y", "z")))
    assert names(made) == ["y", "z"]
    bodies = [item.body for item in made.items if isinstance(item, Tensor)]
    (m,), (n,) = (item.axes for item in made.items if isinstance(item, Tensor))
    assert bodies[0] is index(6 * m.dim + 2)
    assert bodies[1] is select(binary("ge", index(9 - n.dim), const(0, I64)), index(n.dim), const(-1, I64))


def test_what_counts_and_is_an_output_or_picked_at_run_time_is_a_tensor() -> None:
    i, m = axes(i=4, m=4)
    ramp = Tensor("ramp", I64, (i,), index(3 * i.dim))
    place = Value(cast(read("x", m), I64), as_dim(4))
    y = Tensor("y", I64, (m,), load("ramp", I64, (place.dim,)))
    p = program(ramp, y, outputs=("ramp", "y"))
    assert simplify_program(p) is p


@pytest.mark.parametrize(("step", "known"), [(1, True), (2, False), (-1, False)])
def test_an_index_of_the_run_that_is_a_position_is_checked_where_it_can_fail(step: int, known: bool) -> None:
    i, m = axes(i=4, m=4)
    ramp = Tensor("ramp", I64, (i,), index(step * i.dim))
    y = Tensor("y", F32, (m,), load("x", F32, (Value(read("ramp", m, dtype=I64), as_dim(4)).dim,)))
    (item,) = simplify_program(program(ramp, y)).items
    assert isinstance(item, Tensor)
    (m,) = item.axes
    place = m.dim if known else Value(index(step * m.dim), as_dim(4)).dim
    assert item.body is load("x", F32, (place,))


def test_generated_tensors_stay_code() -> None:
    i, j = axes(i=64, j=64)
    mask = Tensor("mask", F32, (i, j), select(binary("le", index(j.dim), index(i.dim)), f32(0), f32(-1)))
    (m,) = axes(m=4)
    y = Tensor("y", F32, (m,), binary("add", read("x", m), read("mask", m, 0)))
    p = program(mask, y)
    assert simplify_program(p) is p


def test_big_constants_are_computed_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "EAGER_BYTES", 16)
    reads: list[int] = []
    data = normal(40)

    def read_data() -> Array:
        reads.append(1)
        return data

    monkeypatch.setattr(fold, "UNIFORM_ELEMENTS", 0)
    from opweld.tensor import simplify as module

    monkeypatch.setattr(module, "MERGE_BYTES", 0)
    doubled = elementwise("doubled", lambda i: binary("mul", read("c", i), f32(2)), 40)
    y = elementwise("y", lambda i: binary("add", read("x", i), read("doubled", i)))
    result = simplified(program(doubled, y, constants=(Constant("c", F32, (40,), read_data),)))
    assert not reads
    assert [constant.name for constant in result.constants] == ["doubled"]
    assert np.array_equal(result.constants[0].read(), data * 2)
    assert reads


def test_identical_tensors_are_merged_with_their_origins() -> None:
    def row(name: str, origin: str) -> Tensor:
        i, k = axes(**{f"i_{name}": 4, f"k_{name}": 4})
        exp = unary("exp", binary("mul", read("x", i), read("x", k)))
        return Tensor(name, F32, (i,), reduce("sum", (k,), exp), (origin,))

    one, two = row("one", "A"), row("two", "B")
    y = elementwise("y", lambda i: binary("add", read("one", i), read("two", i)))
    result = simplified(program(one, two, y, outputs=("y", "two")))
    assert names(result) == ["one", "y"]
    assert result.items[0].origin == ("A", "B")
    assert result.outputs == (("out y", "y"), ("out two", "one"))


def test_tensors_that_differ_in_extent_are_not_merged() -> None:
    one = elementwise("one", lambda i: unary("exp", read("x", i)), 4)
    two = elementwise("two", lambda i: unary("exp", read("x", i)), 3)
    p = program(one, two, outputs=("one", "two"))
    assert simplify_program(p) is p


def test_identical_constants_are_merged() -> None:
    data = normal(4)
    constants = (stored("a", data), stored("b", data.copy()), stored("c", -data))
    total = elementwise("y", lambda i: binary("add", binary("mul", read("x", i), read("a", i)), read("b", i)))
    other = elementwise("z", lambda i: binary("add", read("x", i), read("c", i)))
    result = simplified(program(total, other, constants=constants, outputs=("y", "z")))
    assert [constant.name for constant in result.constants] == ["a", "c"]


def test_copies_are_forwarded_but_a_copied_input_stays_an_output() -> None:
    copy = elementwise("copy", lambda i: read("x", i))
    again = elementwise("again", lambda i: read("copy", i))
    y = elementwise("y", lambda i: unary("exp", read("again", i)))
    last = elementwise("last", lambda i: read("y", i))
    result = simplified(program(copy, again, y, last, outputs=("last", "copy")))
    assert names(result) == ["copy", "y"]
    assert result.outputs == (("out last", "y"), ("out copy", "copy"))
    assert isinstance(body := result.items[1].body, Expr) and "x[" in repr(body)  # type: ignore[union-attr]


def test_a_slice_is_not_a_copy() -> None:
    part = elementwise("part", lambda i: read("x", i), 3)
    p = program(part, outputs=("part",))
    assert simplify_program(p) is p


def test_dead_parts_of_a_scan_are_removed() -> None:
    time = Axis("t", 3)
    states = (State("a", F32, (), f32(0), "a2"), State("b", F32, (), f32(1), "b2"))
    steps = (
        Tensor("a2", F32, (), binary("add", read("a"), f32(1))),
        Tensor("b2", F32, (), binary("mul", read("b"), read("a2"))),
    )
    scan = Scan(time, states, steps, (("bs", "b2"), ("as", "a2")), (("a last", "a"),))
    p = program(scan, outputs=("as",))
    result = simplified(p)
    (live,) = result.items
    assert isinstance(live, Scan)
    assert [state.name for state in live.states] == ["a"]
    assert live.stacked == (("as", "a2"),) and not live.final
    assert interpret(result, {"x": normal(4)})["out as"].tolist() == [1, 2, 3]


def test_symbols_survive() -> None:
    n = Symbol("n")
    i = Axis("i", n.dim)
    p = TensorProgram(
        "p",
        (Input("x", F32, (n.dim,)),),
        (),
        (Tensor("y", F32, (i,), binary("mul", read("x", i), f32(1))),),
        (("y", "y"),),
        (SymbolSource(n, "x", 0),),
    )
    result = simplified(p)
    assert isinstance(result.items[0], Tensor) and isinstance(result.items[0].body, Load)
    assert result.symbols == p.symbols


def test_canonical_bodies_tell_apart_what_differs() -> None:
    i, j, k = axes(i=4, j=4, k=3)
    a = canonical_body((i, j), binary("sub", read("z", i, j), reduce("sum", (k,), read("z", k, i))))
    m, n, o = axes(m=4, n=4, o=3)
    b = canonical_body((m, n), binary("sub", read("z", m, n), reduce("sum", (o,), read("z", o, m))))
    swapped = canonical_body((n, m), binary("sub", read("z", m, n), reduce("sum", (o,), read("z", o, m))))
    assert a is b
    assert a is not swapped
    assert isinstance(a, Binary)


def test_convolution_and_recurrence_have_no_dead_inputs() -> None:
    for example in (convolution(), recurrence()):
        assert simplify_program(example.program).inputs == example.program.inputs


def test_a_merge_does_not_confuse_dtypes() -> None:
    one = elementwise("one", lambda i: cast(read("x", i), DType.F16))
    two = elementwise("two", lambda i: cast(read("x", i), DType.BF16))
    p = program(one, two, outputs=("one", "two"))
    assert simplify_program(p) is p


def counting(data: Array) -> tuple[Item, ...]:
    """What is left of a tensor that is a stored one of 600 x 500, as float32: nothing where it is a constant."""
    i, j = axes(i=600, j=500)
    body = cast(load("stored", I64, (i.dim, j.dim)), F32)
    return simplify_program(program(Tensor("y", F32, (i, j), body), constants=(stored("stored", data),))).items


@pytest.mark.parametrize(("first", "down", "along"), [(0, 3, 1), (7, -2, 0), (-5, 0, 4), (1 << 30, 1 << 30, -1)])
def test_constants_that_count_are_positions(first: int, down: int, along: int) -> None:
    (item,) = counting(first + down * np.arange(600)[:, None] + along * np.arange(500)[None, :])
    assert isinstance(item, Tensor)
    i, j = item.axes
    assert item.body is cast(index(first + down * i.dim + along * j.dim), F32)


def test_constants_that_nearly_count_and_those_that_are_huge_stay() -> None:
    data = np.arange(300_000).reshape(600, 500)
    assert counting(data)
    data[599, 499] += 1
    assert not counting(data)
    assert not counting((1 << 40) * np.arange(300_000).reshape(600, 500))


def test_positions_are_read_within_guards_only() -> None:
    (i,) = axes(i=300_000)
    data = stored("stored", np.arange(5, 200_005))
    body = load("stored", I64, (i.dim,), (199_999 - i.dim,), const(-1, I64))
    (item,) = simplify_program(program(Tensor("y", I64, (i,), body), constants=(data,))).items
    assert isinstance(item, Tensor)
    (i,) = item.axes
    assert item.body is select(binary("ge", index(199_999 - i.dim), const(0, I64)), index(i.dim + 5), const(-1, I64))


def test_products_of_positions_wrap_around_as_integers_do() -> None:
    (i,) = axes(i=4)
    factor = const(6364136223846793005, I64)
    assert isinstance(binary("mul", index(i.dim), factor), Binary)
    assert binary("mul", index(i.dim), const(1 << 40, I64)) is index((1 << 40) * i.dim)


def test_what_reads_large_positions_and_a_table_is_folded() -> None:
    """As relative positions are: the table is a constant, the positions between them are generated."""
    i, j = axes(i=600, j=600)
    positions = stored("positions", np.arange(600))
    table = stored("table", np.arange(1200.0, dtype=np.float32))
    at = binary("sub", load("positions", I64, (i.dim,)), load("positions", I64, (j.dim,)))
    apart = Tensor("apart", I64, (i, j), at)
    far = Tensor("far", I64, (i, j), unary("abs", load("apart", I64, (i.dim, j.dim))))
    body = load("table", F32, (Value(load("far", I64, (i.dim, j.dim)), as_dim(1200)).dim,))
    made = simplify_program(program(apart, far, Tensor("y", F32, (i, j), body), constants=(positions, table)))
    assert not made.items
