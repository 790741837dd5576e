"""Modules: tables, guards, sizes and launches, compiled and read back through the C structures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.codegen.c.bind import Sizes
from opweld.tensor.dim import Axis, Dim, Symbol, as_dim, ceildiv, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary
from opweld.tensor.program import Guard, Input, SymbolSource
from opweld.tile.module import Launch, Memory, Module, ModuleVariant
from opweld.tile.tile import Buffer, Kernel, Scratch, Store, Tile
from tests.unit.codegen.compiled import machine
from tests.unit.codegen.hand_written import F32, f32, get, mul
from tests.unit.codegen.loaded import Loaded

EVIL = 'a"b\\c\n*/??)é'
B, S, K = Symbol("batch"), Symbol("sequence"), Symbol("k")


def scale(factor: Expr, scratch: bool = False) -> Kernel:
    """y = x * factor, over `n` elements; through scratch when asked to."""
    n = Symbol("n")
    tile, lane = Axis("t", ceildiv(n.dim, 16)), Axis("l", 16)
    place = tile.dim * 16 + lane.dim
    body: Any = (Store("y", place, mul(get("x", place), factor)),)
    if scratch:
        body = (Store("tmp", lane.dim, mul(get("x", place), factor)), Store("y", place, get("tmp", lane.dim)))
    tiles = (Tile(lane, "lane", tile.dim * 16, body, n.dim),)
    buffers = (Buffer("x", F32, "read"), Buffer("w", F32, "read"), Buffer("y", F32, "write"))
    blocks = (Scratch("tmp", F32, as_dim(16)),) if scratch else ()
    return Kernel("scale", buffers, (n,), (tile,), tiles, blocks)


def module(
    inputs: tuple[Input, ...], symbols: tuple[SymbolSource, ...], guards: tuple[Guard, ...] = (), **more: Any
) -> Module:
    variant = ModuleVariant(
        "main", inputs, symbols, guards, more.get("memory", ()), more.get("launches", ()), more.get("outputs", ())
    )
    return Module.straight(
        more.get("names", tuple(value.name for value in inputs)),
        tuple(f"out{i}" for i in range(len(variant.outputs))),
        (variant, *more.get("variants", ())),
        more.get("weights", 0),
        ("avx2", "fma"),
    )


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """out[b, 2 s] = x[b, 2 s] * w[0] * w[1], through an arena buffer."""
    total = B.dim * S.dim * 2
    value = Input("x", F32, (B.dim, S.dim * 2))
    memory = (
        Memory("input", 0),
        Memory("output", 0),
        Memory("constant", offset=64),
        Memory("arena", size=total * 4, first=0, last=1),
    )
    launches = (
        Launch(scale(get("w", 0)), (0, 2, 3), (total,), total, origin=(EVIL, "second")),
        Launch(scale(get("w", 1), scratch=True), (3, 2, 1), (total,), total, serial=True, phase=1),
    )
    made = module(
        (value,),
        (SymbolSource(B, "x", 0), SymbolSource(S, "x", 1, divisor=2, reason='node "Add"')),
        (Guard("least", 8 - B.dim, "Concat_3"), Guard("zero", mod(B.dim * S.dim, 3), "Reshape_1")),
        memory=memory,
        launches=launches,
        outputs=((F32, (B.dim, S.dim * 2)),),
        weights=72,
    )
    return Loaded(made, tmp_path_factory.mktemp("chain"))


def test_runs(chain: Loaded) -> None:
    x = np.random.default_rng(0).standard_normal((3, 14)).astype(np.float32)
    weights = bytes(64) + np.array([3, -0.5], np.float32).tobytes()
    (out,) = chain.run([x], weights)
    np.testing.assert_array_equal(out, x * -1.5)


def test_tables(chain: Loaded) -> None:
    table = chain.table
    assert (table.abi, table.isa, table.weights_bytes) == (5, b"avx2 fma", 72)
    assert (table.inputs[0].name, table.inputs[0].dtype, table.inputs[0].rank) == (b"x", 1, 2)
    assert table.output_names[0] == b"out0"
    steps = table.variants[0].steps
    assert steps[0].origin.decode() == f"{EVIL}, second"
    assert (steps[0].max_threads, steps[1].max_threads) == (0, 1)
    assert (steps[0].phase, steps[1].phase) == (0, 1)
    assert steps[0].scratch_slot == -1
    _, slots = chain.bind([np.zeros((3, 14), np.float32)])
    assert slots[steps[1].scratch_slot] == 64
    assert slots[steps[0].grid_slot] == 3
    assert slots[steps[0].work_slot] == 42


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 13), 'input "x" dim 1 must be a multiple of 2 (node "Add")'),
        ((9, 2), '8 must be at least batch where batch is input "x" dim 0: Concat_3'),
        ((2, 4), 'must equal 0 where batch is input "x" dim 0, sequence is input "x" dim 1 / 2: Reshape_1'),
        ((0, 2), 'input "x" dim 0 must be at least 1'),
        ((3, 0), 'input "x" dim 1 must be at least 2'),
    ],
)
def test_guards_say_what_is_wrong(chain: Loaded, shape: tuple[int, int], message: str) -> None:
    status, _ = chain.bind([np.zeros(shape, np.float32)])
    assert status > 0
    assert message in chain.guard(status)


def test_sizes_that_overflow(tmp_path: Path) -> None:
    huge = B.dim * B.dim * B.dim * 1_000_000
    memory = (Memory("arena", size=huge),)
    loaded = Loaded(module((Input("x", F32, (B.dim,)),), (SymbolSource(B, "x", 0),), memory=memory), tmp_path)
    room = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 21,), (0,))
    assert loaded.bind([room])[0] == -1
    assert loaded.bind([np.zeros(20, np.float32)])[0] == 0


def evaluations(*dims: Dim) -> tuple[Memory, ...]:
    return tuple(Memory("arena", size=dim) for dim in dims)


def test_sizes_are_what_the_algebra_says(tmp_path: Path) -> None:
    b, s = B.dim, S.dim
    dims = (
        b * s - 3 * b + 7,
        floordiv(b - s, 4) * 5,
        mod(b - s, 4),
        minimum(b * 2, s) + maximum(b, s * s),
        ceildiv(b, s),
        floordiv(b * 7, s + 1) - mod(s, b + 1),
    )
    inputs = (Input("x", F32, (b, s)),)
    symbols = (SymbolSource(B, "x", 0), SymbolSource(S, "x", 1))
    loaded = Loaded(module(inputs, symbols, memory=evaluations(*dims)), tmp_path)
    variant = loaded.table.variants[0]
    for values in ((1, 1), (3, 8), (8, 3), (17, 5)):
        status, slots = loaded.bind([np.zeros(values, np.float32)])
        assert status == 0
        found = [slots[variant.buffers[i].size_slot] for i in range(len(dims))]
        assert found == [dim.evaluate(dict(zip((B, S), values, strict=True))) for dim in dims]


def test_products_of_the_same_sizes_are_computed_once() -> None:
    sizes = Sizes()
    sizes.define(B, "b")
    sizes.define(S, "s")
    factors = (6, -10, 1, 310_272)
    values = [sizes.value(factor * B.dim * S.dim) for factor in factors]
    assert len(set(values)) == len(factors)
    assert sum("(int64_t)b" in line for line in sizes.lines) == 1
    assert sum("mul" in line for line in sizes.lines) == len(factors)


def test_sizes_fed_as_values(tmp_path: Path) -> None:
    inputs = (Input("k", DType.I64, (as_dim(2),)), Input("x", F32, (K.dim, as_dim(4))))
    loaded = Loaded(module(inputs, (SymbolSource(K, "k", 1, by_value=True, divisor=3, reason="Tile"),)), tmp_path)
    assert [loaded.table.inputs[i].by_value for i in range(2)] == [1, 0]
    good = [np.array([0, 9], np.int64), np.zeros((3, 4), np.float32)]
    assert loaded.bind(good)[0] == 0
    for position, array, message in (
        (0, np.array([0, 8], np.int64), 'input "k" element 1 must be a multiple of 3 (Tile)'),
        (0, np.array([0, -3], np.int64), 'input "k" element 1 must be at least 3'),
        (0, np.array([9], np.int64), 'input "k" dim 0 must be 2'),
        (1, np.zeros((2, 4), np.float32), 'input "x" dim 0 must be k where k is input "k" element 1 / 3'),
        (1, np.zeros((3, 5), np.float32), 'input "x" dim 1 must be 4'),
    ):
        fed = list(good)
        fed[position] = array
        status, _ = loaded.bind(fed)
        assert status > 0
        assert message in loaded.guard(status)


def test_variants_of_different_rank(tmp_path: Path) -> None:
    one = ModuleVariant("flat", (Input(EVIL, F32, (B.dim,)),), (SymbolSource(B, EVIL, 0),), (), (), (), ())
    made = module((Input(EVIL, F32, (as_dim(2), as_dim(3))),), (), variants=(one,))
    loaded = Loaded(made, tmp_path)
    assert loaded.table.inputs[0].name.decode() == EVIL
    assert loaded.table.inputs[0].rank == -1
    flat, square = np.zeros(5, np.float32), np.zeros((2, 3), np.float32)
    assert [loaded.bind([array], variant)[0] for variant in (0, 1) for array in (flat, square)] == [1, 0, 0, 1]
    assert loaded.guard(1) == f'input "{EVIL}" must have rank 2'


def test_a_module_without_anything(tmp_path: Path) -> None:
    loaded = Loaded(module((), ()), tmp_path)
    assert loaded.table.n_inputs == 0
    assert loaded.bind([])[0] == 0


def test_mistakes_are_refused() -> None:
    from opweld.codegen.c.module import render_module

    launch = Launch(scale(binary("add", f32(1), f32(2))), (0,), (as_dim(1),), as_dim(1))
    with pytest.raises(ValueError, match="launched with 1 buffers"):
        render_module(module((), (), launches=(launch,)), machine(16))
    with pytest.raises(ValueError, match="is not known when shapes are bound"):
        render_module(module((), (), memory=evaluations(Axis("i", 3).dim)), machine(16))
