"""Winograd's algorithm against the tensor interpreter, on sizes that leave tails everywhere; and where it is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import onnx.parser
import pytest

import opweld
from opweld.ledger import Ledger
from opweld.place.winograd import COUNTS, GROUPS, transformed
from opweld.schedule.cost import Tiled, winograd
from opweld.target import Target
from opweld.tensor.dim import ZERO, Atom, Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import load, loads
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Constant
from opweld.tile.tile import Accumulate, Loop, Statement, Tile
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data

V3, V4 = Target.of("x86-64-v3"), Target.of("x86-64-v4")


def by_winograd(text: str, target: Target = V3, **wanted: object) -> Compiled:
    """The program with every convolution that can be by Winograd's algorithm, and these alternatives by rule."""
    program, pins = with_data(parse_program(text)), dict[str, str]()
    first = {"schedule.lane": "i1", "fuse.prologue": "in memory"}
    for rules in (first, {"schedule.algorithm": "winograd"}, {f"schedule.{n}": str(v) for n, v in wanted.items()}):
        found = compile_with(program, Ledger(pins=pins), target).ledger
        own = [d for d in found if d.rule in rules and rules[d.rule] in {a.name for a in d.alternatives}]
        pins |= {d.id: rules[d.rule] for d in own if not d.failed}
    return compile_with(program, Ledger(pins=pins), target)


def check_sizes(text: str, sizes: dict[str, int], target: Target = V3, **wanted: object) -> Compiled:
    made = by_winograd(text, target, **wanted)
    assert any("winograd" in name for name in made.names), [d for d in made.ledger if d.rule == "schedule.algorithm"]
    check_compiled(with_data(parse_program(text)), made, sizes)
    return made


@pytest.mark.parametrize("target", [V3, V4], ids=["avx2", "avx512"])
@pytest.mark.parametrize(("height", "width"), [(2, 2), (2, 5), (3, 2), (4, 5), (6, 3), (5, 9)])
def test_even_and_odd_sizes(height: int, width: int, target: Target) -> None:
    check_sizes(programs.bottleneck(3, 11, height, width, n=2), {}, target)


def test_weights_of_a_narrower_type_are_transformed_as_float32() -> None:
    text = programs.bottleneck(3, 11, 5, 6).replace("constant w1 f32", "constant w1 f16")
    check_sizes(text.replace("w1[i1, r0, r1, r2]", "f32(w1[i1, r0, r1, r2])"), {})


@pytest.mark.parametrize("tiles", [8, 14, 25])
@pytest.mark.parametrize("groups", GROUPS)
def test_blocks_of_tiles_and_groups_of_lanes(tiles: int, groups: int) -> None:
    """5 x 6 tiles, and lanes of five register tiles: blocks and groups that are not full."""
    check_sizes(programs.bottleneck(3, 37, 9, 11), {}, tiles=tiles, groups=groups, height=5)


def test_one_compilation_serves_every_size() -> None:
    head = programs.symbols(N="0 of x", H="2 of x", W="3 of x")
    text = programs.bottleneck(3, 18, "H", "W", "N", head)
    made = by_winograd(text)
    assert any("winograd" in name for name in made.names)
    for sizes in ({"N": 1, "H": 1, "W": 1}, {"N": 2, "H": 6, "W": 4}, {"N": 1, "H": 9, "W": 11}):
        check_compiled(with_data(parse_program(text)), made, sizes)


def test_edges_are_tested_where_nothing_is_stored_around_the_picture() -> None:
    program = with_data(parse_program(programs.bottleneck(3, 24, 5, 6)))
    pins: dict[str, str] = {}
    for rule, name in (("place.halo", "test-edges"), ("schedule.algorithm", "winograd")):
        made = compile_with(program, Ledger(pins=pins), V3)
        pins |= {d.id: name for d in made.ledger if d.rule == rule and not d.failed}
    made = compile_with(program, Ledger(pins=pins), V3)
    assert any("winograd" in name for name in made.names)
    check_compiled(program, made, {})


