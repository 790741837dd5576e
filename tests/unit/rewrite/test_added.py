"""Rules and passes of other packages, given in Python or found through entry points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opweld
from opweld.errors import OptionError, RuleError
from opweld.extensions import digest
from opweld.ledger import Ledger
from opweld.options import LevelName
from opweld.rewrite import Pass, Proposal, Refusal, Rule, Scope, operand
from opweld.rewrite.added import added, kinds
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from opweld.verification.reference import float64_outputs
from tests.unit.packages import installed
from tests.unit.rewrite.rewritten import Array, model_of, normal
from tests.unit.rewrite.rewritten import kinds as operators_of

TEXT = """g (float[n] x) => (float[n] y, float[n] z) {
    a = Reciprocal(x) b = Reciprocal(a) y = Exp(b) c = Reciprocal(x) z = Exp(c) }"""

PACKAGE = """
from opweld.rewrite import Proposal, Rule, operand

class Inverses(Rule):
    '''Two inverses are none.'''

    name = "acme.inverses"
    operators = ("Reciprocal",)

    def look(self, node, scope):
        inner = scope.producer(operand(node, 0), "Reciprocal")
        if inner is None:
            return None
        return Proposal("1 / (1 / x) is x", lambda: scope.replace(node.outputs[0], inner.inputs[0]), (inner,))
