"""Elementwise work that an extern's kernel does itself: what computes the updates that it writes, and what only rounds
its result. A kernel less, and a value less in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opweld.fuse.region import Kind, Region
from opweld.place.placed import Placed
from opweld.place.storage import dense
from opweld.tensor.expr import Cast, Load
from opweld.tensor.program import Extern, Tensor

COMPUTES = ("scatter",)
"""Externs whose kernels compute their last operand."""
ROUNDS = ("join_parts",)
"""Externs whose kernels round their first result."""


@dataclass(frozen=True)
class Adjoined:
    """Tensors by the operand of an extern that they compute (`before`), and by the result that they round (`after`)."""

    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]

    def has(self, region: Region) -> bool:
        """Whether a region is computed by an extern's kernel."""
        own = [*self.before.values(), *self.after.values()]
        return any(tensor in own for tensor in region.tensors)


def adjoined(placed: Placed) -> Adjoined:
    """What the externs of a program compute beside themselves."""
    made = {name: region for region in placed.regions for name in region.outputs}
    readers: dict[str, list[Region]] = {}
    for region in placed.regions:
        for name in region.inputs:
            readers.setdefault(name, []).append(region)
    kept = {name for _, name in placed.program.outputs}
    states = {state.input for state in placed.program.states}
    before: dict[str, Tensor] = {}
    after: dict[str, Tensor] = {}
    for region in placed.regions:
        extern = region.extern
        if extern is None:
            continue
        last, first = extern.operands[-1], extern.results[0].name
        if extern.function in COMPUTES and last not in kept and readers[last] == [region]:
            maker = made.get(last)
            if maker is not None and maker.kind is Kind.MAP and _is_dense(last, placed):
                # States are overwritten meanwhile.
                roots = {placed.storages[name].root for name in maker.inputs}
                if not roots & states:
                    before[last] = maker.members[0].tensor
        if extern.function in ROUNDS and first not in kept and len(readers.get(first, ())) == 1:
            (reader,) = readers[first]
            is_map = reader.kind is Kind.MAP and _is_dense(reader.outputs[0], placed)
            if is_map and _rounds(reader.members[0].tensor, extern):
                after[first] = reader.members[0].tensor
    return Adjoined(before, after)


def _is_dense(name: str, placed: Placed) -> bool:
    storage, shape = placed.storages[name], placed.shapes[name]
    plain = dense(name, storage.dtype, shape)
    return storage.terms == plain.terms and storage.offset is plain.offset


def _rounds(tensor: Tensor, extern: Extern) -> bool:
    """Whether a tensor is the first result of an extern in another type, element by element."""
    body = tensor.body
    if not isinstance(body, Cast) or not isinstance(body.x, Load) or body.x.guards:
        return False
    load, shape = body.x, extern.results[0].shape
    if load.tensor != extern.results[0].name or tensor.shape != shape:
        return False
    return all(index is axis.dim for index, axis in zip(load.indices, tensor.axes, strict=True))