def test_what_is_no_such_convolution_is_asked_nothing() -> None:
    others = (
        programs.grouped(2, 16, 16, 9, 9),
        programs.of_doubles(programs.bottleneck(3, 24, 9, 11)),
        programs.dense(8, 9, 24),
        programs.bottleneck(3, 24, 9, 11).replace("3, 3]", "3, 1]").replace("r2: 3", "r2: 1"),
    )
    for text in others:
        rules = {decision.rule for decision in compile_with(with_data(parse_program(text)), Ledger(), V3).ledger}
        assert "schedule.lane" in rules and "schedule.algorithm" not in rules
    strided = compile_with(with_data(parse_program(programs.convolution(24, 24, 9, 9, stride=2))), Ledger(), V3)
    assert [d.subject for d in strided.ledger if d.rule == "schedule.algorithm"] == ["Conv_1 0"]


def test_weights_are_transformed_in_float64_and_rounded_once() -> None:
    data = np.random.default_rng(0).standard_normal((5, 3, 3, 7)).astype(np.float32)
    lane, channel, y, x = Axis("o", 7), Axis("c", 5), Axis("y", 3), Axis("x", 3)
    site = load("w", DType.F32, tuple(axis.dim for axis in (channel, y, x, lane)))
    taps = type("", (), {"channel": channel, "ky": y, "kx": x})()
    made = transformed("", Constant("w", DType.F32, data.shape, lambda: data), site, taps, lane)  # pyright: ignore[reportArgumentType]
    assert made is not None and made.shape == (16, 7, 5)
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    expected = g @ data[2, :, :, 4].astype(np.float64) @ g.T
    np.testing.assert_array_equal(made.read()[:, 4, 2].reshape(4, 4), expected.astype(np.float32))
    part = Constant("w", DType.F32, (5, 3, 3, 8), lambda: data)
    assert transformed("", part, site, taps, lane) is None, "lanes of a part of the weights"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("height", [8, 14], ids=["two passes", "a pass and a rest"])
def test_the_weights_of_the_next_point_are_fetched_meanwhile(height: int) -> None:
    """Loops walk through the weights, not the grid: while tiles pass over a point's, they bring those of the next."""
    made = by_winograd(programs.bottleneck(64, 64, 7, 7), V4, tiles=16, groups=1, height=height)
    (kernel,) = (item.kernel for item in made.kernels if "winograd" in item.kernel.name)
    panels = list(_panels(kernel.body, {}))
    assert len(panels) == 2 * 16, "register tiles of lanes x points"
    for (_, fetched), (following, _) in itertools.pairwise(panels):
        assert following <= fetched


