"""The program while it is fused: its items in order, who uses whom, and what has been asked of the ledger.

Every step changes a few items, so everything here is kept up to date item by item: a step costs what it touches, not
what the program holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from opweld.fuse.concatenation import is_joined
from opweld.fuse.prices import Price, Prices
from opweld.fuse.region import Kind, classify
from opweld.ledger import Alternative, Ledger
from opweld.rules import LEVELS
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import ZERO, Dim, FloorDiv, Max, Min, Mod, as_dim, atoms_of, product
from opweld.tensor.expr import Expr, Load, Reduce, dims_of, loads, walk
from opweld.tensor.program import Constant, Extern, Item, Tensor, TensorProgram, item_inputs, item_outputs

MOST_NODES = 256
"""Distinct expression nodes that are computed together. What is longer gains nothing from a register more, and costs
the C compiler more than its length."""

MOST_OPERANDS = 24
"""Distinct values that are read together; each needs a pointer, and there are some thirty registers."""

MOST_TERMS = 40
"""Terms inside the quotients, remainders and clamps of one index. Data movement of real models needs a dozen; beyond
this, a kernel would spend longer on the place of an element than on the element."""


class UseDef:
    """Items by the first value they give, in program order; users of each value; facts that are asked again and again.

    An item is replaced by a new form of itself under the same name, or removed. Its place in the order stays."""

    def __init__(self, program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._program = program
        self.ledger = ledger
        self.prices = Prices(program, expected, target)
        """What items are predicted to take, alone and in each other."""
        self._kinds: dict[Tensor, Kind] = {}
        self._measures: dict[Expr, tuple[int, bool]] = {}
        self._terms: dict[Expr, int] = {}
        self._sites: dict[Expr, dict[str, tuple[Load, ...]]] = {}
        self._inputs: dict[Item, tuple[str, ...]] = {}
        self._joined: dict[Tensor, bool] = {}
        self._asked: dict[str, set[str]] = {}
        self.constants = frozenset(constant.name for constant in program.constants)
        """The names of the values known when the model is compiled."""
        self.kept = {value: public for public, value in reversed(program.outputs)}
        """The values that callers see, with the name of the output."""
        growing = {state.output for state in program.states if state.axis is not None}
        self.growing = {value for public, value in program.outputs if public in growing}
        """The states that grow: they stay what was there with what is appended behind it, so that only that is
        written."""
        self.users_before: dict[str, int] = {}
        """How many users a value had when it was too early to compute it inside the one that they became."""
        self.items: dict[str, Item] = {key_of(item): item for item in program.items}
        """The items by the first value they give, in an order in which each reads only what precedes it."""
        self.position = {key: position for position, key in enumerate(self.items)}
        """The place of each item in that order."""
        self.producer = {name: key for key, item in self.items.items() for name in item_outputs(item)}
        """The item that gives each value, by its key."""
        self._users: dict[str, set[str]] = {}
        for key, item in self.items.items():
            for name in self.inputs(item):
                self._users.setdefault(name, set()).add(key)

    def program(self) -> TensorProgram:
        """The program as it is now."""
        return replace(self._program, items=tuple(self.items.values()))

    # ------------------------------------------------------------------------------------------------- the graph

    def tensor(self, name: str) -> Tensor | None:
        """The tensor of that name, if it is one that is computed."""
        item = self.items.get(name)
        return item if isinstance(item, Tensor) else None

    def users(self, name: str) -> list[Item]:
        """The items that read a value, in program order."""
        return [self.items[key] for key in sorted(self._users.get(name, ()), key=self.position.__getitem__)]

    def only_user(self, name: str) -> Item | None:
        """The item that alone reads a value that is no output."""
        users = self._users.get(name, ())
        return self.items[next(iter(users))] if len(users) == 1 and name not in self.kept else None

    def put(self, item: Item) -> None:
        """Replaces an item by its new form."""
        key = key_of(item)
        before, after = set(self.inputs(self.items[key])), set(self.inputs(item))
        for name in before - after:
            self._users[name].discard(key)
        for name in after - before:
            self._users.setdefault(name, set()).add(key)
        self.items[key] = item

    def add_constants(self, constants: Iterable[Constant]) -> None:
        """More values that are known when the model is compiled, of new names, for items that are put next."""
        more = tuple(constants)
        known = (*self._program.constants, *more)
        self.prices.add_constants(more)
        self._program = replace(self._program, constants=known)
        self.constants = frozenset(constant.name for constant in known)

    def rewrite(self, rule: Callable[[Expr], Expr]) -> None:
        """Rewrites the expression of every tensor to another of the same values, without a decision."""
        for item in list(self.items.values()):
            if isinstance(item, Tensor) and (body := rule(item.body)) is not item.body:
                self.put(replace(item, body=body))

    def remove(self, keys: Iterable[str]) -> None:
        """Removes items that nobody reads any more."""
        for key in keys:
            item = self.items.pop(key)
            for name in self.inputs(item):
                self._users[name].discard(key)

    def drop_unused(self) -> None:
        """Removes what folding left without a user: both sides of a choice may turn out to be the same view."""
        for key, item in reversed(list(self.items.items())):
            if not any(name in self.kept or self._users.get(name) for name in item_outputs(item)):
                self.remove((key,))

    # ------------------------------------------------------------------------------------------- facts, remembered

    def inputs(self, item: Item) -> tuple[str, ...]:
        """The names that an item reads, once each."""
        found = self._inputs.get(item)
        if found is None:
            found = self._inputs[item] = item_inputs(item)
        return found

    def kind(self, item: Item) -> Kind | None:
        """What an item is the anchor of when it is computed on its own; None for a recurrence and an extern."""
        if not isinstance(item, Tensor):
            return None
        if not self.reduces(item):
            return Kind.MAP
        found = self._kinds.get(item)
        if found is None:
            found = self._kinds[item] = classify(item, self.constants)
        return found

    def size(self, tensor: Tensor) -> int:
        """The number of distinct nodes of a tensor's expression."""
        return self._measured(tensor.body)[0]

    def reduces(self, tensor: Tensor) -> bool:
        """Whether there is a reduction in a tensor's expression."""
        return self._measured(tensor.body)[1]

    def _measured(self, body: Expr) -> tuple[int, bool]:
        found = self._measures.get(body)
        if found is None:
            nodes = list(walk(body))
            found = self._measures[body] = len(nodes), any(isinstance(node, Reduce) for node in nodes)
        return found

    def sites(self, user: Tensor, name: str) -> tuple[Load, ...]:
        """The different loads of a value in a tensor."""
        found = self._sites.get(user.body)
        if found is None:
            lists: dict[str, list[Load]] = {}
            for node in loads(user.body):
                lists.setdefault(node.tensor, []).append(node)
            found = self._sites[user.body] = {tensor: tuple(nodes) for tensor, nodes in lists.items()}
        return found.get(name, ())

    def terms(self, tensor: Tensor) -> int:
        """The terms of the longest index of a tensor's loads, see `terms_of`."""
        found = self._terms.get(tensor.body)
        if found is None:
            found = self._terms[tensor.body] = max(map(terms_of, loads(tensor.body)), default=0)
        return found

    def is_joined(self, tensor: Tensor) -> bool:
        """Whether the tensor puts values side by side, as Concat does."""
        found = self._joined.get(tensor)
        if found is None:
            found = self._joined[tensor] = is_joined(tensor)
        return found

    # ----------------------------------------------------------------------------------------------- the ledger

    def asked(self, source: str, user: str) -> bool:
        """Whether there is a decision about these two already."""
        return source in self._asked.get(user, ())

    def mark(self, sources: Iterable[str], user: str) -> None:
        """Notes that there is a decision about the sources and the user."""
        self._asked.setdefault(user, set()).update(sources)

    def renamed(self, source: str, user: str) -> None:
        """Notes that the source is now part of the user: what was decided about it was decided about the user."""
        self.mark(self._asked.pop(source, ()), user)

    def joins(
        self,
        rule: str,
        source: Tensor,
        user: Item,
        reason: str,
        failed: Mapping[str, int | str],
        price: Price,
        saved: Dim | None = None,
        role: str = "",
        own: bool = False,
        against: str = "as two kernels they take less",
    ) -> bool:
        """Puts to the ledger whether two items are computed together, or apart, with a value in memory between them.

        Args:
            rule: the kind of fusion.
            source: what the user reads.
            user: the item that would be computed with it.
            reason: what is gained.
            failed: the values of what says no; empty when nothing does.
            price: predicted seconds, which decide where nothing says no.
            saved: bytes of memory traffic; unless given, the source is neither written nor read.
            role: what tells apart two questions about the same items.
            own: whether both come from one graph node, see `of_one_node`; then every level computes them together.
            against: why they take less apart, where they do.
        """
        self.mark((source.name,), key_of(user))
        return self._decide(
            rule=rule,
            site=origins_of(source, user),
            subject=(source.name, key_of(user), *((role,) if role else ())),
            names=("separate", "fused"),
            size=bytes_of(source) * 2 if saved is None else saved,
            price=price,
            reason=reason if price.pays else against,
            failed=failed,
            own=own,
        )

    def copies(self, source: Tensor, users: Sequence[Tensor], failed: Mapping[str, int | str], price: Price) -> bool:
        """Puts to the ledger whether a single element is computed again by each of its users."""
        for user in users:
            self.mark((source.name,), user.name)
        each = "each user computes it for itself" if price.pays else "its users would compute it for each of theirs"
        return self._decide(
            rule="fuse.chain",
            site=origins_of(source, *users),
            subject=(source.name, "all users"),
            names=("separate", "fused"),
            size=as_dim(source.dtype.bytes * (1 + len(users))),
            price=price,
            reason=f"one element: {each}",
            failed=failed,
        )

    def scales(self, source: Tensor, users: Sequence[Tensor], failed: Mapping[str, int | str], price: Price) -> bool:
        """Puts to the ledger whether the literal by which all of a value is multiplied multiplies the sums of its users
        instead."""
        for user in users:
            self.mark((source.name,), user.name)
        against = "multiplying each sum takes longer than writing and reading what is multiplied once"
        return self._decide(
            rule="fuse.scale",
            site=origins_of(source, *users),
            subject=(source.name,),
            names=("before the sums", "after the sums"),
            size=bytes_of(source) * 2,
            price=price,
            reason="the sums are multiplied, in registers" if price.pays else against,
            failed=failed,
        )

    def tables(self, tensor: Tensor, made: Tensor) -> bool:
        """Puts to the ledger whether functions of bytes in a tensor are looked up in tables, as in `made`."""
        price = Price(self.prices.seconds(self.prices.work(tensor)), self.prices.seconds(self.prices.work(made)))
        against = "looking it up takes longer than computing it"
        return self._decide(
            rule="fuse.table",
            site=tensor.origin,
            subject=(tensor.name,),
            names=("computed", "looked up"),
            size=ZERO,
            price=price,
            reason="it is a function of one byte" if price.pays else against,
            failed={},
        )

    def shows(self, view: Tensor, failed: Mapping[str, int | str], against: str, own: bool = False) -> bool:
        """Puts to the ledger whether a tensor that moves data is computed, or is index arithmetic in its users.

        An output and what an extern reads is computed in any case. against: why it takes less as a copy, where it does.
        """
        prices, alone = self.prices, self.prices.work(view)
        users = self.users(view.name)
        works = [prices.work(user) for user in users]
        looked = [prices.inside(view.name, alone, work) for work in works]
        stays = view.name in self.kept or any(isinstance(user, Extern) for user in users)
        price = Price(prices.seconds(alone, *works), prices.seconds(*((alone,) if stays else ()), *looked))
        return self._decide(
            rule="fuse.view",
            site=view.origin,
            subject=(view.name,),
            names=("copy", "index"),
            size=bytes_of(view) * 2,
            price=price,
            reason="data movement is index arithmetic in its users" if price.pays else against,
            failed=failed,
            own=own,
        )

    def _decide(
        self,
        *,
        rule: str,
        site: Sequence[str],
        subject: Sequence[str],
        names: tuple[str, str],
        size: Dim,
        price: Price,
        reason: str,
        failed: Mapping[str, int | str],
        own: bool = False,
    ) -> bool:
        """Whether the ledger takes the second of two ways: nothing goes through memory between the items."""
        apart, together = names
        choice = self.ledger.decide(
            rule=rule,
            site=site,
            subject=subject,
            alternatives=(
                Alternative(apart, bytes=_amount(size), seconds=price.apart),
                Alternative(together, bytes=0, seconds=None if failed else price.together),
            ),
            prefer=together if price.pays and not failed else apart,
            reason=_why_not(failed) if failed else reason,
            failed=failed,
            level=LEVELS[0] if own else "",
        )
        return choice == together


