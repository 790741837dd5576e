"""`opweld explain`: what was decided, what was not, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import Ledger, printable


def explain(
    model: arguments.AnyModelArgument,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the decisions about this graph node.", show_default=False)
    ] = None,
    near_misses: Annotated[int, typer.Option(metavar="N", help="How many near misses to list.")] = 20,
    target: arguments.TargetOption = "native",
    level: arguments.LevelOption = "all",
    dim: arguments.FixedDimOption = None,
    disable: arguments.DisableOption = None,
    json: arguments.JsonOption = None,
) -> None:
    """Print every decision of the compiler by stage and rule, then the near misses, dearest first.

    \b
    opweld explain model.onnx
    opweld explain model.onnx --node /layer3/conv1/Conv   why was this node (not) fused?
    opweld explain model.onnx --json - | jq '.[].rule'
    opweld bench model.onnx --disable ID                  what is that decision worth?

    Each line begins with the decision's id, which --disable of the other commands takes.
    """
    from opweld.cli.open import read_ledger

    ledger = read_ledger(
        model, arguments.options(target=target, level=level, dims=arguments.sizes(dim), disable=disable)
    )
    if node is not None:
        chosen = ledger.about(node)
        if not chosen:
            raise OptionError(f"--node {node!r}: no decision is about a node of that name")
        ledger = Ledger.of(chosen)
    if json is not None:
        show.write_json(ledger.to_json(), json)
        if str(json) == "-":
            return
    fired = sum(d.fired for d in ledger)
    print(f"{printable(str(model))}: {len(ledger)} decisions, {fired} took more than their baseline")
    print(ledger.render(near_misses), end="")
