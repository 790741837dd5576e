"""Removes transpositions that cancel across the nodes between them, which are computed with permuted axes.

Exporters of channels-last frameworks write one before and one after each convolution; the nodes between two
convolutions can be computed in either order of axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.permuted import Order, Permuted, inverse, permuted
from opweld.rewrite.rules.pointwise import permuted_product
from opweld.rewrite.rules.region import Region, best, order_of, region_of, transposes, turn, weight
from opweld.rewrite.scope import Scope, operand

SMALL = 256
"""Bytes of stored tensors that the removal of a transposition may add to a file: as many as its node takes."""


class Sinking(Rule):
    """Nodes between transpositions are computed with permuted axes if fewer transpositions remain."""

    name = "rewrite.sinking"
    operators = ("Transpose",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        order, source = order_of(node, scope), operand(node, 0)
        if order is None or source is None or order == tuple(range(len(order))):
            return None
        producer = source.producer()
        readers = [reader for reader in scope.readers(node.outputs[0]) if reader.graph is scope.graph]
        refused: Refusal | None = None
        producers = [producer] if producer is not None and producer.graph is scope.graph else []
        for after in (True, False):
            found = self._asked(node, readers if after else producers, order if after else inverse(order), after, scope)
            if isinstance(found, Proposal):
                return found
            refused = refused or found
        return refused or _between(node, readers, order, scope)

    def way(self, node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
        """How this rule writes a node with permuted axes."""
        return permuted(node, order, scope)

    def wanted(self, region: Region, chosen: set[ir.Node]) -> Refusal | bool:
        """Whether these nodes are this rule's to permute."""
        return True

    def _asked(
        self, node: ir.Node, roots: Sequence[ir.Node], order: Order, after: bool, scope: Scope
    ) -> Proposal | Refusal | None:
        region = region_of(roots, order, lambda other: self.way(other, order, scope), scope, after=after)
        if not region.ways:
            return None
        chosen = next((part for part in region.parts(best(region, scope)) if part & set(roots)), set[ir.Node]())
        now, then = region.transposed(set()), region.transposed(chosen)
        fewer = len(now) - len(then) - region.more(chosen)
        if fewer <= 0:
            entries = any(use.entry is not None for use in region.uses.values())
            exits = any(use.exits for use in region.uses.values())
            needed: dict[str, int | str] = {"transpositions": len(now)}
            return Refusal("as many transpositions would be needed elsewhere", needed) if entries and exits else None
        wanted = self.wanted(region, chosen)
        if not wanted or isinstance(wanted, Refusal):
            return wanted or None
        before, rest = (sum(weight(value, scope) for value in values) for values in (now, then))
        if rest > before:
            return Refusal("the transposed values would be larger", {"bytes": rest, "now": before}, tuple(chosen))
        grown = _grown(region, chosen)
        if grown > SMALL * fewer:
            return Refusal("the file would grow", {"bytes": grown}, tuple(chosen))
        nodes = [other for other in scope.graph if other in chosen and other is not node]
        return Proposal(
            f"{len(now) - len(then)} fewer transpositions are needed in another order of axes",
            lambda: turn(region, chosen, scope),
            tuple(nodes),
            2 * (before - rest),
        )


def _grown(region: Region, chosen: set[ir.Node]) -> int:
    """Bytes of stored tensors that would be stored in both orders."""
    stored = {value for node in chosen for value in region.ways[node].stored}
    twice = [value for value in stored if any(use.node not in chosen for use in value.uses())]
    return sum(int(value.const_value.nbytes) for value in twice if value.const_value is not None)


def _between(node: ir.Node, readers: Sequence[ir.Node], order: Order, scope: Scope) -> Refusal | None:
    """A refusal where one node alone keeps two transpositions from undoing each other."""
    back = inverse(order)
    for reader in readers:
        after = [other for value in reader.outputs for other in scope.readers(value)]
        if reader.op_type != "Transpose" and any(transposes(other, back, scope) for other in after):
            return Refusal(
                f"{reader.op_type} between two transpositions is not written in another order of axes",
                {"operator": reader.op_type},
                (reader, *(other for other in after if transposes(other, back, scope))),
            )
    return None


class Pointwise(Sinking):
    """Rows by a matrix between transpositions from and to channels-first are a pointwise convolution, which needs
    neither; and a pointwise convolution between the opposite transpositions is a product."""

    name = "rewrite.pointwise"

    def way(self, node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
        """See `Sinking.way`."""
        return permuted_product(node, order, scope) or permuted(node, order, scope)

    def wanted(self, region: Region, chosen: set[ir.Node]) -> Refusal | bool:
        """See `Sinking.wanted`."""
        if not any(region.ways[node].product for node in chosen):
            return False
        left = sum(any(region.needs(chosen, value)) and not any(region.needs(set(), value)) for value in region.uses)
        return Refusal("a transposition would be needed elsewhere", {"transpositions": left}) if left else True
