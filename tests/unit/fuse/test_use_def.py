from __future__ import annotations

from dataclasses import replace

from opweld.fuse.use_def import UseDef, key_of, of_one_node, terms_of, too_much
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.expr import loads
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Scan, Tensor, TensorProgram
from tests.unit.fuse.programs import Builder
from tests.unit.tile import programs


def web_of(program: TensorProgram) -> UseDef:
    return UseDef(program, expected_sizes(program), Target.of("x86-64-v4"), Ledger())


def diamond() -> UseDef:
    build = Builder()
    top = build.map("tanh", "x")
    build.pair("add", build.map("abs", top), build.map("neg", top))
    return web_of(build.program("t3"))


def names(graph: UseDef, value: str) -> list[str]:
    return [key_of(user) for user in graph.users(value)]


def test_users_come_in_program_order_and_once() -> None:
    graph = diamond()
    assert names(graph, "t0") == ["t1", "t2"]
    assert names(graph, "x") == ["t0"]
    assert names(graph, "t3") == []


def test_users_follow_what_is_replaced_and_removed() -> None:
    graph = diamond()
    first, other = graph.tensor("t1"), graph.tensor("t2")
    assert first is not None and other is not None
    graph.put(replace(first, body=other.body))
    graph.remove(("t2",))
    assert names(graph, "t0") == ["t1"]
    assert names(graph, "t2") == ["t3"]
    assert graph.only_user("t0") is graph.tensor("t1")
    assert [key_of(item) for item in graph.items.values()] == ["t0", "t1", "t3"]


def test_an_output_has_no_only_user() -> None:
    build = Builder()
    build.map("abs", build.map("tanh", "x"))
    assert web_of(build.program("t0", "t1")).only_user("t0") is None
    assert web_of(build.program("t1")).only_user("t0") is not None


def test_what_nobody_reads_goes_with_all_that_led_to_it() -> None:
    build = Builder()
    dead = build.map("abs", build.map("tanh", "x"))
    kept = build.map("neg", "x")
    graph = web_of(build.program(kept))
    graph.drop_unused()
    assert list(graph.items) == [kept]
    assert not graph.users("x")[1:]
    assert dead not in graph.items


def test_values_of_a_recurrence_have_one_producer() -> None:
    graph = web_of(parse_program(programs.lstm(3, 2, 4, 5)))
    (scan,) = [item for item in graph.items.values() if isinstance(item, Scan)]
    values = [name for name, key in graph.producer.items() if graph.items[key] is scan]
    assert values == ["all", "last"]
    assert graph.kind(scan) is None
    assert {graph.producer[name] for name in values} == {key_of(scan)}


def test_a_decision_about_a_part_is_one_about_the_whole() -> None:
    graph = diamond()
    graph.mark(("t0",), "t1")
    assert graph.asked("t0", "t1")
    assert not graph.asked("t0", "t3")
    graph.renamed("t1", "t3")
    assert graph.asked("t0", "t3")


def test_what_comes_from_one_graph_node() -> None:
    assert of_one_node(("Softmax",), ("Softmax",))
    assert of_one_node((), ("Softmax",))
    assert not of_one_node(("MatMul",), ("Add",))


def test_the_first_limit_that_is_passed_is_told() -> None:
    assert too_much(nodes=256, operands=24, terms=40) == {}
    assert too_much(nodes=257, operands=25) == {"nodes": 257, "most": 256}
    assert too_much(operands=25) == {"operands": 25, "most": 24}
    assert too_much(terms=41) == {"terms": 41, "most": 40}


def test_terms_are_those_inside_of_divisions() -> None:
    program = parse_program(
        "program p\ninput x f32[4, 6]\ntensor a f32[i0: 4, i1: 6]\n  = neg(x[i0, i1])\n"
        "tensor b f32[i0: 2, i1: 12]\n  = neg(a[((12*i0 + i1) // 6), ((12*i0 + i1) % 6)])\noutput y = b\n"
    )
    plain, divided = (item for item in program.items if isinstance(item, Tensor))
    assert terms_of(loads(plain.body)[0]) == 0
    assert terms_of(loads(divided.body)[0]) >= 2
