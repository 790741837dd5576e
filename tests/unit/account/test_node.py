"""A node is followed from the file to its kernel; a name that meets nothing is an error with names like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.account.account import Account
from opweld.account.node import decisions_about, node_text, nodes_called
from opweld.errors import OptionError
from opweld.record import FileNode
from tests.unit.account.compiled import GIVEN, NODES, RECORD, account, decided


def test_a_node_that_is_computed_is_told_with_its_kernel_and_decisions() -> None:
    told = account()
    (node,) = nodes_called(told, "product")
    lines = node_text(told, node).splitlines()
    assert lines[:6] == [
        "node product: MatMul, from model.py:7",
        "  reads f, w; gives p",
        "  computed with other nodes, in:",
        "  kernel main: k1_contraction, phase 0: predicted 3 us on one core (75.0% of a run), 3 kB",
        "    computes product, add",
        "    schedule of add 0: contraction height=2",
    ]
    assert lines[6] == "  decisions about it (4)" and len(decisions_about(told, node)) == 4
    assert lines[8] == "      at product (model.py:7) > add"


@pytest.mark.parametrize(
    ("name", "outcome", "kernel"),
    [
        ("flat", "it only moves data, which is index arithmetic in the kernels of what reads it:", "k1_contraction"),
        ("size", "its result is known without running the model, from constants and sizes", ""),
        ("lost", "no output needs it", ""),
        ("same", "nothing of it is left to compute", ""),
    ],
)
def test_a_node_that_no_kernel_computes_says_why(name: str, outcome: str, kernel: str) -> None:
    told = account()
    (node,) = nodes_called(told, name)
    text = node_text(told, node)
    assert f"  {outcome}\n" in text
    assert (f"kernel main: {kernel}," in text) if kernel else ("kernel main" not in text)


def test_names_of_values_and_of_what_rewriting_made_are_names_too() -> None:
    told = account()
    assert nodes_called(told, "a")[0].name == "add"
    made = replace(RECORD, nodes=NODES[:-1], variants=RECORD.variants)
    kernel = replace(made.variants[0].kernels[0], nodes=("product_1", "add"))
    made = replace(made, variants=(replace(made.variants[0], kernels=(kernel,)),))
    told = Account(decided(), GIVEN, made)
    (node,) = nodes_called(told, "product_1")
    assert node_text(told, node).startswith("node product_1: not in the file, created by rewriting the graph\n")


def test_a_name_that_meets_nothing_is_an_error_with_names_like_it() -> None:
    with pytest.raises(OptionError, match=r"no node of that name; did you mean product\?"):
        nodes_called(account(), "prodct")
    deep = Account(decided(), GIVEN, replace(RECORD, nodes=(*NODES, FileNode("/layer.0/mlp/Mul", "Mul", (), ("m",)))))
    with pytest.raises(OptionError, match=r"did you mean /layer\.0/mlp/Mul\?"):
        nodes_called(deep, "mlp/Mul")
    for name in ("", "\x1b[31m"):
        with pytest.raises(OptionError) as error:
            nodes_called(account(), name)
        assert "\x1b" not in str(error.value) and "did you mean" not in str(error.value)
