"""Partitions a tensor program into regions, greedily and in this order, each step a decision in the ledger:

1. views     data movement becomes index arithmetic in whoever loads it;
2. chains    an elementwise tensor with one elementwise user is computed inside it;
3. epilogues what is done with the result of a contraction or window is done before it leaves the registers;
4. rows      reductions over one row space, and the elementwise work around them, share a resident row.

Why this order: views hide who really uses whom, chains make the diamonds of activations single users, and only then is
it known whether a tensor is the epilogue of one anchor or the beginning of a row.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from opweld.fuse.legality import Ancestry, covers_once, inline
from opweld.fuse.narrow import narrow
from opweld.fuse.region import Kind, Region, Regions, classify, is_identity, is_view, reductions
from opweld.fuse.rows import RowSpace
from opweld.fuse.steps import fold_steps
from opweld.ledger import Alternative, Ledger
from opweld.tensor.axes import split
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, Value, atoms_of, product
from opweld.tensor.expr import Binary, Load, Select, Unary, free_atoms, loads, substitute, substitute_loads, walk
from opweld.tensor.operators import is_dear
from opweld.tensor.program import Item, Scan, State, Tensor, TensorProgram, item_inputs, item_outputs


def partition(program: TensorProgram, level: str, ledger: Ledger) -> Regions:
    """The regions of a program. At level `none`, only tensors of one graph node are computed together."""
    web = _Web(program, level, ledger)
    web.fold_views()
    web.fold_chains()
    web.fold_epilogues()
    web.drop_unused()
    return Regions(web.program(), tuple(web.regions()))


class _Web:
    """The program while it is rewritten: items by name, and who uses whom."""

    def __init__(self, program: TensorProgram, level: str, ledger: Ledger) -> None:
        self._program = program
        self._fuse = level != "none"
        self._ledger = ledger
        self._items: dict[str, Item] = {}
        self._order: list[Item]
        self._kept = {value for _, value in program.outputs}
        self._constants = {constant.name for constant in program.constants}
        self._order = [_prepared(item, self._constants) for item in program.items]
        self._refresh()

    def _refresh(self) -> None:
        self._items = {name: item for item in self._order for name in item_outputs(item)}
        self._users: dict[str, list[Item]] = {}
        for item in self._order:
            for name in item_inputs(item):
                self._users.setdefault(name, []).append(item)

    def program(self) -> TensorProgram:
        """The program as rewritten."""
        return replace(self._program, items=tuple(self._order))

    def _tensor(self, name: str) -> Tensor | None:
        item = self._items.get(name)
        return item if isinstance(item, Tensor) else None

    def _replace(self, changed: dict[str, Item], gone: set[str]) -> None:
        """`changed` maps the first output name of an item to its new form."""
        self._order = [
            changed.get(item_outputs(item)[0], item) for item in self._order if item_outputs(item)[0] not in gone
        ]
        self._refresh()

    def _classify(self, tensor: Tensor) -> Kind:
        return classify(tensor, self._constants)

    def _allowed(self, source: Tensor, user: Item) -> bool:
        """Level `none` computes one graph node a kernel; tensors without an origin belong to whoever needs them."""
        return self._fuse or not source.origin or source.origin == user.origin

    # 1 ------------------------------------------------------------------------------------------------ views

    def fold_views(self) -> None:
        """Loads of a view become loads of what it shows."""
        views: dict[str, Tensor] = {}
        rewritten: list[Item] = []
        for item in self._order:
            item = _rewrite(item, views)
            rewritten.append(item)
            if isinstance(item, Tensor) and is_view(item) and self._wants_view(item):
                views[item.name] = item
        self._order = [item for item in rewritten if item_outputs(item)[0] not in views or self._is_kept(item)]
        self._refresh()

    def _is_kept(self, item: Item) -> bool:
        return any(name in self._kept for name in item_outputs(item))

    def _wants_view(self, tensor: Tensor) -> bool:
        body = tensor.body
        assert isinstance(body, Load)
        if not self._fuse and not is_identity(tensor) and tensor.origin:
            return False
        size = product(tensor.shape) * tensor.dtype.bytes
        if any(isinstance(a, Value) for dim in body.indices for a in atoms_of(dim)):
            self._ledger.decide(
                rule="fuse.view",
                site=tensor.origin,
                subject=(tensor.name,),
                alternatives=(Alternative("copy", _amount(size + size)), Alternative("index", 0)),
                prefer="copy",
                reason="its indices are computed at run time, and would be checked again by every user",
                failed={"indices": "run-time values"},
            )
            return False
        choice = self._ledger.decide(
            rule="fuse.view",
            site=tensor.origin,
            subject=(tensor.name,),
            alternatives=(Alternative("copy", _amount(size + size)), Alternative("index", 0)),
            prefer="index",
            reason="data movement is index arithmetic in its users",
        )
        return choice == "index"

    # 2 ----------------------------------------------------------------------------------------------- chains

    def fold_chains(self) -> None:
        """Elementwise tensors move into their only elementwise user."""
        for name in [item.name for item in self._order if isinstance(item, Tensor)]:
            source = self._tensor(name)
            if source is None or name in self._kept or reductions(source.body):
                continue
            users = self._users.get(name, [])
            if not users:
                continue
            if len(users) == 1 and isinstance(users[0], Tensor) and self._joins_chain(source, users[0]):
                self._absorb(source, users[0])
            elif len(users) > 1 and self._is_broadcast_scalar(source):
                self._copy_into_users(source, users)

    def _is_broadcast_scalar(self, source: Tensor) -> bool:
        return (
            self._fuse
            and product(source.shape).constant == 1
            and all(isinstance(user, Tensor) for user in self._users[source.name])
        )

    def _copy_into_users(self, source: Tensor, users: Sequence[Item]) -> None:
        changed: dict[str, Item] = {}
        for user in users:
            new = _rewrite(user, {source.name: source})
            changed[item_outputs(user)[0]] = new
        self._replace(changed, {source.name})

    def _joins_chain(self, source: Tensor, user: Tensor) -> bool:
        if not self._allowed(source, user):
            return False
        failed: dict[str, int | str] = {}
        kind = self._classify(user)
        sites = [node for node in loads(user.body) if node.tensor == source.name]
        if kind is not Kind.MAP:
            failed["user"] = kind.value
            if kind is Kind.ROWWISE:
                return False  # decided with the rows
        elif _is_pieces(source):
            failed["source"] = "concatenation"
        elif any(isinstance(a, Value) for node in sites for dim in node.indices for a in atoms_of(dim)):
            failed["indices"] = "run-time values"
        elif product(user.shape) is not product(source.shape) and not _is_cheap(source):
            failed["recomputed"] = f"{product(user.shape)} instead of {product(source.shape)}"
        return self._decide("fuse.chain", source, user, "one user, elementwise: the value stays in a register", failed)

    def _decide(self, rule: str, source: Tensor, user: Tensor, reason: str, failed: dict[str, int | str]) -> bool:
        """Puts to the ledger whether a value stays in registers, or is written and read again."""
        size = product(source.shape) * source.dtype.bytes
        choice = self._ledger.decide(
            rule=rule,
            site=(*source.origin, *user.origin),
            subject=(source.name, user.name),
            alternatives=(Alternative("separate", _amount(size + size)), Alternative("fused", 0)),
            prefer="separate" if failed else "fused",
            reason="needs its operand in memory" if failed else reason,
            failed=failed,
        )
        return choice == "fused"

    def _absorb(self, source: Tensor, user: Tensor) -> Tensor:
        new = _rewrite(user, {source.name: source})
        assert isinstance(new, Tensor)
        merged = replace(new, origin=tuple(dict.fromkeys((*source.origin, *user.origin))))
        self._replace({user.name: merged}, {source.name})
        return merged

    # 3 -------------------------------------------------------------------------------------------- epilogues

    def fold_epilogues(self) -> None:
        """The only user of a contraction or window is computed on its registers. Later anchors choose first: of two
        that meet in an addition, the one computed last still has its result in registers."""
        for name in [item.name for item in reversed(self._order) if isinstance(item, Tensor)]:
            anchor = self._tensor(name)
            while anchor is not None and self._classify(anchor) in (Kind.CONTRACTION, Kind.WINDOW):
                users = self._users.get(anchor.name, [])
                if anchor.name in self._kept or len(users) != 1 or not isinstance(users[0], Tensor):
                    break
                user = users[0]
                if not self._allowed(anchor, user) or not self._joins_epilogue(anchor, user):
                    break
                anchor = self._absorb(anchor, user)

    def _joins_epilogue(self, anchor: Tensor, user: Tensor) -> bool:
        failed: dict[str, int | str] = {}
        sites = [node for node in loads(user.body) if node.tensor == anchor.name]
        if reductions(user.body):
            failed["user"] = self._classify(user).value
        elif _is_pieces(user):
            failed["user"] = "concatenation: the result is stored into its slice instead"
        elif len({(node.indices, node.guards) for node in sites}) != 1:
            failed["loads"] = len(sites)
        elif not covers_once(sites[0], user, anchor):
            failed["indices"] = f"{sites[0]} does not ask for each element once"
        reason = "computed on the accumulators before they are stored"
        return self._decide("fuse.epilogue", anchor, user, reason, failed)

    def drop_unused(self) -> None:
        """Drops what folding left without a user: both sides of a choice may turn out to be the same view."""
        wanted = set(self._kept)
        alive: list[Item] = []
        for item in reversed(self._order):
            if wanted & set(item_outputs(item)):
                wanted.update(item_inputs(item))
                alive.append(item)
        self._order = alive[::-1]
        self._refresh()

    # 4 ------------------------------------------------------------------------------------------------- rows

    def regions(self) -> list[Region]:
        """Groups what is left: rows together, everything else alone; in an order in which all inputs exist."""
        inputs_of = {name: item_inputs(item) for item in self._order for name in item_outputs(item)}
        ancestry = Ancestry(inputs_of)
        group_of: dict[str, RowSpace] = {}
        spaces: list[RowSpace] = []
        for item in self._order:
            if not isinstance(item, Tensor):
                continue
            kind = self._classify(item)
            if kind not in (Kind.MAP, Kind.ROWWISE) or item.name in group_of:
                continue
            joined = self._join_rows(item, kind, group_of, ancestry, inputs_of)
            if joined is not None:
                group_of[item.name] = joined
            elif kind is Kind.ROWWISE:
                space = RowSpace.of(item)
                spaces.append(space)
                group_of[item.name] = space
                self._pull_producers(space, group_of, ancestry, inputs_of)
        return self._in_order(group_of, inputs_of)

    def _join_rows(
        self,
        item: Tensor,
        kind: Kind,
        group_of: dict[str, RowSpace],
        ancestry: Ancestry,
        inputs_of: dict[str, tuple[str, ...]],
    ) -> RowSpace | None:
        """Adds a user of a row to it when it runs over the same rows."""
        spaces = list(dict.fromkeys(group_of[name] for name in inputs_of[item.name] if name in group_of))
        for space in reversed(spaces):
            if not self._fuse and not (item.origin and all(t.origin == item.origin for t in space.tensors)):
                continue
            failed: dict[str, int | str] = {}
            if _is_pieces(item):
                failed["user"] = "concatenation"
            elif not space.accepts(item):
                failed["rows"] = f"{item.name} does not run over the rows of {space.tensors[0].name}"
            elif ancestry.cyclic([*space.names, item.name], inputs_of):
                failed["order"] = "something in between needs the rows finished"
            size = product(item.shape) * item.dtype.bytes
            choice = self._ledger.decide(
                rule="fuse.rows",
                site=tuple(dict.fromkeys((*space.tensors[-1].origin, *item.origin))),
                subject=(space.tensors[0].name, item.name),
                alternatives=(Alternative("separate", _amount(size)), Alternative("fused", 0)),
                prefer="separate" if failed else "fused",
                reason="another row space" if failed else "the row is resident",
                failed=failed,
            )
            if choice == "fused":
                space.add(item)
                return space
        return None

    def _pull_producers(
        self,
        space: RowSpace,
        group_of: dict[str, RowSpace],
        ancestry: Ancestry,
        inputs_of: dict[str, tuple[str, ...]],
    ) -> None:
        """Elementwise tensors that a new row reads are computed while it is read (and stored if others need them)."""
        for name in inputs_of[space.anchor.name]:
            source = self._tensor(name)
            if source is None or name in group_of or self._classify(source) is not Kind.MAP or _is_pieces(source):
                continue
            if not self._allowed(source, space.anchor) or is_view(source):
                continue
            if not space.accepts_producer(source) or ancestry.cyclic([*space.names, name], inputs_of):
                continue
            size = product(source.shape) * source.dtype.bytes
            choice = self._ledger.decide(
                rule="fuse.rows",
                site=tuple(dict.fromkeys((*source.origin, *space.tensors[0].origin))),
                subject=(source.name, space.tensors[0].name),
                alternatives=(Alternative("separate", _amount(size)), Alternative("fused", 0)),
                prefer="fused",
                reason="computed while the row is read",
            )
            if choice == "fused":
                space.add_producer(source)
                group_of[name] = space

    def _in_order(self, group_of: dict[str, RowSpace], inputs_of: dict[str, tuple[str, ...]]) -> list[Region]:
        """Emits each group when its last outside input exists."""
        done: set[str] = {value.name for value in (*self._program.inputs, *self._program.constants)}
        pending: list[tuple[tuple[str, ...], Region]] = []
        seen: set[int] = set()
        for item in self._order:
            if isinstance(item, Scan):
                pending.append(
                    (item_outputs(item), Region(Kind.SCAN, (), item_outputs(item), fold_steps(item, self._ledger)))
                )
                continue
            space = group_of.get(item.name)
            if space is None:
                pending.append(((item.name,), self._lone_region(item)))
            elif id(space) not in seen:
                seen.add(id(space))
                pending.append((space.names, self._row_region(space)))
        result: list[Region] = []
        while pending:
            ready = next(i for i, (_, region) in enumerate(pending) if all(name in done for name in region.inputs))
            names, region = pending.pop(ready)
            done.update(names)
            result.append(region)
        return result

    def _lone_region(self, item: Tensor) -> Region:
        """A region of one tensor; its axes are split where operands take them apart, so that each has its own."""
        kind = self._classify(item)
        if kind not in (Kind.CONTRACTION, Kind.WINDOW):
            return Region(kind, (item,), (item.name,))
        axes, body, place = split(item.axes, item.body, tuple(axis.dim for axis in item.axes))
        return Region(kind, (replace(item, axes=axes, body=body),), (item.name,), None, place)

    def _row_region(self, space: RowSpace) -> Region:
        inner = set(space.names)
        outputs = tuple(
            name
            for name in space.names
            if name in self._kept or any(not set(item_outputs(user)) <= inner for user in self._users.get(name, []))
        )
        return Region(Kind.ROWWISE, tuple(space.tensors), outputs, space=space)


def _prepared(item: Item, constants: Container[str]) -> Item:
    item = _without_single_axes(item)
    return replace(item, body=narrow(item.body, constants)) if isinstance(item, Tensor) else item


def _without_single_axes(item: Item) -> Item:
    """Loads use index zero, not an axis of extent one, so that equal places have equal indices."""
    if not isinstance(item, Tensor):
        return item
    single: dict[Atom, Dim] = {axis: ZERO for axis in item.axes if axis.extent is ONE}
    return replace(item, body=substitute(item.body, single)) if single else item


def _rewrite(item: Item, sources: dict[str, Tensor]) -> Item:
    """The item with loads of the sources replaced by what they are."""
    if not any(name in sources for name in item_inputs(item)):
        return item

    def replace_load(node: Load) -> object:
        source = sources.get(node.tensor)
        return None if source is None else inline(node, source)

    if isinstance(item, Tensor):
        return replace(item, body=substitute_loads(item.body, replace_load))  # type: ignore[arg-type]
    states = tuple(_rewrite_state(state, sources) for state in item.states)
    steps = tuple(replace(step, body=substitute_loads(step.body, replace_load)) for step in item.steps)  # type: ignore[arg-type]
    return replace(item, states=states, steps=steps)


def _rewrite_state(state: State, sources: dict[str, Tensor]) -> State:
    body = substitute_loads(
        state.initial, lambda node: inline(node, sources[node.tensor]) if node.tensor in sources else None
    )
    return replace(state, initial=body)


def _is_pieces(tensor: Tensor) -> bool:
    """Whether the tensor is put together from others side by side, as Concat is."""
    return (
        isinstance(tensor.body, Select)
        and _tests_index(tensor.body)
        and any(isinstance(node, Load) for node in walk(tensor.body))
    )


def _tests_index(node: Select) -> bool:
    condition = node.condition
    return not loads(condition) and any(isinstance(a, Axis) for a in free_atoms(condition))


def _is_cheap(tensor: Tensor) -> bool:
    """Whether computing an element again costs no more than loading it: at most two operations, no function."""
    nodes = list(walk(tensor.body))
    return len(nodes) <= 5 and not any(isinstance(node, Unary | Binary) and is_dear(node.op) for node in nodes)


def _amount(size: Dim) -> int | str:
    return size.constant if size.constant is not None else str(size)


__all__ = ["partition"]
