from __future__ import annotations

from collections import Counter

import pytest

from opweld.fuse import use_def as limits
from opweld.fuse.chains import fold_chains
from opweld.fuse.use_def import MOST_NODES, MOST_OPERANDS, UseDef
from opweld.fuse.views import prepared
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.expr import binary
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor, TensorProgram
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from tests.unit.fuse.programs import Builder, chain

TARGET = Target.of("x86-64-v4")


def folded(program: TensorProgram | str, ledger: Ledger | None = None, level: str = "all") -> UseDef:
    parsed = parse_program(program) if isinstance(program, str) else program
    graph = UseDef(prepared(parsed), expected_sizes(parsed), TARGET, Ledger(level=level) if ledger is None else ledger)
    fold_chains(graph)
    verify(graph.program())
    return graph


def sizes(graph: UseDef) -> list[int]:
    return [graph.size(item) for item in graph.items.values() if isinstance(item, Tensor)]


def test_a_tree_becomes_one_expression() -> None:
    build = Builder()
    left, right = build.map("tanh", "x"), build.map("abs", build.map("floor", "x"))
    graph = folded(build.program(build.pair("add", left, right)))
    assert "%0 = x[i0, i1]\n  = add(tanh(%0), abs(floor(%0)))\n" in print_program(graph.program())
    (whole,) = graph.items.values()
    assert whole.origin == ("Node_t1", "Node_t2", "Node_t0", "Node_t3")


def test_a_long_chain_becomes_pieces_of_limited_size() -> None:
    ledger = Ledger()
    graph = folded(chain(1000), ledger)
    assert sum(sizes(graph)) == 1000 + len(graph.items)
    assert len(graph.items) == 4
    assert max(sizes(graph)) == MOST_NODES
    refused = [decision for decision in ledger if decision.failed]
    assert [dict(decision.failed) for decision in refused] == [{"nodes": MOST_NODES + 1, "most": MOST_NODES}] * 3


def test_what_is_read_at_two_places_counts_twice() -> None:
    """Each tensor reads the one before it here and mirrored, so that its expression would double."""
    build, x = Builder(), "x"
    for _ in range(20):
        x = build.tensor(2, lambda i, j, x=x: binary("add", build.at(x, i, j), build.at(x, j, i)))
    graph = folded(build.program(x))
    assert 1 < len(graph.items) < 20
    assert max(sizes(graph)) <= MOST_NODES


def test_operands_have_a_limit() -> None:
    """A sum of many rows, each computed from one of its own: as many of them as may be read together."""
    text = ["program wide", *(f"input x{p} f32[4]" for p in range(40))]
    for part in range(40):
        text.append(f"tensor a{part} f32[i0: 4]\n  = add(x{part}[i0], x{(part + 1) % 40}[i0])")
    total = "a0[i0]"
    for part in range(1, 20):
        total = f"add({total}, a{part}[i0])"
    text.append(f"tensor y f32[i0: 4]\n  = {total}\noutput y = y\n")
    ledger = Ledger()
    graph = folded("\n".join(text), ledger)
    failed = Counter(next(iter(decision.failed), "none") for decision in ledger)
    assert failed == {"none": 20}
    assert len(graph.inputs(graph.items["y"])) == 21 <= MOST_OPERANDS


def test_an_operand_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_OPERANDS", 3)
    graph = folded(
        "program p\ninput a f32[4]\ninput b f32[4]\ninput c f32[4]\ninput d f32[4]\n"
        "tensor s f32[i0: 4]\n  = add(a[i0], b[i0])\ntensor t f32[i0: 4]\n  = add(c[i0], d[i0])\n"
        "tensor y f32[i0: 4]\n  = add(s[i0], t[i0])\noutput y = y\n",
        ledger := Ledger(),
    )
    assert list(graph.items) == ["t", "y"]
    assert [dict(decision.failed) for decision in ledger] == [{}, {"operands": 4, "most": 3}]


def test_a_single_element_is_computed_by_each_of_its_users() -> None:
    text = (
        "program p\ninput x f32[4]\ntensor s f32[i0: 1]\n  = exp(x[0])\n"
        "tensor a f32[i0: 4]\n  = add(x[i0], s[0])\ntensor b f32[i0: 4]\n  = sub(x[i0], s[0])\n"
        "output first = a\noutput second = b\n"
    )
    ledger = Ledger()
    assert list(folded(text, ledger).items) == ["a", "b"]
    (decision,) = ledger
    assert decision.rule == "fuse.chain"
    assert list(folded(text, Ledger([decision.id])).items) == ["s", "a", "b"]


def test_a_computed_index_goes_with_its_user() -> None:
    graph = folded(
        "program p\ninput x f32[5]\ninput which i64[4]\ntensor at1 i64[i0: 4]\n  = neg(which[i0])\n"
        "tensor b f32[i0: 4]\n  = neg(x[at(at1[i0], 5)])\noutput y = b\n"
    )
    assert graph.inputs(graph.items["b"]) == ("which", "x")


def test_a_single_element_read_at_a_computed_place_is_written_out_too() -> None:
    """Both the element and the index are computed in their users: the index stands inside the element's load."""
    graph = folded(
        "program p\ninput x f32[5]\ninput which i64[4]\ntensor k i64[i0: 4]\n  = neg(which[i0])\n"
        "tensor s f32[i0: 1]\n  = exp(x[0])\ntensor a f32[i0: 4]\n  = neg(s[at(k[i0], 1)])\n"
        "tensor b f32[i0: 4]\n  = exp(s[0])\noutput first = a\noutput second = b\n"
    )
    assert list(graph.items) == ["a", "b"]
    assert set(graph.inputs(graph.items["a"])) <= {"x", "which"}
