"""Control flow that depends on data, where PyTorch traces it whole: torch.cond and while_loop are an If and a Loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import fx

from opweld.errors import UnsupportedError
from opweld.frontend.torch.assertions import FAILING
from opweld.frontend.torch.builder import Builder
from opweld.ir import Graph, Node, Value
from opweld.tensor.dtype import DType

Inline: TypeAlias = Callable[[fx.GraphModule, Sequence[Any]], list[Value]]
"""The nodes of a body for these operands; what it returns."""

Declare: TypeAlias = Callable[[fx.Node], Value]
"""A value like what a placeholder stands for."""


@contextmanager
def _body(b: Builder) -> Generator[None]:
    """Nodes that are made here are those of a body: `b.nodes`."""
    outer, b.nodes = b.nodes, list[Node]()
    try:
        yield
    finally:
        b.nodes = outer


def cond(b: Builder, inline: Inline, holds: Any, yes: fx.GraphModule, no: fx.GraphModule, operands: Any) -> list[Value]:
    """What one of two bodies returns. They read values of the graph around them."""
    name = b.name
    if not isinstance(holds, Value):
        return inline(yes if holds else no, operands)
    branches: list[Graph] = []
    for module in (yes, no):
        _refuse_checks(b, module)
        with _body(b):
            made = [b.op("Identity", value) for value in inline(module, operands)]
            branches.append(Graph((), made, b.nodes, name=name))
    dtypes = [[value.dtype for value in branch.outputs] for branch in branches]
    if dtypes[0] != dtypes[1]:
        raise UnsupportedError(f"node {name!r}: the branches return {dtypes[0]} and {dtypes[1]}")
    b.name = name
    return b.ops("If", holds, dtypes=_known(dtypes[0]), then_branch=branches[0], else_branch=branches[1])


def while_loop(
    b: Builder,
    inline: Inline,
    declare: Declare,
    test: fx.GraphModule,
    step: fx.GraphModule,
    carried: Sequence[Value],
    others: Sequence[Any],
) -> list[Value]:
    """What is carried, after the last step. Its shapes stay as they are."""
    name = b.name
    for module in (test, step):
        _refuse_checks(b, module)
    holes = [node for node in step.graph.nodes if node.op == "placeholder"][: len(carried)]
    states = [declare(hole) for hole in holes]
    for value, state in zip(carried, states, strict=True):
        b.known.setdefault(value, b.known[state])
    (first,) = inline(test, [*carried, *others])
    number, before = Value(b.unique(f"{name}.number"), DType.I64, ()), Value(b.unique(f"{name}.before"), DType.BOOL, ())
    with _body(b):
        after = [b.op("Identity", value) for value in inline(step, [*states, *others])]
        b.known.update((value, b.known[state]) for value, state in zip(after, states, strict=True))
        (again,) = inline(test, [*after, *others])
        body = Graph((number, before, *states), (b.op("Identity", again), *after), b.nodes, name=name)
    b.name = name
    return b.ops("Loop", None, first, *carried, dtypes=_known([value.dtype for value in after]), body=body)


def _known(dtypes: Sequence[Any]) -> list[DType]:
    for dtype in dtypes:
        if not isinstance(dtype, DType):
            raise UnsupportedError(f"branches and loops of {dtype} are not supported")
    return list(dtypes)


def _refuse_checks(b: Builder, module: fx.GraphModule) -> None:
    """What is asserted of data in a body that may not run has no place to be checked."""
    for node in module.graph.nodes:
        if str(node.target).startswith(FAILING) and "metadata" not in str(node.target):
            raise UnsupportedError(f"node {b.name!r}: an assertion in a branch or loop is not supported")
