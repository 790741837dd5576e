"""Chains: an elementwise tensor with one elementwise user is computed inside it.

The pass goes through the tensors once, in program order. It first decides who is computed inside whom, which makes
trees, and writes the expression of a tree when it meets its root: what is decided needs sizes and names only, and each
expression of the program is put into its place once, however long the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.fuse.prices import ElementWork, Price
from opweld.fuse.region import Kind
from opweld.fuse.use_def import UseDef, of_one_node, terms_of, too_much
from opweld.fuse.views import has_value
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import product
from opweld.tensor.expr import Expr, Load, loads, substitute_loads
from opweld.tensor.program import Tensor


def fold_chains(graph: UseDef) -> None:
    """Elementwise tensors move into their only elementwise user, single elements into all of theirs."""
    forest = _Forest(graph)
    for name in list(graph.items):
        source = graph.tensor(name)
        if source is not None and not forest.absorbs(source):
            forest.finish(source)
    graph.remove(forest.inlined)


class _Forest:
    """Who is computed inside whom, and how much has come together at each tensor so far."""

    def __init__(self, graph: UseDef) -> None:
        self._graph = graph
        self._nodes: dict[str, int] = {}
        self._terms: dict[str, int] = {}
        self._operands: dict[str, set[str]] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._works: dict[str, ElementWork] = {}
        self.inlined: dict[str, Tensor] = {}
        """The tensors computed inside others; none of them has a user that is not one of these or a root."""

    def absorbs(self, source: Tensor) -> bool:
        """Whether the tensor moves into its users."""
        graph = self._graph
        if source.name in graph.kept or graph.reduces(source):
            return False
        users = [user for user in graph.users(source.name) if isinstance(user, Tensor)]
        if len(users) != len(graph.users(source.name)) or not users:
            return False
        if len(users) > 1:
            graph.users_before[source.name] = len(users)
            return self._copies(source, users)
        user = users[0]
        if graph.kind(user) is not Kind.MAP:
            return False
        reason = "one user, elementwise: the value stays in a register"
        own = of_one_node(self._origin(source), self._origin(user))
        failed, works = self._refusal(source, user), [self._with(source, user)]
        price = self._price(source, [user], works)
        against = "" if price.pays else self._drawback(source, user)
        if not graph.joins("fuse.chain", source, user, reason, failed, price, own=own, against=against):
            return False
        self._add(source, user, works[0])
        return True

    def _copies(self, source: Tensor, users: list[Tensor]) -> bool:
        if product(source.shape).constant != 1:
            return False
        failed = next(filter(None, (self._too_much(source, user) for user in users)), dict[str, int | str]())
        works = [self._with(source, user) for user in users]
        if not self._graph.copies(source, users, failed, self._price(source, users, works)):
            return False
        for user, work in zip(users, works, strict=True):
            self._add(source, user, work, named=False)
        return True

    def finish(self, root: Tensor) -> None:
        """Writes what has come together at a tensor that stays."""
        whole = self._whole(root)
        if whole is not root:
            self._graph.put(whole)
            self._graph.prices.keep(whole, self._work(root))

    def _refusal(self, source: Tensor, user: Tensor) -> dict[str, int | str]:
        graph = self._graph
        if graph.is_joined(source) and self._operand_names(source):
            return {"source": "concatenation"}
        if user.name in graph.growing:
            return {"user": "a state, which is appended to"}
        return self._too_much(source, user)

    def _drawback(self, source: Tensor, user: Tensor) -> str:
        """Why the two take less apart, where they do."""
        if any(has_value(site) for site in self._graph.sites(user, source.name)):
            return "its elements are picked by run-time values, which each of its loads would check again"
        return f"{product(user.shape)} elements would be computed instead of {product(source.shape)}"

    # ------------------------------------------------------------------------------------------------------- prices

    def _work(self, tensor: Tensor) -> ElementWork:
        """What a tensor takes with everything that is computed inside it."""
        return self._works.get(tensor.name) or self._graph.prices.work(tensor)

    def _with(self, source: Tensor, user: Tensor) -> ElementWork:
        """What the user takes once it computes the source."""
        own = self._operand_names(user)
        shared = [name for name in self._operand_names(source) if name in own]
        work = self._work(user)
        return self._graph.prices.inside(source.name, self._work(source), work, shared)

    def _price(self, source: Tensor, users: Sequence[Tensor], together: Sequence[ElementWork]) -> Price:
        """What a source and its users take apart, and with the source in them. Apart, what follows a reduction element
        by element is computed with it; of equals that is better, as nothing is computed again."""
        prices, own = self._graph.prices, self._work(source)
        others = [prices.placed(source.name, self._work(user)) for user in users]
        again = any(product(user.shape) is not product(source.shape) for user in users)
        before = self._followed(source) if again else None
        if before is None:
            return Price(prices.seconds(own, *others), prices.seconds(*together))
        anchor = prices.work(before)
        ending = prices.inside(before.name, anchor, own)
        return Price(prices.seconds(ending, *others), prices.seconds(anchor, *together), equal=False)

    def _followed(self, source: Tensor) -> Tensor | None:
        """The reduction of which the source is what is done with its result; None where there is none."""
        for name in self._operand_names(source):
            found = self._graph.tensor(name)
            if found is None or not self._graph.reduces(found) or product(found.shape) is not product(source.shape):
                continue
            if self._graph.kind(found) is Kind.ROWWISE or len(self._graph.users(name)) == 1:
                return found
        return None

    # --------------------------------------------------------------------------------------------------- counting

    def _too_much(self, source: Tensor, user: Tensor) -> dict[str, int | str]:
        own = self._operand_names(user)
        operands = len(own) - 1 + sum(name not in own for name in self._operand_names(source))
        return too_much(nodes=self._nodes_with(source, user), operands=operands, terms=self._terms_with(source, user))

    def _nodes_with(self, source: Tensor, user: Tensor) -> int:
        """Nodes of the user once it computes the source at each place where it loads it; a bound, as places may have
        nodes in common."""
        own = self._nodes.get(user.name) or self._graph.size(user)
        inner = self._nodes.get(source.name) or self._graph.size(source)
        return own + len(self._graph.sites(user, source.name)) * (inner - 1)

    def _terms_with(self, source: Tensor, user: Tensor) -> int:
        """Terms of the longest index of the user once it computes the source: those of both, one put into the other."""
        own = self._terms.get(user.name, self._graph.terms(user))
        inner = self._terms.get(source.name, self._graph.terms(source))
        return max(own, inner + max(map(terms_of, self._graph.sites(user, source.name))))

    def _operand_names(self, tensor: Tensor) -> set[str]:
        found = self._operands.get(tensor.name)
        if found is None:
            found = self._operands[tensor.name] = set(self._graph.inputs(tensor))
        return found

    def _origin(self, tensor: Tensor) -> tuple[str, ...]:
        return self._origins.get(tensor.name, tensor.origin)

    def _add(self, source: Tensor, user: Tensor, work: ElementWork, *, named: bool = True) -> None:
        self._works[user.name] = work
        self._nodes[user.name] = self._nodes_with(source, user)
        self._terms[user.name] = self._terms_with(source, user)
        operands = self._operand_names(user)
        operands.discard(source.name)
        operands |= self._operand_names(source)
        if named:
            self._origins[user.name] = tuple(dict.fromkeys((*self._origin(source), *self._origin(user))))
            self._graph.renamed(source.name, user.name)
        self.inlined[source.name] = source

    # ---------------------------------------------------------------------------------------------------- writing

    def _whole(self, tensor: Tensor) -> Tensor:
        """The tensor with everything written out that is computed inside it."""
        origin = self._origin(tensor)
        body = self._written(tensor.body)
        if body is tensor.body and origin == tensor.origin:
            return tensor
        return replace(tensor, body=simplify(body), origin=origin)

    def _written(self, body: Expr) -> Expr:
        """Goes down from the root, so that each inlined expression is moved to its place once and for all."""
        if not any(node.tensor in self.inlined for node in loads(body)):
            return body
        moved: dict[Load, Expr] = {}
        done: dict[Load, Expr] = {}

        def written(node: Load) -> Expr | None:
            if node.tensor not in self.inlined:
                return None
            # a load whose own fill or index was rewritten just now is not among those found beforehand
            return done.get(node) or self._written(inline(node, self.inlined[node.tensor]))

        pending = [node for node in loads(body) if node.tensor in self.inlined]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
            elif node not in moved:
                moved[node] = inline(node, self.inlined[node.tensor])
                pending += [inner for inner in loads(moved[node]) if inner.tensor in self.inlined]
            else:
                done[node] = substitute_loads(moved[node], written)
                pending.pop()
        return substitute_loads(body, written)
