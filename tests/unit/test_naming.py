"""Names of decisions that cannot be are refused before the work; those of ids only a model tells."""

from __future__ import annotations

from typing import Any

import pytest

import opweld
from opweld.errors import OptionError
from opweld.frontend import onnx
from opweld.naming import check_names
from opweld.rules import COMPILED
from tests.unit.frontend.models import model_of, node

RELU = model_of([node("Relu", ["x"], "y")], {"x": [3]}, ["y"])


def test_a_name_that_is_nothing_lists_the_rules_the_nearest_first() -> None:
    with pytest.raises(
        OptionError, match=r"disable 'fuse\.epilog': .* the nearest first, are fuse\.epilogue, "
    ) as refused:
        check_names(["fuse.rows", "fuse", "0123456789", "fuse.epilog"], {}, COMPILED)
    assert all(rule in str(refused.value) for rule in COMPILED)


def test_a_rule_of_the_other_command_is_known_as_such() -> None:
    with pytest.raises(OptionError, match=r"disable 'rewrite\.gelu': .*opweld optimize"):
        opweld.compile(RELU, disable=["rewrite.gelu"])
    with pytest.raises(OptionError, match=r"disable 'fuse\.rows': .*compiling"):
        opweld.optimize(RELU, disable=["fuse.rows"])


@pytest.mark.parametrize("name", ["fuse.view", "fuse", "0123", "0123456789abcdef"])
def test_a_pin_is_of_a_decision(name: str) -> None:
    with pytest.raises(OptionError, match="explain MODEL --all") as refused:
        opweld.compile(RELU, pins={name: "copy"})
    assert ("is a rule" in str(refused.value)) == (name == "fuse.view")
    assert (f"disable {name!r}" in str(refused.value)) == name.startswith("fuse")


@pytest.mark.parametrize("options", [{"disable": ["fuse.weld"]}, {"pins": {"fuse.view": "copy"}}])
def test_before_the_work(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*arguments: object) -> None:
        raise AssertionError("begun")

    monkeypatch.setattr(onnx, "load_file", work)
    with pytest.raises(OptionError):
        opweld.compile(RELU, **options)
    with pytest.raises(OptionError):
        opweld.optimize(RELU, **options)
    with pytest.raises(AssertionError, match="begun"):
        opweld.compile(RELU, disable=["0123456789"])


def test_an_id_of_no_decision_is_known_when_all_is_decided() -> None:
    with pytest.raises(OptionError, match="disable '0123456789': no such decision"):
        opweld.compile(RELU, disable=["0123456789"])
