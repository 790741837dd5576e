"""Pairs of every form as one kernel: right for sizes that blocks divide and that they do not, priced, and pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.fuse.parse import parse_regions
from opweld.fuse.region import Kind, Reach
from opweld.fuse.text import print_regions
from opweld.fuse.verify import verify_regions
from opweld.tensor.parse import parse_program
from tests.unit.fuse.test_pairs import joined, kinds, pair
from tests.unit.tile import programs
from tests.unit.tile.pipeline import check_compiled, with_data

TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64")

PRODUCT = """program product
{head}
input x f32[{m}, {k}]
input z f32[{m}, {n}]
constant w f32[{k}, {n}]
constant b f32[{n}]
tensor product f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor added f32[i0: {m}, i1: {n}] from "Add"
  = add(add(product[i0, i1], b[i1]), z[i0, i1])
"""

LAYER_NORM = """tensor total f32[i0: {m}] from "LayerNormalization"
  over r0: {n}
  = sum<r0>(added[i0, r0])
tensor deviation f32[i0: {m}, i1: {n}] from "LayerNormalization"
  = sub(added[i0, i1], div(total[i0], {n}.0))
tensor squares f32[i0: {m}] from "LayerNormalization"
  over r0: {n}
  %0 = deviation[i0, r0]
  = sum<r0>(mul(%0, %0))
tensor result f32[i0: {m}, i1: {n}] from "LayerNormalization"
  = mul(deviation[i0, i1], rsqrt(add(div(squares[i0], {n}.0), 0.00001)))
output y = result
"""

RMS_NORM = """tensor squares f32[i0: {m}] from "RMSNormalization"
  over r0: {n}
  %0 = added[i0, r0]
  = sum<r0>(mul(%0, %0))
tensor result f32[i0: {m}, i1: {n}] from "RMSNormalization"
  = mul(added[i0, i1], rsqrt(add(div(squares[i0], {n}.0), 0.00001)))
output y = result
"""

SOFTMAX = """tensor top f32[i0: {m}] from "Softmax"
  over r0: {n}
  = max<r0>(added[i0, r0])
tensor raised f32[i0: {m}, i1: {n}] from "Softmax"
  = exp(sub(added[i0, i1], top[i0]))
tensor total f32[i0: {m}] from "Softmax"
  over r0: {n}
  = sum<r0>(raised[i0, r0])
tensor result f32[i0: {m}, i1: {n}] from "Softmax"
  = div(raised[i0, i1], total[i0])
output y = result
output s = total
"""

AFTER = {"layer norm": LAYER_NORM, "rms norm": RMS_NORM, "softmax": SOFTMAX}

SILU = """program silu
{head}
input x f32[{m}, {k}]
constant w f32[{k}, {n}]
tensor inner f32[i0: {m}, i1: {k}] from "Silu"
  = mul(x[i0, i1], sigmoid(x[i0, i1]))
tensor result f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(inner[i0, r0], w[r0, i1]))
output y = result
"""


def normed(after: str, m: int | str, k: int, n: int, head: str = "") -> str:
    return (PRODUCT + AFTER[after]).format(m=m, k=k, n=n, head=head)


def pooled(kind: str, size: int, step: int, before: int, height: int, width: int, channels: int = 11) -> str:
    """A 3 x 3 convolution and a window of `size` that goes `step` on."""
    tall, wide = ((extent + 2 * before - size) // step + 1 for extent in (height, width))
    inside = f"i2 + r1 - 1 >= 0, {height} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {width} - i3 - r2 >= 0"
    at = f"{step}*i2 + r0 - {before}, {step}*i3 + r1 - {before}"
    guards = f"{step}*i2 + r0 - {before} >= 0, {height - 1 + before} - {step}*i2 - r0 >= 0"
    guards += f", {step}*i3 + r1 - {before} >= 0, {width - 1 + before} - {step}*i3 - r1 >= 0"
    read = (
        f"made[0, i1, {at} if {guards} else {'-inf' if kind == 'max' else '0.0'}]" if before else f"made[0, i1, {at}]"
    )
    return f"""program pooled
input x f32[1, 3, {height}, {width}]
constant w f32[{channels}, 3, 3, 3]
tensor made f32[i0: 1, i1: {channels}, i2: {height}, i3: {width}] from "Conv"
  over r0: 3, r1: 3, r2: 3
  = sum<r0, r1, r2>(mul(x[0, r0, i2 + r1 - 1, i3 + r2 - 1 if {inside} else 0.0], w[i1, r0, r1, r2]))
