from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import UnsupportedError
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import Array, assert_close, flow_of, normal

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), [output], name=f"make_{output}", **attributes)


def loop(
    body: Sequence[onnx.NodeProto],
    states: Mapping[str, tuple[int, Sequence[int | str] | None]],
    results: Sequence[str],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    before: Sequence[onnx.NodeProto] = (),
    after: Sequence[onnx.NodeProto] = (),
    outputs: Sequence[str] = (),
    constants: Mapping[str, Array] | None = None,
    trips: str = "trips",
    condition: str = "",
) -> onnx.ModelProto:
    """A loop whose states are `s`, `t` (updated to `s_next`, ...) and start from values of their names with `_first`.
    `results` are the loop's outputs, states first; the body's condition is `again`, what it stacks ends in `_row`."""
    carried = list(states)
    stacked = list(results[len(carried) :])
    graph = helper.make_graph(
        list(body),
        "body",
        [info("i", INT, []), info("go", BOOL, []), *(info(name, *kind) for name, kind in states.items())],
        [info("again", BOOL, []), *(info(f"{name}_next", *kind) for name, kind in states.items())]
        + [info(f"{name}_row", FLOAT) for name in stacked],
    )
    first = [f"{name}_first" for name in carried]
    the_loop = helper.make_node("Loop", [trips, condition, *first], list(results), name="the_loop", body=graph)
    kept = [info(name, TensorProto.UNDEFINED) for name in outputs or results]
    for value in kept:
        value.ClearField("type")
    main = helper.make_graph(
        [*before, the_loop, *after],
        "main",
        [info(name, *kind) for name, kind in inputs.items()],
        kept,
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    for output in typed.graph.output:
        output.type.tensor_type.elem_type = FLOAT
    return typed


def check(model: onnx.ModelProto, *feeds: Mapping[str, Array]) -> None:
    """Compares the flow with ONNX Runtime: the reference evaluator takes an absent condition for false."""
    flow = flow_of(model)
    names = [value.name for value in model.graph.output]
    compiled = opweld.InferenceSession(model.SerializeToString())
    session = onnxruntime.InferenceSession(_typed(model).SerializeToString(), providers=["CPUExecutionProvider"])
    for given in feeds:
        expected = session.run(None, dict(given))
        interpreted = interpret_flow(flow, given)
        for name, made, wanted in zip(names, compiled.run(None, given), expected, strict=True):
            assert_close(interpreted[name], np.asarray(wanted), 3e-6, name)
            assert_close(made, np.asarray(wanted), 3e-6, name)


ALWAYS = node("Identity", ["go"], "again")
SUM = loop(
    [ALWAYS, node("Add", ["s", "x"], "s_next"), node("Mul", ["s_next", "x"], "products_row")],
    {"s": (FLOAT, ["n"])},
    ["s_last", "products"],
    {"trips": (INT, []), "x": (FLOAT, ["n"]), "s_first": (FLOAT, ["n"])},
)


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_a_trip_count_that_is_fed(trips: int) -> None:
    check(SUM, {"trips": np.array(trips), "x": normal(5), "s_first": normal(5, seed=1)})


def test_no_trip_at_all() -> None:
    feeds = {"trips": np.array(0), "x": normal(5), "s_first": normal(5, seed=1)}
    interpreted = interpret_flow(flow_of(SUM), feeds)
    compiled = opweld.InferenceSession(SUM.SerializeToString()).run(None, feeds)
    for last, products in (compiled, (interpreted["s_last"], interpreted["products"])):
        np.testing.assert_array_equal(last, feeds["s_first"])
        assert products.shape[0] == 0
    assert not np.shares_memory(feeds["s_first"], compiled[0])


def with_weights(through: bool, trips: str = "trips") -> onnx.ModelProto:
    """A loop that passes weights `t` from iteration to iteration, with or without a node between."""
    body = [ALWAYS, node("MatMul", ["s", "t"], "s_next"), node("Relu", ["s_next"], "rows_row")]
    made = loop(
        [*body, node("Identity", ["t"], "t_next")],
        {"s": (FLOAT, [3, 20]), "t": (FLOAT, [20, 20])},
        ["s_last", "t_last", "rows"],
        {"trips": (INT, []), "s_first": (FLOAT, [3, 20])},
        constants={"t_first": normal(20, 20, seed=4) / 5},
        after=[node("ReduceSum", ["t_last"], "total")],
        outputs=["s_last", "rows", "t_last", "total"],
        trips=trips,
    )
    if not through:
        graph = made.graph.node[0].attribute[0].g
        del graph.node[-1]
        next(value for value in graph.output if value.name == "t_next").name = "t"
    return made


@pytest.mark.parametrize("through", [True, False])
def test_a_state_that_no_iteration_changes_is_read_from_outside(through: bool) -> None:
    model = with_weights(through)
    check(model, *({"trips": np.array(trips), "s_first": normal(3, 20)} for trips in (1, 2, 6)))
    flow = flow_of(model)
    moves = [dict(ending.moves) for segment in flow.segments for ending in segment.endings]
    assert {"s"} == {name for names in moves for name in names if name in ("s", "t")}
    read = [one for segment in flow.segments for program in segment.programs for one in program.constants]
    assert any(constant.origin == ("t_first",) for constant in read)


def test_a_session_that_decides_runs_in_several_threads() -> None:
    session = opweld.InferenceSession(SUM.SerializeToString())

    def run(trips: int) -> bool:
        x, start = normal(70, seed=trips), normal(70, seed=trips + 1)
        last, products = session.run(None, {"trips": np.array(trips), "x": x, "s_first": start})
        return products.shape == (trips, 70) and bool(np.allclose(last, start + trips * x, atol=1e-3))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, [3, 1, 9, 40, 2, 17, 5, 30] * 4))


