from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import AssumptionError, InputError, ModelError, OpweldError
from opweld.frontend.evaluator import evaluator
from opweld.ops.slicing import span_of
from opweld.tensor.dim import Symbol, as_dim
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import check, feeds_of, flow_of, make_model, normal, programs_of, run

LARGEST, SMALLEST = 2**63 - 1, -(2**63)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((0,), (3,), (0,), (1,)),
        ((1,), (-1,), (1,), (2,)),
        ((-3,), (LARGEST,), (-1,), (1,)),
        ((-1,), (SMALLEST + 1,), (0,), (-1,)),
        ((LARGEST,), (0,), (1,), (-2,)),
        ((0, 1), (1000, 2), (0, 1), (1, 1)),
        ((5,), (2,), (1,), (1,)),
        ((-100,), (100,), (1,), (3,)),
        ((4,), (-7,), (1,), (-1,)),
    ],
)
def test_slice(starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...], steps: tuple[int, ...]) -> None:
    operands = [normal(4, 6), ints(*starts), ints(*ends), ints(*axes), ints(*steps)]
    check("Slice", operands, constant=(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, LARGEST, 1),
        (1, -1, 1),
        (-2, LARGEST, 1),
        (0, 3, 1),
        (0, 10**9, 1),
        (-1, SMALLEST, -1),
        (0, LARGEST, 2),
        (2, 5, 1),
    ],
)
def test_slice_of_a_dynamic_axis(start: int, end: int, step: int) -> None:
    bounds = [ints(start), ints(end), ints(0), ints(step)]
    check(
        "Slice",
        [normal(6), *bounds],
        constant=(1, 2, 3, 4),
        dims={0: ["n"]},
        more=[[normal(9), *bounds], [normal(3), *bounds]],
    )


def test_slice_by_a_fed_bound_is_straight_where_it_fits() -> None:
    programs = check("Slice", [normal(10), ints(2), ints(5)], constant=(1,), more=[[normal(10), ints(2), ints(11)]])
    assert len(programs) > 1, "another variant clamps"


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((ints(0), ints(1), ints(5)), "out of range"),
        ((ints(0), ints(1), ints(0), ints(0)), "step"),
        ((ints(0, 0), ints(1), ints(0)), "one length"),
        ((ints(0, 0), ints(1, 1), ints(0, 0)), "twice"),
    ],
)
def test_bad_slices_are_refused(bounds: tuple[np.ndarray, ...], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        programs_of(make_model("Slice", [normal(4, 6), *bounds], constant=(1, 2, 3, 4)))


def test_a_span_of_a_constant_by_a_size_assumes_that_it_fits() -> None:
    size = Symbol("s").dim
    span = span_of(as_dim(512), as_dim(0), size, 1)
    assert (span.start, span.length) == (as_dim(0), size)
    assert [margin for margin, _ in span.margins] == [512 - size]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 0, 0), (0, 0, 2, 3), (2, 1, 1, 2)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    check(
        "Pad",
        [normal(4, 5), ints(*pads)],
        constant=(1,),
        dims={0: ["a", "b"]},
        more=[[normal(7, 4), ints(*pads)]],
        mode=mode,
    )


def test_pad_with_a_value_on_some_axes_and_cropping() -> None:
    seven = np.array(7.0, np.float32)
    check("Pad", [normal(4, 5), ints(1, 2), seven, ints(1)], constant=(1, 2, 3))
    check("Pad", [normal(4, 5), ints(1, 2), seven, ints(-1)], constant=(1, 3))
    check(
        "Pad",
        [normal(4, 5), ints(-1, 2, 0, -3), seven],
        constant=(1, 2),
        reference=lambda x, *_: np.pad(x[1:, :2], ((0, 0), (2, 0)), constant_values=7),
    )


@pytest.mark.parametrize("constant", [(), (1,), (1, 2)])
def test_more_cropped_at_one_end_than_there_is(constant: tuple[int, ...]) -> None:
    """Of the size that the pads add up to, as ONNX Runtime has it: all of it is the fill."""
    for size, before, after in ((0, -1, 3), (1, -1, 3), (2, -3, 5), (2, 5, -4), (0, 3, -1), (2, -3, 1)):
        filled = np.full(size + before + after, 7, np.float32)
        feeds = [normal(size), ints(before, after), np.array(7.0, np.float32)]
        check("Pad", feeds, constant=constant, reference=lambda *_, filled=filled: filled)
        (expected,) = evaluator(make_model("Pad", feeds, constant=constant)).run(None, feeds_of(feeds, constant))
        np.testing.assert_array_equal(expected, filled)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("constant", [(), (1,)])
