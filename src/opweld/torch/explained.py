"""`explain`: the graphs that PyTorch makes of a function, the breaks between them, and what of each is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _python_dispatch as dispatch

from opweld.display import Piece, Shown, Table
from opweld.frontend.torch.decompositions import decompositions
from opweld.frontend.torch.graphs import refused_nodes
from opweld.table import Column, of_words


@dataclass(frozen=True)
class Traced:
    """A graph. nodes: of ATen. eager: those that stay in eager mode, by name, and why."""

    nodes: int
    eager: dict[str, str]


@dataclass(frozen=True, repr=False)
class TorchExplanation(Shown):
    """What becomes of a function under `torch.compile(backend="opweld")`.

    Attributes:
        graphs: in the order in which they are traced.
        breaks: why PyTorch ends a graph and begins another one, each with the line of the program.
    """

    graphs: tuple[Traced, ...]
    breaks: tuple[str, ...]

    def shown(self) -> Sequence[Piece]:
        """A row for each graph, what stays in eager mode, and the breaks."""
        columns = (Column("graph", 2), Column("nodes", 1), Column("compiled"), of_words("in eager mode"))
        rows = tuple(
            (str(i), str(g.nodes), str(g.nodes - len(g.eager)), ", ".join(g.eager) or "-")
            for i, g in enumerate(self.graphs)
        )
        head = f"{_counted(len(self.graphs), 'graph')}, {_counted(len(self.breaks), 'break')} between them"
        reasons = list(dict.fromkeys(reason for graph in self.graphs for reason in graph.eager.values()))
        told = [f"break {i + 1}: {text}" for i, text in enumerate(self.breaks)]
        more = [*(f"eager: {reason}" for reason in reasons), *told]
        return [head, Table(columns, rows), *(["\n".join(more)] if more else [])]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> TorchExplanation:
    """Traces a function or a module for these inputs, and compiles nothing. It is called twice, in eager mode:
    for the breaks, and for the graphs."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    found: list[Traced] = []

    def look(graph: fx.GraphModule, fakes: Sequence[Any]) -> Any:
        with dispatch._disable_current_modes():  # pyright: ignore[reportPrivateUsage] - stored tensors are read
            refused = refused_nodes(graph)
        count = sum(node.op == "call_function" for node in graph.graph.nodes)
        found.append(Traced(count, {node.name: reason for node, reason in refused.items()}))
        return boxed_nop(graph, list(fakes))

    backend = aot_autograd(fw_compiler=look, bw_compiler=boxed_nop, decompositions=decompositions())
    torch.compiler.reset()
    with torch.no_grad():
        told = torch._dynamo.explain(function)(*args, **kwargs)  # pyright: ignore[reportPrivateUsage]
        torch.compiler.reset()
        torch.compile(function, backend=backend)(*args, **kwargs)
    torch.compiler.reset()
    return TorchExplanation(tuple(found), tuple(_reason(own) for own in told.break_reasons))


def _reason(own: Any) -> str:
    """A break in one line: PyTorch's reason, and where the program asks for it."""
    text = next((line.strip() for line in str(own.reason).splitlines() if line.strip()), "no reason is given")
    frames = [frame for frame in own.user_stack if frame is not None]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text