def test_a_stack_keeps_what_it_has_while_it_grows() -> None:
    x = np.ones(1000, np.float32)
    session = opweld.InferenceSession(SUM.SerializeToString())
    (last, products) = session.run(None, {"trips": np.array(500), "x": x, "s_first": 0 * x})
    np.testing.assert_array_equal(products, np.arange(1, 501, dtype=np.float32)[:, None] * x)
    assert last[0] == 500


def test_a_condition_that_data_decides() -> None:
    """s doubles until its sum passes a limit that is fed."""
    body = [
        node("Add", ["s", "s"], "s_next"),
        node("ReduceSum", ["s_next"], "total", keepdims=0),
        node("Less", ["total", "limit"], "again"),
        node("Identity", ["total"], "totals_row"),
    ]
    model = loop(
        body,
        {"s": (FLOAT, [3])},
        ["s_last", "totals"],
        {"limit": (FLOAT, []), "s_first": (FLOAT, [3])},
        trips="",
        constants={"yes": np.array(True)},
        condition="yes",
    )
    start = np.array([0.5, 1, 2], np.float32)
    check(model, *({"limit": np.array(limit, np.float32), "s_first": start} for limit in (1, 10, 500)))


def test_a_state_that_grows() -> None:
    """The result of every step is appended to a state, as decoders of language models do."""
    body = [
        ALWAYS,
        node("ReduceMean", ["s"], "mean", keepdims=1),
        node("Concat", ["s", "mean"], "s_next", axis=0),
    ]
    model = loop(
        body,
        {"s": (FLOAT, ["n"])},
        ["s_last"],
        {"trips": (INT, []), "s_first": (FLOAT, ["n"]), "x": (FLOAT, ["m"])},
        after=[node("ReduceSum", ["s_last"], "total", keepdims=1), node("Add", ["x", "total"], "y")],
        outputs=["s_last", "y"],
    )
    for trips in (1, 5):
        check(model, {"trips": np.array(trips), "s_first": normal(3), "x": normal(4)})