tensor result f32[i0: 1, i1: {channels}, i2: {tall}, i3: {wide}] from "Pool"
  over r0: {size}, r1: {size}
  = {kind}<r0, r1>({read})
output y = result
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "rows"), [(37, 45, None), (37, 45, 4), (16, 33, 16), (5, 128, 1)])
@pytest.mark.parametrize("after", AFTER)
def test_a_product_and_what_needs_its_whole_rows(after: str, target: str, m: int, n: int, rows: int | None) -> None:
    text = normed(after, m, 19, n)
    made = pair(text, target, rows)
    assert made.names == ["block"]
    assert [member.kind for member in made.regions.regions[0].members] == [Kind.CONTRACTION, Kind.ROWWISE]
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("rows", [None, 1, 16])
def test_a_residual_that_others_read_is_stored_on_the_way(rows: int | None) -> None:
    text = normed("layer norm", 37, 19, 45)
    text += 'tensor again f32[i0: 37, i1: 45] from "Neg"\n  = neg(added[i0, i1])\noutput r = again\n'
    for changed, names in ((text + "output a = added\n", {"result", "added"}), (text, {"result", "added"})):
        made = pair(changed, "x86-64-v4", rows)
        assert {frozenset(region.outputs) for region in made.regions.regions if region.block} == {frozenset(names)}
        check_compiled(with_data(parse_program(changed)), made, {})


def test_what_is_read_before_the_rows_are_there_is_no_pair() -> None:
    """The rows need it themselves."""
    text = normed("layer norm", 37, 19, 45).replace("constant b", "constant v f32[45, 45]\nconstant b")
    turned = """tensor turned f32[i0: 37, i1: 45] from "MatMul_1"
  over r0: 45
  = sum<r0>(mul(added[i0, r0], v[r0, i1]))
tensor total"""
    text = text.replace("tensor total", turned, 1).replace("mul(deviation[i0, i1], r", "mul(turned[i0, i1], r")
    _, decisions = joined(text + "output u = turned\n")
    assert [d.subject for d in decisions if not d.failed and d.subject.endswith("> result")] == ["turned > result"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "rows"), [(45, None), (45, 1), (45, 6), (16, 16)])
def test_elementwise_work_before_a_product(target: str, m: int, rows: int | None) -> None:
    text = SILU.format(m=m, k=19, n=23, head="")
    made = pair(text, target, rows)
    assert made.names == ["block"]
    check_compiled(with_data(parse_program(text)), made, {})


def test_sizes_that_are_known_when_it_runs() -> None:
    head = programs.symbols(M="0 of x")
    for text in (normed("layer norm", "M", 16, 40, head), SILU.format(m="M", k=16, n=20, head=head)):
        made = pair(text)
        for rows in (1, 5, 16, 100):
            check_compiled(with_data(parse_program(text)), made, {"M": rows})


@pytest.mark.parametrize("rows", [None, 1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "size", "step", "before", "height", "width"),
    [
        ("max", 3, 2, 1, 9, 13),
        ("max", 2, 2, 0, 8, 10),
        ("sum", 2, 2, 0, 9, 7),
        ("sum", 3, 1, 1, 6, 5),
        ("max", 2, 3, 0, 11, 8),
    ],
)
def test_a_convolution_and_the_window_over_it(
    kind: str, size: int, step: int, before: int, height: int, width: int, rows: int | None
) -> None:
    """Windows that meet, that share rows, that leave some out, and that begin before the first row."""
    text = pooled(kind, size, step, before, height, width)
    made = pair(text, "x86-64-v4", rows)
    (region,) = made.regions.regions
    assert region.block is not None and region.block.reach == Reach(step, size - step, before)
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("rows", [None, 1, 2, 4])
def test_a_convolution_and_the_one_by_one_behind_it(rows: int | None) -> None:
    """Neighbours share what they read: whole lines are computed at a time, and blocks read some lines again."""
    text = programs.bottleneck(4, 6, 9, 7)
    made = pair(text, "x86-64-v4", rows)
    check_compiled(with_data(parse_program(text)), made, {})


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_a_window_over_a_convolution_elsewhere(target: str) -> None:
    text = pooled("max", 3, 2, 1, 14, 14, 37)
    check_compiled(with_data(parse_program(text)), pair(text, target), {})


