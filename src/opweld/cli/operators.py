"""`opweld operators`: what models may be made of."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.table import Column, of_names, of_words


def operators(
    refused: Annotated[bool, typer.Option("--refused", help="Only those that do not compile.")] = False,
    json: arguments.JsonOption = None,
) -> None:
    """List the operators that compile, and how few primitives they are made of.

    \b
    opweld operators
    opweld operators --refused
    opweld operators --json - | jq '.operators[].name'

    An operator is lowered to index expressions, resolved into others as a model is loaded, replaced by what ONNX
    defines it to mean, or refused. Those of installed packages are listed too.
    """
    from opweld.frontend.coverage import coverage
    from opweld.ops.registry import load_installed

    load_installed()
    found = coverage()
    if json is not None:
        show.write_json(asdict(found), json)
        if str(json) == "-":
            return
    rows = [
        (operator.name, operator.domain or "ai.onnx", str(operator.since or "-"), operator.how)
        for operator in found.operators
        if not refused or operator.how == "refused"
    ]
    columns = (of_names("operator"), of_words("domain", 2), Column("since", 1), of_words("how"))
    show.table("", columns, rows)
    for domain in sorted({operator.domain for operator in found.operators}):
        own = [operator for operator in found.operators if operator.domain == domain]
        compiled = [operator for operator in own if operator.how != "refused"]
        # Of a domain that onnx does not define, only what compiles is known here.
        total = f" of {len(own)}" if any(operator.since for operator in own) else ""
        defined = sum(operator.how == "definition" for operator in own)
        rest = f", {defined} of them by their definition" if defined else ""
        show.text(f"{domain or 'ai.onnx'}: {len(compiled)}{total} operators compile{rest}")
    show.text(
        f"made of {len(found.primitives)} primitives and {len(found.externs)} functions over memory; "
        f"opsets {found.opsets[0]} to {found.opsets[1]}; element types {', '.join(found.dtypes)}"
    )
