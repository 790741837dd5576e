"""flex_attention, an operator that calls functions of a score and its place: written out for all scores at once."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.flex_attention import math_attention  # pyright: ignore[reportUnknownVariableType]
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from opweld.frontend.torch.decompositions import decompositions


def flex_attention(node: fx.Node) -> tuple[fx.GraphModule, list[fx.Node]]:
    """What PyTorch's definition of a node is for its operands, as a graph of ATen, and these operands."""
    leaves, spec = pytree.tree_flatten(node.args)
    told = [own for own in leaves if isinstance(own, fx.Node) and own.op == "get_attr"]
    functions = {own: attrgetter(str(own.target))(own.graph.owning_module) for own in told}
    functions = {own: found for own, found in functions.items() if isinstance(found, fx.GraphModule)}
    operands = [own for own in leaves if isinstance(own, fx.Node) and own not in functions]
    values = [own.meta["val"] for own in operands]

    definition_of: Any = math_attention  # pyright: ignore[reportUnknownVariableType] - its functions have no types

    def definition(*given: Any) -> Any:
        now: dict[Any, Any] = {**functions, **dict(zip(operands, given, strict=True))}
        given_leaves = [now[own] if isinstance(own, fx.Node) else own for own in leaves]
        return definition_of(*pytree.tree_unflatten(given_leaves, spec))

    with torch.no_grad():
        made = make_fx(definition, decomposition_table=decompositions(), tracing_mode="symbolic")(*values)
    return made, operands