@pytest.mark.parametrize(
    "text", [normed("softmax", 37, 19, 45), pooled("max", 3, 2, 1, 9, 13), SILU.format(m=9, k=4, n=5, head="")]
)
def test_a_pair_is_priced_pinned_and_text(text: str) -> None:
    """These forms were measured no faster, so that they are there to pin."""
    regions, decisions = joined(text)
    assert all(len(region.members) == 1 for region in regions.regions)
    (decision,) = (found for found in decisions if not found.failed)
    assert decision.taken == "separate"
    assert all(found.seconds is not None and found.seconds > 0 for found in decision.alternatives)
    regions, _ = joined(text, {decision.id: "block"})
    assert [len(found) for found in kinds(regions)] == [2]
    verify_regions(regions)
    printed = print_regions(regions)
    assert print_regions(parse_regions(printed)) == printed


def test_more_work_is_computed_twice_under_smaller_blocks() -> None:
    """Rows under two windows are computed by both blocks; where windows only meet, none are."""
    for size, again in ((3, True), (2, False)):
        made = pair(pooled("max", size, 2, size - 2, 56, 56, 32))
        (cut,) = (d for d in made.ledger if d.rule == "schedule.block")
        prices = {int(a.name): a.seconds for a in cut.alternatives if a.seconds is not None}
        work = {int(a.name) for a in cut.alternatives}
        assert {1, 8} <= work
        (region,) = made.regions.regions
        assert region.block is not None
        assert (region.block.reach.rows(1) * 8 > region.block.reach.rows(8)) is again
        assert prices[1] > prices[8] or not again


# ------------------------------------------------------------------------------------------------------- whole models


def compiled(model: onnx.ModelProto, **options: Any) -> opweld.Model:
    """With each legal block as one kernel."""
    found = opweld.explain(model, **options).decisions
    pins = {
        d.id: "block"
        for d in found
        if d.rule == "fuse.block" and not d.failed and "block" in [a.name for a in d.alternatives]
    }
    assert pins
    return opweld.compile(model, pins=pins, **options)


def of_nodes(nodes: list[onnx.NodeProto], shape: list[int | str], **weights: Any) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    stored = [
        numpy_helper.from_array((random.standard_normal(found) / 4).astype(np.float32), name)
        for name, found in weights.items()
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "pair", [value("x", TensorProto.FLOAT, shape)], [value("y", TensorProto.FLOAT, None)], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model: onnx.ModelProto, *shapes: tuple[int, ...]) -> None:
    made = compiled(model)
    assert made.session.manifest.kernels == 1
    for shape in shapes:
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        results: Any = ReferenceEvaluator(model).run(None, {"x": x})
        expected = np.asarray(results[0])
        near = 1e-5 * float(np.abs(expected).max())
        np.testing.assert_allclose(made.run({"x": x})["y"], expected, rtol=0, atol=near)


def test_a_linear_layer_and_its_norm_compiled() -> None:
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="product"),
        node("Add", ["p", "b"], ["q"], name="bias"),
        node("LayerNormalization", ["q", "s", "t"], ["y"], name="norm"),
    ]
    model = of_nodes(nodes, ["batch", "time", 24], w=(24, 50), b=(50,), s=(50,), t=(50,))
    check(model, (1, 1, 24), (2, 7, 24), (3, 33, 24))


def test_a_convolution_and_its_pooling_compiled() -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["p"], name="conv", strides=[2, 2]),
        node("Relu", ["p"], ["q"], name="relu"),
        node("MaxPool", ["q"], ["y"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    check(of_nodes(nodes, [2, 3, 37, 41], w=(19, 3, 7, 7), b=(19,)), (2, 3, 37, 41))


def test_a_convolution_and_an_average_of_dynamic_pictures_compiled() -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["p"], name="conv"),
        node("AveragePool", ["p"], ["y"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = of_nodes(nodes, ["n", 5, "h", "w"], w=(16, 5, 3, 3), b=(16,))
    check(model, (1, 5, 8, 8), (2, 5, 9, 15))


def test_a_convolution_and_its_mean_over_the_picture_compiled() -> None:
    """Rows are channels, so that lanes run along the picture."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["p"], name="conv"),
        helper.make_node("GlobalAveragePool", ["p"], ["y"], name="pool"),
    ]
    check(of_nodes(nodes, [2, 5, 9, 13], w=(16, 5, 1, 1), b=(16,)), (2, 5, 9, 13))
