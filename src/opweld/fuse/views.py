"""Views: data movement becomes index arithmetic in whoever loads it, and axes and taps that do nothing go."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.fuse.narrow import narrow
from opweld.fuse.region import Kind, is_identity, is_view
from opweld.fuse.use_def import UseDef, too_much
from opweld.tensor.dim import ONE, ZERO, Atom, Dim, Value, atoms_of
from opweld.tensor.expr import Const, Expr, Load, loads, substitute, substitute_loads
from opweld.tensor.program import Extern, Item, Tensor, TensorProgram, item_inputs


def prepared(program: TensorProgram) -> TensorProgram:
    """The program without axes of extent one in its indices, so that equal places have equal indices, and without
    taps that lie beside the data for every element."""
    constants = {constant.name for constant in program.constants}
    return replace(program, items=tuple(_prepared(item, constants) for item in program.items))


def _prepared(item: Item, constants: Container[str]) -> Item:
    if not isinstance(item, Tensor):
        return item
    single: dict[Atom, Dim] = {axis: ZERO for axis in item.axes if axis.extent is ONE}
    body = narrow(substitute(item.body, single), constants)
    return item if body is item.body else replace(item, body=body)


def fold_views(graph: UseDef) -> None:
    """Loads of a view become loads of what it shows."""
    views: dict[str, Tensor] = {}
    for key, item in list(graph.items.items()):
        shown = item if key in graph.growing else _look_through(item, views)
        if shown is not item:
            graph.put(shown)
        if isinstance(shown, Tensor) and (is_view(shown) or _is_edge(graph, shown)) and _wants_view(graph, shown):
            views[key] = shown
    # An extern reads memory: what it reads is copied for it.
    graph.remove(key for key in reversed(views) if key not in graph.kept and not graph.users(key))


def has_value(node: Load) -> bool:
    """Whether an index of the load is computed at run time, and checked there."""
    return any(isinstance(atom, Value) for dim in node.indices for atom in atoms_of(dim))


def _checks(view: Tensor | None) -> bool:
    return view is not None and isinstance(view.body, Load) and has_value(view.body)


def _is_edge(graph: UseDef, tensor: Tensor) -> bool:
    """Whether the tensor is another one with a constant around it that only sums and windows read, as they read edges
    of their own: whoever stores the other keeps the padding around it, or they test for it."""
    if not isinstance(tensor.body, Load) or not isinstance(tensor.body.fill, Const):
        return False
    users = graph.users(tensor.name)
    return all(isinstance(user, Tensor) and _pads_as(graph, user, tensor.name, tensor.body.fill) for user in users)


def _pads_as(graph: UseDef, user: Tensor, name: str, fill: Expr) -> bool:
    """Whether the user slides over a value, or only moves it, and has the same constant where it reads beyond."""
    slides = graph.kind(user) in (Kind.CONTRACTION, Kind.WINDOW) or isinstance(user.body, Load)
    return slides and all(node.fill in (None, fill) for node in loads(user.body) if node.tensor == name)


def _wants_view(graph: UseDef, tensor: Tensor) -> bool:
    assert isinstance(tensor.body, Load)
    own = is_identity(tensor) or not tensor.origin
    against = "its index arithmetic would be done again by every user"
    if has_value(tensor.body):
        against = "its indices are computed at run time, and would be checked again by every user"
    return graph.shows(tensor, too_much(terms=graph.terms(tensor)), against, own=own)


def _look_through(item: Item, views: Mapping[str, Tensor]) -> Item:
    """The item with loads of views replaced by what they show."""
    if isinstance(item, Extern) or not any(name in views for name in item_inputs(item)):
        return item

    def show(node: Load) -> Expr | None:
        view = views.get(node.tensor)
        return None if view is None else inline(node, view)

    if isinstance(item, Tensor):
        # Who checks an index that is computed at run time names the node that it is an index of.
        checked = [views[node.tensor].origin for node in loads(item.body) if _checks(views.get(node.tensor))]
        origin = tuple(dict.fromkeys((*(name for names in checked for name in names), *item.origin)))
        return replace(item, body=substitute_loads(item.body, show), origin=origin)
    states = tuple(replace(state, initial=substitute_loads(state.initial, show)) for state in item.states)
    steps = tuple(replace(step, body=substitute_loads(step.body, show)) for step in item.steps)
    return replace(item, states=states, steps=steps)
