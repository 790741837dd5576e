"""What a program of PyTorch asserts of its data."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import torch
from torch import fx

_ASSERTIONS = ("aten._assert_scalar.default", "aten._assert_async.msg")
"""Overloads that fail where a condition of the run is false."""

_SILENT = (
    torch._assert_async,  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    torch.ops.aten._assert_async,
    torch.ops.aten._assert_async.default,
)
"""Those without a message."""

FAILING = ("aten._assert_scalar", "aten._assert_async", "aten._assert_tensor_metadata", "aten.sym_constrain_range")
"""Beginnings of overloads that only fail or tell the tracer something."""

_TRUTHS = ("sym_not", "and_", "or_", "xor")
"""Functions of truth values."""

_UNSAID = "Expected Tensor with single nonzero value, but got zero"
"""What eager mode says where an assertion has no message."""


def assertions(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """(condition, message) of what a program asserts of its data: PyTorch has taken it for true from there on."""
    for node in graph.nodes:
        if node.op == "call_function" and str(node.target) in _ASSERTIONS and isinstance(node.args[0], fx.Node):
            yield node.args[0], str(node.args[1])


def is_only_asserted(node: fx.Node) -> bool:
    """Whether nothing but assertions reads a truth value, or what others make of it."""
    return bool(node.users) and all(
        str(user.target).startswith(FAILING)
        or (getattr(user.target, "__name__", "") in _TRUTHS and is_only_asserted(user))
        for user in node.users
    )


@contextmanager
def messages_given(gm: fx.GraphModule) -> Generator[None]:
    """Meanwhile assertions that have no message say what eager mode raises: without any, AOTAutograd takes them for
    dead code."""
    silent = [(node, node.target) for node in gm.graph.nodes if node.target in _SILENT and len(node.args) == 1]
    for node, _ in silent:
        node.target = torch.ops.aten._assert_async.msg
        node.args = (*node.args, _UNSAID)
    if silent:
        gm.recompile()
    try:
        yield
    finally:
        for node, target in silent:
            node.target, node.args = target, node.args[:1]
        if silent:
            gm.recompile()