@pytest.mark.parametrize("stacks", [False, True])
def test_a_first_iteration_that_changes_the_rank_of_a_state(stacks: bool) -> None:
    """Exporters initialise with a number what has no value yet. Without an iteration it stays one."""
    body = [
        ALWAYS,
        node("Add", ["x", "s"], "s_next"),
        node("ReduceMean", ["s_next"], "t_next", keepdims=0),
        node("Mul", ["t", "s_next"], "kept_row"),
    ]
    model = loop(
        body,
        {"s": (FLOAT, None), "t": (FLOAT, [])},
        ["s_last", "t_last", "kept"][: 2 + stacks],
        {"trips": (INT, []), "s_first": (FLOAT, []), "t_first": (FLOAT, []), "x": (FLOAT, ["n"])},
        after=[node("Mul", ["s_last", "two"], "doubled")],
        outputs=["doubled", "t_last", "kept"][: 2 + stacks],
        constants={"two": np.array(2, np.float32)},
    )
    for trips in (0, 1, 2, 5)[stacks:]:
        for n in (1, 3):
            feeds = {"trips": np.array(trips), "s_first": normal(), "t_first": normal(seed=1), "x": normal(n, seed=2)}
            check(model, feeds)


def test_a_state_that_grows_around_a_loop() -> None:
    """What the outer loop widens is not taken for a state of the inner one."""
    inner = helper.make_graph(
        [node("Identity", ["inner_go"], "inner_again"), node("Add", ["u", "one"], "u_next")],
        "inner",
        [info("j", INT, []), info("inner_go", BOOL, []), info("u", FLOAT, [1])],
        [info("inner_again", BOOL, []), info("u_next", FLOAT, [1])],
    )
    body = [
        ALWAYS,
        node("ReduceMean", ["s"], "mean", keepdims=1),
        helper.make_node("Loop", ["turns", "", "mean"], ["u_last"], name="inner_loop", body=inner),
        node("Concat", ["s", "u_last"], "s_next", axis=0),
    ]
    model = loop(
        body,
        {"s": (FLOAT, ["n"])},
        ["s_last"],
        {"trips": (INT, []), "turns": (INT, []), "s_first": (FLOAT, ["n"])},
        constants={"one": np.array([1], np.float32)},
    )
    for trips, turns in ((1, 0), (3, 2)):
        check(model, {"trips": np.array(trips), "turns": np.array(turns), "s_first": normal(3)})


def test_the_number_of_the_iteration_decides_a_size() -> None:
    body = [
        ALWAYS,
        node("Reshape", ["i", "one"], "start"),
        node("Add", ["start", "one"], "end"),
        node("Slice", ["x", "start", "end"], "part"),
        node("Slice", ["x", "zero", "end"], "front"),
        node("ReduceSum", ["front"], "all", keepdims=1),
        node("Mul", ["part", "all"], "term"),
        node("Add", ["s", "term"], "s_next"),
    ]
    model = loop(
        body,
        {"s": (FLOAT, [1])},
        ["s_last"],
        {"trips": (INT, []), "s_first": (FLOAT, [1]), "x": (FLOAT, ["n"])},
        constants={"one": np.array([1]), "zero": np.array([0])},
    )
    check(model, {"trips": np.array(4), "s_first": normal(1), "x": normal(6)})


def test_states_that_change_places() -> None:
    body = [ALWAYS, node("Identity", ["t"], "s_next"), node("Identity", ["s"], "t_next")]
    model = loop(
        body,
        {"s": (FLOAT, [2]), "t": (FLOAT, [2])},
        ["s_last", "t_last"],
        {"trips": (INT, []), "s_first": (FLOAT, [2]), "t_first": (FLOAT, [2])},
    )
    for trips in (1, 2, 3):
        check(model, {"trips": np.array(trips), "s_first": normal(2), "t_first": normal(2, seed=1)})


def test_a_loop_in_a_loop_and_a_selection_in_it() -> None:
    """For each row: how many of its elements are positive, by NonZero, times as often as the inner loop says."""
    inner = helper.make_graph(
        [
            helper.make_node("Identity", ["go2"], ["again2"]),
            helper.make_node("Greater", ["u", "nothing"], ["mask"]),
            helper.make_node("NonZero", ["mask"], ["places"], name="the_places"),
            helper.make_node("Transpose", ["places"], ["columns"]),
            helper.make_node("GatherND", ["u", "columns"], ["positive"]),
            helper.make_node("ReduceSum", ["positive"], ["share"], keepdims=0),
            helper.make_node("Sub", ["u", "share"], ["u_next"]),
        ],
        "inner",
        [info("j", INT, []), info("go2", BOOL, []), info("u", FLOAT, [3])],
        [info("again2", BOOL, []), info("u_next", FLOAT, [3])],
    )
    body = [
        ALWAYS,
        helper.make_node("Loop", ["two", "", "s"], ["s_inner"], name="inner_loop", body=inner),
        node("Add", ["s_inner", "x"], "s_next"),
        node("Identity", ["s_inner"], "rows_row"),
    ]
    model = loop(
        body,
        {"s": (FLOAT, [3])},
        ["s_last", "rows"],
        {"trips": (INT, []), "s_first": (FLOAT, [3]), "x": (FLOAT, [3])},
        constants={"two": np.array(2), "nothing": np.array(0, np.float32)},
    )
    for trips in (1, 3):
        check(model, {"trips": np.array(trips), "s_first": normal(3), "x": normal(3, seed=4)})


