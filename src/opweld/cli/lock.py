"""`opweld lock`: the fusions of a model in a file, and what has changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld import whole
from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import printable
from opweld.options import Options


@arguments.with_options()
def lock(
    model: arguments.ModelArgument,
    *,
    options: Options,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write; standard output where not given."),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with what was written before.", show_default=False)
    ] = None,
) -> None:
    """Write down which nodes are computed together, and see later whether one fusion was lost.

    \b
    opweld lock model.onnx -o model.lock
        a line for each kernel of several nodes: review it, commit it
    opweld lock model.onnx --check model.lock
        exit status 1 when one is lost or new, with the reason

    A model that is exported anew may lose a fusion and still be right: a second reader, another order of nodes. It is
    slower, and nothing says so. Nodes are found again by what they compute, whatever they are called by then; kernels
    of a single node are not in the file.
    """
    if output is not None and check is not None:
        raise OptionError("--output writes a lock and --check reads one: give one of them")
    from opweld.cli.open import read_decisions
    from opweld.frontend import onnx
    from opweld.rewrite.optimize import optimize_as_asked
    from opweld.verification.lock import changes, fusions_of, parse_lock, parse_nodes, print_lock
    from opweld.verification.structure import renamed, structure_of

    arguments.check_files(model, output=output)
    written = "" if check is None else _read(check)
    before = None if check is None else parse_lock(written, str(check))
    compiled = list(read_decisions(model, options)[0].ledger)
    rewritten = optimize_as_asked(model, Options(level=options.level)).ledger
    after = fusions_of(compiled, rewritten)
    structure = structure_of(onnx.load(model, options.specialisation))
    if before is None:
        text = print_lock(after, structure)
        if output is None:
            print(text, end="")
        else:
            whole.write_text(text, output, "--output")
            show.text(f"{output}: {len(after)} fusions")
        return
    found = changes(before, after, compiled, renamed(parse_nodes(written, str(check)), structure))
    for change in found:
        show.text(f"{'lost' if change.lost else 'new '}  {change.fusion.words}")
        for note in change.notes:
            show.text(f"      {note}")
    lost = sum(change.lost for change in found)
    if found:
        remedy = f"`opweld lock MODEL -o {printable(str(check))}` accepts it"
        show.text(f"{printable(str(check))}: {lost} lost, {len(found) - lost} new; {remedy}")
        raise typer.Exit(1)
    show.text(f"{printable(str(check))}: all {len(after)} fusions are there")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise OptionError(f"--check {str(path)!r}: cannot be read ({error}); write it with -o") from error
