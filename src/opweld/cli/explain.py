"""`opweld explain`: what was decided, what was not, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.explanation import explain_text
from opweld.ledger import Ledger, printable
from opweld.rules import RULES, stage_of


def explain(
    model: arguments.AnyModelArgument,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the decisions about this graph node.", show_default=False)
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Only decisions of this rule, or of this stage.", show_default=False),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="List the decisions behind each kernel's schedule too.")] = False,
    near_misses: Annotated[int, typer.Option(metavar="N", help="How many near misses to list.")] = 20,
    target: arguments.TargetOption = "native",
    level: arguments.LevelOption = "all",
    dim: arguments.FixedDimOption = None,
    disable: arguments.DisableOption = None,
    pin: arguments.PinOption = None,
    dim_hint: arguments.HintOption = None,
    schedules: arguments.SchedulesOption = None,
    length: arguments.LengthOption = None,
    constant: arguments.ConstantOption = None,
    json: arguments.JsonOption = None,
) -> None:
    """Print what was decided by stage and rule, how each kernel is computed, then the near misses, dearest first.

    \b
    opweld explain model.onnx
    opweld explain model.onnx --node /layer3/conv1/Conv   why was this node (not) fused? how is it computed?
    opweld explain model.onnx --rule schedule.height      one kind of decision, with what each way would take
    opweld explain model.onnx --ids                       the decisions behind every kernel
    opweld explain model.onnx --json - | jq '.[].rule'
    opweld bench model.onnx --disable ID                  what is that decision worth?
    opweld bench model.onnx --pin ID=ALTERNATIVE          what would another choice do?

    Each decision has an id, which --disable and --pin of the other commands take. --node and --rule list the decisions
    behind schedules as --ids does. The schedules are also in the artifact, as schedules.txt; see --schedules.
    """
    from opweld.cli.open import read_decisions

    options = arguments.options(
        target=target,
        level=level,
        dims=arguments.sizes(dim),
        disable=disable,
        pin=pin,
        dim_hint=dim_hint,
        schedules=schedules,
        length=length,
        constant=constant,
    )
    ledger, made = read_decisions(model, options)
    if node is not None:
        ledger = Ledger.of(ledger.about(node))
        if not len(ledger):
            raise OptionError(f"--node {node!r}: no decision is about a node of that name")
    if rule is not None:
        if rule not in {*RULES, *map(stage_of, RULES)}:
            raise OptionError(f"--rule {rule!r}: no such rule or stage; the rules are {', '.join(RULES)}")
        ledger = Ledger.of([d for d in ledger if rule in (d.rule, d.stage)])
    if json is not None:
        show.write_json(ledger.to_json(), json)
        if str(json) == "-":
            return
    fired = sum(d.fired for d in ledger)
    print(f"{printable(str(model))}: {len(ledger)} decisions, {fired} took more than their baseline")
    print(explain_text(ledger, made, near_misses, ids or node is not None or rule is not None), end="")