def test_what_comes_after_a_loop_may_be_another_one() -> None:
    model = loop(
        [ALWAYS, node("Add", ["s", "x"], "s_next")],
        {"s": (FLOAT, ["n"])},
        ["s_last"],
        {"trips": (INT, []), "x": (FLOAT, ["n"]), "s_first": (FLOAT, ["n"])},
    )
    again = onnx.NodeProto()
    again.CopyFrom(model.graph.node[0])
    again.name, again.input[2], again.output[0] = "second", "s_last", "final"
    model.graph.node.append(again)
    model.graph.output[0].name = "final"
    check(model, {"trips": np.array(3), "x": normal(4), "s_first": normal(4, seed=1)})


def test_a_body_that_is_several_segments_keeps_what_the_first_one_says() -> None:
    """The number of the next iteration is known before the selection in the body, and carried on after it."""
    body = [
        ALWAYS,
        node("Greater", ["s", "nothing"], "mask"),
        node("Compress", ["s", "mask"], "kept"),
        node("ReduceSum", ["kept"], "total", keepdims=1),
        node("Sub", ["s", "total"], "s_next"),
        node("ReduceMax", ["kept"], "top_row", keepdims=0),
    ]
    model = loop(
        body,
        {"s": (FLOAT, [4])},
        ["s_last", "top"],
        {"trips": (INT, []), "s_first": (FLOAT, [4])},
        constants={"nothing": np.array(-50, np.float32)},
    )
    for trips in (1, 3):
        check(model, {"trips": np.array(trips), "s_first": normal(4)})


COLLECTING = """<ir_version: 8, opset_import: ["": 17]>
g (int64 n, float[rows, 4] x) => (float[a, b] y, float k, float[4] last) {
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    before = Constant <value = int64 {-1}> ()
    none = SequenceEmpty ()
    goes = Less (zero, n)
    all, i, rows_of = Loop ("", goes, none, zero) <body = b (int64 t, bool c, seq(float[]) s, int64 at)
        => (again, longer, following, twice) {
        row = Gather <axis = 0> (x, at)
        square = Mul (row, row)
        item = ITEM (square)
        twice = Add (square, square)
        longer = SequenceInsert (s, item)
        following = Add (at, one)
        again = Less (following, n)
    }>
    y = ConcatFromSequence <axis = 0, new_axis = NEW> (all)
    count = SequenceLength (all)
    k = Cast <to = 1> (count)
    last = Gather <axis = 0> (rows_of, before)
}"""


@pytest.mark.parametrize("stacks", [False, True])
def test_tensors_that_a_loop_collects(stacks: bool) -> None:
    """One more for each iteration, and nobody knows how many before the model runs."""
    item, new = ("Identity", "1") if stacks else ("Flatten <axis = 0>", "0")
    model = onnx.parser.parse_model(COLLECTING.replace("ITEM", item).replace("NEW", new))
    check(model, *({"n": np.array(n), "x": normal(5, 4)} for n in (1, 3, 5)))


def test_a_list_that_a_loop_reads_is_refused() -> None:
    text = COLLECTING.replace("ITEM", "Identity").replace("NEW", "1")
    read = text.replace("twice = Add (square, square)", "twice = Add (square, square) many = SequenceLength (s)")
    with pytest.raises(UnsupportedError, match="determines the contents of a sequence"):
        opweld.compile(onnx.parser.parse_model(read))