def _panels(body: tuple[Statement, ...], at: dict[Atom, Dim]) -> Iterator[tuple[set[int], set[int]]]:
    """For each panel of weights in turn, the cache lines that are read and those that are fetched, of all passes."""
    for statement in body:
        if isinstance(statement, Tile):
            yield from _merged(_panels(statement.body, {**at, statement.axis: ZERO}))
        elif isinstance(statement, Loop) and statement.fetches:
            (fetch,) = statement.fetches
            (product,) = statement.body
            assert isinstance(product, Accumulate)
            (site,) = (node for node in loads(product.value) if node.tensor == fetch.buffer)
            trips = range(int(statement.end.substitute(at)))
            read = {int(site.indices[0].substitute({**at, statement.axis: as_dim(k)})) // 16 for k in trips}
            start, step = int(fetch.start.substitute(at)) // 16, fetch.step // 16
            groups = (start + step * k for k in trips if k % statement.unroll == 0)
            fetched = {first + line for first in groups for line in range(fetch.lines)}
            yield {line + vector for line in read for vector in range(2)}, fetched
        elif isinstance(statement, Loop):
            trips = range(int(statement.end.substitute(at)))
            yield from _merged(
                found for k in trips for found in _panels(statement.body, {**at, statement.axis: as_dim(k)})
            )


def _merged(panels: Iterable[tuple[set[int], set[int]]]) -> Iterator[tuple[set[int], set[int]]]:
    """Passes over the same panel as one."""
    for read, passes in itertools.groupby(panels, key=lambda found: found[0]):
        yield read, set[int]().union(*(fetched for _, fetched in passes))


def test_weights_of_a_large_model_are_worth_sharing() -> None:
    """512 x 512 channels of 7 x 7: each core computes half of the lanes of all tiles, as weights come from afar."""
    work = Tiled(512, 512, 16, 1, False, 2, DType.F32, V4, 100 << 20)
    prices = {(count, groups): winograd(work, count, groups).seconds for count in COUNTS for groups in GROUPS}
    assert min(prices, key=lambda key: prices[key])[1] > 1
    small = Tiled(64, 64, 784, 1, False, 2, DType.F32, V4, 1 << 20)
    prices = {(count, groups): winograd(small, count, groups).seconds for count in COUNTS for groups in GROUPS}
    assert min(prices, key=lambda key: prices[key])[1] == 1


LAYER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 8, H, W] x, float[256, 8, 1, 1] a, float[96, 256, 3, 3] w, float[96] b,
   float[8, 96, 1, 1] v) => (float[1, 8, H, W] y) {
    wide = Conv(x, a)
    deep = Conv<pads = [1, 1, 1, 1]>(wide, w, b)
    y = Conv(deep, v)
}"""


def layer() -> tuple[onnx.ModelProto, np.ndarray, dict[str, np.ndarray]]:
    """A deep convolution after a small one, its input, its weights."""
    model, random = onnx.parser.parse_model(LAYER), np.random.default_rng(1)
    inputs = {value.name: value for value in model.graph.input}
    weights: dict[str, np.ndarray] = {}
    for name in ("a", "w", "b", "v"):
        shape = [dim.dim_value for dim in inputs[name].type.tensor_type.shape.dim]
        weights[name] = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights[name], name))
        model.graph.input.remove(inputs[name])
    return model, random.standard_normal((1, 8, 19, 22)).astype(np.float32), weights


APART = ("rewrite.consecutive",)
"""The deep convolution stays one of its own, whose weights are stored."""


def kernels(made: opweld.Model, x: np.ndarray) -> str:
    feeds = {value.name: x if value.name == "x" else np.array(1, np.float32) for value in made.inputs}
    return " ".join(step.name for step, _ in made.session.profile(feeds).steps())


def test_a_deep_layer_is_as_exact_as_its_sums() -> None:
    """Beside float64: no further off than twice a rounding of its scale for each doubling of 2,304 terms."""
    model, x, weights = layer()
    made = opweld.compile(model, threads=2, disable=APART)
    assert "winograd" in kernels(made, x)
    (answer,) = made.session.run({"x": x})
    wide = np.einsum("oc,nchw->nohw", weights["a"][:, :, 0, 0].astype(np.float64), x)
    padded = np.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    deep = np.einsum("nchwij,ocij->nohw", patches, weights["w"].astype(np.float64)) + weights["b"][:, None, None]
    right = np.einsum("oc,nchw->nohw", weights["v"][:, :, 0, 0].astype(np.float64), deep)
    error = float(np.max(np.abs(answer - right)) / np.max(np.abs(right)))
    assert error < 2 * 11 * 2.0**-24, error


def test_users_can_do_without() -> None:
    model, x, _ = layer()
    made = opweld.compile(model, disable=["schedule.algorithm", *APART])
    assert "winograd" not in kernels(made, x)


@pytest.mark.parametrize("name", ["y00", "y11", "d00", "acc", "t2_w_packed0", "t6_mul_read", "t6_mul_sums"])
def test_inputs_may_have_the_names_that_kernels_use(name: str) -> None:
    text = LAYER.replace("H, W] x", f"H, W] x, float {name}").replace(
        "y = Conv(deep, v)", f"s = Mul(deep, {name}) y = Conv(s, v)"
    )
    plain, x, _ = layer()
    model = onnx.parser.parse_model(text)
    del model.graph.input[2:]
    model.graph.initializer.extend(plain.graph.initializer)
    made = opweld.compile(model, disable=APART)
    assert "winograd" in kernels(made, x)
    (expected,) = opweld.compile(plain, disable=["schedule.algorithm", *APART]).session.run({"x": x})
    (answer,) = made.session.run({"x": x, name: np.array(3, np.float32)})
    np.testing.assert_allclose(answer, 3 * expected, atol=1e-5 * float(np.max(np.abs(expected))))


def test_a_walk_along_a_diagonal_is_no_picture() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (float[1, 128, 7, 7] x) => (float[1, 24, L] out) {
            z = Conv(x, a) d = Einsum<equation = "bcii->bci">(z) t = Conv(d, w) q = Relu(t) out = Conv(q, v)
        }"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("a", (128, 128, 1, 1)), ("w", (256, 128, 3)), ("v", (24, 256, 1))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    (answer,) = opweld.compile(model).session.run({"x": np.ones((1, 128, 7, 7), np.float32)})
    np.testing.assert_allclose(answer, 256.0 * 128 * 3 * 128)
