"""`opweld explain`: what was decided, what was not, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.ledger import printable
from opweld.options import Options


@arguments.with_options()
def explain(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Follow this node of the graph to its kernel.", show_default=False),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Only decisions of this rule, or of this stage.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every decision and every kernel.")] = False,
    ids: Annotated[
        bool, typer.Option("--ids", help="As --all, with the decisions behind each kernel's schedule.")
    ] = False,
    instructions: Annotated[
        bool,
        typer.Option("--instructions", help="Which instructions kernels hold: all, or those of --node. Compiles them."),
    ] = False,
    near_misses: Annotated[int, typer.Option(metavar="N", help="How many near misses to list.")] = 10,
    json: arguments.JsonOption = None,
) -> None:
    """Print a summary: what became of the nodes, what fusion saves, how much it covers, and what nearly was fused.

    \b
    opweld explain model.onnx
    opweld explain model.onnx --all
        every decision by stage and rule, and every kernel
    opweld explain model.onnx --node /layer3/conv1/Conv
        what became of this node? why was it (not) fused?
    opweld explain model.onnx --rule schedule.height
        one kind of decision, with what each way would take
    opweld explain model.onnx --ids
        the decisions behind every kernel
    opweld explain model.onnx --instructions
        which instructions does each kernel hold, read from its machine code?
    opweld explain model.onnx --json - | jq '.decisions[].rule'
    opweld bench model.onnx --disable ID
        what is that decision worth?
    opweld bench model.onnx --pin ID=ALTERNATIVE
        what would another choice do?

    Each decision has an id, which --disable and --pin of the other commands take. --node and --rule list the decisions
    behind schedules as --ids does. The schedules are also in the artifact, as schedules.txt; see --schedules. What
    --json writes is described by docs/explain.schema.json.
    """
    from opweld.account.explained import Explanation, check_rule
    from opweld.analysis.resources import kernel_instructions
    from opweld.cli.open import artifact_of, read_decisions

    arguments.check_files(model, json=json)
    if rule is not None and not model.is_dir():
        from opweld.pipeline import decision_rules

        check_rule(rule, decision_rules(options))  # before the model is compiled
    where = artifact_of(model, options) if instructions else model
    account, folder = read_decisions(where, options)
    found = Explanation(account, str(model), folder, kernel_instructions)
    decisions = found.decisions if node is None else found.about(node)
    if rule is not None:
        decisions = found.of_rule(rule, decisions)
    if json is not None:
        show.write_json(found.to_json(node, decisions), json)
        if str(json) == "-":
            return
    if everything or ids or rule is not None:
        show.text(found.listed(decisions, near_misses, ids=ids or rule is not None))
    elif node is not None:
        show.text(found.node(node, found.instructions() if instructions else None))
    elif instructions:
        show.text("".join(f"{printable(kernel)}: {text}\n" for kernel, text in found.instructions().items()))
    else:
        show.text(found.summary(near_misses))