def test_negative_pads_crop_before_others_repeat(mode: str, constant: tuple[int, ...]) -> None:
    def padded(x: np.ndarray, pads: np.ndarray) -> np.ndarray:
        before, after = (int(pad) for pad in pads)
        cropped = x[max(-before, 0) : len(x) + min(after, 0)]
        return np.pad(cropped, (max(before, 0), max(after, 0)), mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]

    for before, after in ((-1, 3), (2, -2), (-2, 2), (-1, -2)):
        feeds = [np.arange(6, dtype=np.float32), ints(before, after)]
        check("Pad", feeds, constant=constant, reference=padded, mode=mode)
        check("Pad", feeds, constant=constant, dims={0: ["n"]}, reference=padded, mode=mode)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_what_is_repeated_is_left_after_cropping(mode: str) -> None:
    with pytest.raises(ModelError, match=r"reflection|not empty"):
        programs_of(make_model("Pad", [normal(6), ints(-6, 3)], constant=(1,), mode=mode))
    with pytest.raises(ModelError, match="reflection"):
        programs_of(make_model("Pad", [normal(6), ints(-2, 4)], constant=(1,), mode="reflect"))


def test_a_reflection_longer_than_its_axis_is_refused() -> None:
    model = make_model("Pad", [normal(3), ints(0, 3)], constant=(1,), mode="reflect")
    with pytest.raises(ModelError, match="reflection"):
        programs_of(model)
    programs = programs_of(make_model("Pad", [normal(9), ints(0, 3)], constant=(1,), dims={0: ["n"]}, mode="reflect"))
    with pytest.raises(AssumptionError, match="reflection"):
        run(programs, {"x0": normal(3)})


def test_axes_that_are_fed() -> None:
    x = normal(5, 6)
    check("Slice", [x, ints(1), ints(3), ints(0)], constant=(1, 2), more=[[x, ints(1), ints(3), ints(-1)]])
    check("Pad", [x, ints(1, 2), None, ints(1)], constant=(1,), more=[[x, ints(1, 2), None, ints(-2)]])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_axes_that_are_fed(mode: str) -> None:
    x = normal(4, 5, 6, 3)
    every = [((1, 2, 0, 1), (0, 2)), ((2, 0, 1, 1), (-1, 1)), ((0, 3, 2, 0), (3, -3))]
    feeds = [[x, ints(*pads), None, ints(*axes)] for pads, axes in every]
    programs = check("Pad", feeds[0], dims={0: ["n", 5, "m", 3]}, more=feeds[1:], mode=mode)
    assert len(programs) == 1
    flow = flow_of(make_model("Pad", feeds[0], mode=mode))
    with pytest.raises(OpweldError, match="an index outside"):
        interpret_flow(flow, feeds_of([x, ints(1, 1, 1, 1), None, ints(0, 4)], ()))


def test_backwards_beyond_the_beginning_of_a_short_axis() -> None:
    bounds = [ints(-1), ints(-9), ints(0), ints(-2)]
    more = [[normal(size), *bounds] for size in (1, 8, 9, 10, 20)]
    check("Slice", [normal(3), *bounds], constant=(1, 2, 3, 4), dims={0: ["n"]}, more=more)


def test_bounds_axes_and_steps_that_are_fed() -> None:
    every = [
        ([1], [5], [0], [1]),
        ([-3], [100], [1], [2]),
        ([8], [-100], [0], [-2]),
        ([2], [2], [-1], [1]),
        ([-1], [0], [-1], [-1]),
    ]
    feeds = [[normal(9, 6), *(ints(*values) for values in numbers)] for numbers in every]
    check("Slice", feeds[0], dims={0: ["n", 6]}, more=feeds[1:])
    two = [[normal(9, 6), ints(1, -2), ints(8, -50), ints(-1, 0), ints(2, -3)], [normal(9, 6), *[ints(0, 3)] * 4]]
    two[1][3], two[1][4] = ints(0, 1), ints(1, 1)
    check("Slice", two[0], more=two[1:])


def test_fed_bounds_may_lie_beside_the_axis() -> None:
    bounds = ((1, 5), (-20, 3), (4, 99), (8, 9))
    feeds = [[normal(7), ints(start), ints(end)] for start, end in bounds]
    check("Slice", feeds[0], more=feeds[1:])


def test_there_are_two_pads_for_each_axis() -> None:
    x = normal(4, 5)
    programs = check("Pad", [x, ints(1, 0, 0, 2)], dims={0: ["n", 5], 1: ["K"]}, more=[[x, ints(0, 1, 2, 0)]])
    with pytest.raises(InputError, match="x1"):
        run(programs, {"x0": x, "x1": ints(1, 1)})
    check("Pad", [x, ints(1, 2), None, ints(1)], constant=(3,), dims={1: ["K"]})
    shared = programs_of(make_model("Pad", [x, ints(1, 0, 0, 2)], dims={0: ["K", 5], 1: ["K"]}))
    assert [program.inputs[0].shape[0].constant for program in shared] == [4], "one name is one size"