def of_one_node(source: Sequence[str], user: Sequence[str]) -> bool:
    """Whether what comes from these graph nodes comes from one; what comes from none belongs to whoever needs it."""
    return not source or source == user


def key_of(item: Item) -> str:
    """The name that an item goes by: that of the first value it gives."""
    return item.name if isinstance(item, Tensor) else item_outputs(item)[0]


def origins_of(*items: Item) -> tuple[str, ...]:
    """The graph nodes that items come from, each once, in order."""
    return tuple(dict.fromkeys(name for item in items for name in item.origin))


def terms_of(load: Load) -> int:
    """The terms inside the different quotients, remainders and clamps of the indices and guards of a load. Plain
    polynomials do not count: put into each other, they stay as short as they are."""
    divided = {a for dim in dims_of(load) for a in atoms_of(dim) if isinstance(a, FloorDiv | Mod | Min | Max)}
    return sum(len(atom.left.terms) + len(atom.right.terms) for atom in divided)


def too_much(*, nodes: int = 0, operands: int = 0, terms: int = 0) -> dict[str, int | str]:
    """The first limit of what is computed together that is passed; empty when none is."""
    for name, value, most in (
        ("nodes", nodes, MOST_NODES),
        ("operands", operands, MOST_OPERANDS),
        ("terms", terms, MOST_TERMS),
    ):
        if value > most:
            return {name: value, "most": most}
    return {}


def bytes_of(tensor: Tensor) -> Dim:
    """What a tensor takes in memory."""
    return product(tensor.shape) * tensor.dtype.bytes


def _amount(size: Dim) -> int | str:
    return size.constant if size.constant is not None else str(size)


_WHY_NOT = {
    "users": "each of its users reads it from memory",
    "output": "the caller reads it from memory",
    "nodes": "enough is computed together already",
    "operands": "enough is read together already",
    "terms": "the index arithmetic is long enough already",
    "factor": "sums without it could overflow, or vanish",
    "rows": "another row space",
    "row": "a row is computed with what its first member reads, and with what reads it",
}


def _why_not(failed: Mapping[str, int | str]) -> str:
    return _WHY_NOT.get(next(iter(failed)), "needs its operand in memory")