"""


class Inverses(Rule):
    """Two inverses are none."""

    name = "own.inverses"
    operators = ("Reciprocal",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        inner = scope.producer(operand(node, 0), "Reciprocal")
        if inner is None or inner.inputs[0] is None:
            return Refusal("what it inverts is no inverse")
        source = inner.inputs[0]
        return Proposal("1 / (1 / x) is x", lambda: scope.replace(node.outputs[0], source), (inner,))


class Gentle(Inverses):
    """The same, at a lower level."""

    name = "own.gentle"
    level = "basic"


class Marked(Pass):
    """Writes the first Exp as an operator of another domain, and refuses the others."""

    name = "own.marked"

    def run(self, scope: Scope) -> Iterator[tuple[ir.Node, Proposal | Refusal]]:
        nodes = [node for node in scope.graph if node.op_type == "Exp"]
        for place, node in enumerate(nodes):
            if place:
                yield node, Refusal("only the first is", {"place": place})
                continue

            def apply(node: ir.Node = node) -> None:
                scope.replace(node.outputs[0], scope.add(node, "Power", [node.inputs[0]], domain="com.own"))

            yield node, Proposal("it is the first", apply)


class Marks(Rule):
    """Writes an operator of another domain as Exp."""

    name = "own.marks"
    operators = ("com.own::Power",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        assert scope.producer(node.outputs[0], "com.own::Power") is node
        assert scope.producer(node.outputs[0]) is None
        made = node.outputs[0]
        return Proposal("it is Exp", lambda: scope.replace(made, scope.add(node, "Exp", [node.inputs[0]])))


class Raising(Rule):
    """Fails at each Exp."""

    name = "own.raising"
    operators = ("Exp",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        raise ZeroDivisionError("no reason")


class Breaking(Raising):
    """Fails while it changes the graph."""

    name = "own.breaking"

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        def apply() -> None:
            scope.replace(node.outputs[0], scope.add(node, "Log", [node.inputs[0]]))
            raise KeyError("half done")

        return Proposal("it fails", apply)


class Answering(Raising):
    """Answers with what is no answer."""

    name = "own.answering"

    def look(self, node: ir.Node, scope: Scope) -> Any:
        return True


class Ending(Pass):
    """Fails at once."""

    name = "own.ending"

    def run(self, scope: Scope) -> Iterator[tuple[ir.Node, Proposal | Refusal]]:
        raise ValueError("at once")


class Circular(Raising):
    """Has an Exp read its own result."""

    name = "own.circular"

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        return Proposal("it fails", lambda: node.replace_input_with(0, node.outputs[0]))


class Dangling(Raising):
    """Has an Exp read what is not there."""

    name = "own.dangling"

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        return Proposal("it fails", lambda: node.replace_input_with(0, ir.Value(name="nowhere")))


class Endless(Raising):
    """Writes every Exp anew."""

    name = "own.endless"

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        made = node.outputs[0]
        return Proposal("another one", lambda: scope.replace(made, scope.add(node, "Exp", [node.inputs[0]])))


def optimized(model: onnx.ModelProto, *rules: object, **options: Any) -> Any:
    users = added(rules)
    return optimize_model(model, lambda: Ledger(**options, rules={**REWRITES, **kinds(users)}), users=users)


def same(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    for expected, found in zip(float64_outputs(before, feeds), float64_outputs(after, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_rule_that_is_given_is_decided_and_applied() -> None:
    model = model_of(TEXT)
    made = opweld.optimize(model, rules=[Inverses])
    assert sorted(node.op_type for node in made.graph.node) == ["Exp", "Exp", "Reciprocal"]
    onnx.checker.check_model(made, full_check=True)
    same(model, made, {"x": normal(7)})
    decisions = [d for d in optimized(model, Inverses()).ledger if d.rule == "own.inverses"]
    assert [(d.fired, d.reason) for d in decisions] == [
        (True, "1 / (1 / x) is x"),
        (False, "what it inverts is no inverse"),
    ]


@pytest.mark.parametrize("name", ["own", "own.inverses"])
def test_a_rule_can_be_disabled(name: str) -> None:
    made = opweld.optimize(model_of(TEXT), rules=[Inverses], disable=[name])
    assert len(made.graph.node) == 4, "but equal nodes are one"


@pytest.mark.parametrize(
    ("rule", "level", "left"), [(Inverses, "extended", 4), (Gentle, "basic", 3), (Gentle, "none", 5)]
)
def test_rules_have_levels(rule: type[Rule], level: LevelName, left: int) -> None:
    assert len(opweld.optimize(model_of(TEXT), rules=[rule], level=level).graph.node) == left


def test_a_pass_and_a_rule_write_other_domains_and_read_them() -> None:
    made = optimized(model_of(TEXT), Marked)
    assert operators_of(made).count("Power") == 1
    assert made.model.opset_imports["com.own"] == 1
    assert [(d.fired, d.reason) for d in made.ledger if d.rule == "own.marked"] == [
        (True, "it is the first"),
        (False, "only the first is"),
    ]
    back = optimized(model_of(TEXT), Marked, Marks)
    assert "Power" not in operators_of(back)
    assert "com.own" not in back.model.opset_imports


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Raising, r"rule own.raising failed at node '.*' \(Exp\): ZeroDivisionError: no reason"),
        (Breaking, r"rule own.breaking failed at node '.*' \(Exp\): KeyError: 'half done'"),
        (Answering, r"rule own.answering failed .* expected a Proposal or a Refusal, got True"),
        (Circular, r"invalid after own.circular: there is a cycle"),
        (Dangling, r"invalid after own.dangling: node '.*' reads 'nowhere', which no node computes"),
        (Ending, r"pass own.ending failed: ValueError: at once"),
    ],
)
def test_what_fails_is_named_and_loses_nothing(rule: type[Rule], said: str) -> None:
    model = model_of(TEXT)
    text = model.SerializeToString()
    with pytest.raises(RuleError, match=said):
        opweld.optimize(model, rules=[rule])
    assert model.SerializeToString() == text
    assert len(opweld.optimize(model, rules=[rule], disable=[rule.name]).graph.node) == 4
    assert len(opweld.optimize(model, rules=[rule], level="basic").graph.node) == 4


def test_a_rule_that_never_ends_is_stopped() -> None:
    model = model_of(TEXT)
    made = opweld.optimize(model, rules=[Endless])
    assert [node.op_type for node in made.graph.node].count("Exp") == 2
    same(model, made, {"x": normal(7)})


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"name": "rewrite.mine"}, "expected package.rule, of a package other than"),
        ({"name": "mine"}, "expected package.rule"),
        ({"level": "most"}, "its level is 'most'"),
        ({"operators": "Reciprocal"}, "expected a tuple of names"),
    ],
)
def test_rules_that_are_none_are_refused(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        opweld.optimize(model_of(TEXT), rules=[type("Other", (Inverses,), attributes)])


def test_what_is_no_rule_or_there_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="expected a Rule or a Pass"):
        opweld.optimize(model_of(TEXT), rules=["own.inverses"])  # type: ignore[list-item]
    with pytest.raises(OptionError, match=r"two with the name own.inverses"):
        opweld.optimize(model_of(TEXT), rules=[Inverses, Inverses()])


def test_rules_are_found_through_entry_points(tmp_path: Path) -> None:
    (tmp_path / "acme_rules.py").write_text(PACKAGE)
    model = model_of(TEXT)
    with installed(tmp_path, {"opweld.rules": {"acme": "acme_rules:Inverses"}}):
        assert len(opweld.optimize(model).graph.node) == 3
        assert len(opweld.optimize(model, disable=["acme.inverses"]).graph.node) == 4
        assert "acme.inverses: 1 of 1" in opweld.explain(model).all(), "compiling takes it too"
        compiled = opweld.compile(model).run({"x": normal(5)})
    np.testing.assert_allclose(compiled["y"], np.exp(normal(5)), rtol=1e-5)
    assert len(opweld.optimize(model).graph.node) == 4
    assert "acme.inverses" not in opweld.explain(model).all()


def test_an_edited_package_is_compiled_anew(tmp_path: Path) -> None:
    """What lies in the cache was made with the text of all packages that add something."""
    digests: set[str] = set()
    for version in ("1", "2"):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "acme_edited.py").write_text(PACKAGE + f"# {version}\n")
        with installed(folder, {"opweld.rules": {"acme": "acme_edited:Inverses"}}):
            digests.add(digest())
    assert len({*digests, digest()}) == 3


@pytest.mark.parametrize(
    ("code", "value", "said"),
    [
        ("import nothing_of_this_name", "acme_broken:Rule", "does not load: ModuleNotFoundError"),
        ("1 / 0", "acme_broken:Rule", "does not load: ZeroDivisionError"),
        ("", "acme_broken:Missing", "does not load: AttributeError"),
        ("", "acme_missing:Rule", "does not load: ModuleNotFoundError"),
        ("Rule = 3", "acme_broken:Rule", "3 is not a rule"),
    ],
)
def test_a_broken_package_is_left_out_with_a_warning(tmp_path: Path, code: str, value: str, said: str) -> None:
    (tmp_path / "acme_broken.py").write_text(code)
    with (
        installed(tmp_path, {"opweld.rules": {"broken": value}}),
        pytest.warns(RuntimeWarning, match=f"'broken' of opweld.rules .* is left out: .*{said}"),
    ):
        assert len(opweld.optimize(model_of(TEXT)).graph.node) == 4


class Numbered(Inverses):
    """The same; what it holds says which results are inverted once more, so that two of them differ."""

    name = "own.numbered"

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        found = super().look(node, scope)
        return found if self.sign > 0 else None


def test_compiling_takes_rules_that_are_given() -> None:
    model, feeds = model_of(TEXT), {"x": normal(3)}
    plain = opweld.compile(model)
    ruled = opweld.compile(model, rules=[Inverses])
    assert "own.inverses" in opweld.explain(model, rules=[Inverses]).all()
    assert "own.inverses" not in opweld.explain(model).all()
    assert plain.path != ruled.path
    assert opweld.compile(model, rules=[Inverses]).path == ruled.path
    assert opweld.compile(model, rules=[Inverses()]).path == ruled.path
    for name, array in plain.run(feeds).items():
        np.testing.assert_allclose(ruled.run(feeds)[name], array, rtol=1e-5)


def test_compiling_takes_a_pass_and_the_rule_that_reads_it() -> None:
    told = opweld.explain(model_of(TEXT), rules=[Marked(), Marks]).all()
    assert "own.marked" in told and "own.marks" in told


def test_models_of_different_rules_are_different() -> None:
    def local() -> type[Rule]:
        class Inverses(Rule):
            """Made within a function: nothing says which values it sees of it."""

            name = "own.inverses"
            operators = ("Reciprocal",)

        return Inverses

    one, other = local(), local()
    given = [(), (Inverses,), (Gentle,), (Inverses, Gentle), (Gentle, Inverses), (one,), (other,)]
    given += [(Numbered(1),), (Numbered(-1),)]
    assert len({digest(rules) for rules in given}) == len(given)
    assert digest((one,)) == digest((one,))
    assert digest((Numbered(1),)) == digest((Numbered(1),))


def test_what_is_no_rule_is_said_before_compiling() -> None:
    with pytest.raises(OptionError, match="is not a rule"):
        opweld.compile(model_of(TEXT), rules=[42])  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="rules is 42"):
        opweld.compile(model_of(TEXT), rules=42)  # pyright: ignore[reportArgumentType]
