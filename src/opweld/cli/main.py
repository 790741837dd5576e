"""The `opweld` command. Exit status: 0 all is well, 1 opweld refuses or a check fails, 2 a wrong command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

import opweld
from opweld.cli.quiet import with_quiet
from opweld.cli.show import printing
from opweld.errors import OptionError, OpweldError, RunError
from opweld.options import Environment

COMMANDS = (
    *("compile", "run", "bench", "profile", "verify", "bisect", "explain", "analyze", "report", "lock", "optimize"),
    *("quantize", "compress", "generate", "chat", "serve", "machine", "operators", "kernels", "cache"),
)
"""In the order of the help. Each is a module of this package with a function, or an app of several, of its name."""

_FUNCTIONS = {"compile": "compile_command", "kernels": "app", "cache": "app"}
_SHORT = ("operators",)
"""Those that take no time, and so have no --quiet."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"opweld {opweld.__version__}")
        raise typer.Exit


def _opweld(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Compile ONNX models into few fused native kernels, and see what was done and why.

    \b
    opweld compile model.onnx -o model.opweld   a folder that runs without ONNX
    opweld run model.opweld --input x=x.npy     run it
    opweld verify model.onnx                    is the answer right?
    opweld bench model.onnx                     is it fast?
    opweld profile model.onnx                   where does the time go?
    opweld explain model.onnx                   what was fused, what was not, why?
    opweld report model.onnx -o report.html     all of it, to look at
    opweld bisect model.onnx                    which decision is at fault?
    opweld analyze model.onnx                   what does it cost?
    opweld lock model.onnx -o model.lock        which nodes are one kernel?
    opweld optimize model.onnx -o smaller.onnx  a smaller file for any runtime
    opweld quantize model.onnx -o int8.onnx     fewer bits: what does that cost?
    opweld compress model.onnx -o less.onnx     fewer weights: is that faster?
    opweld generate model.gguf "Once upon"      a language model continues a text
    opweld chat model.gguf                      talk with one
    opweld serve model.onnx chat=model.gguf     models behind HTTP
    opweld machine                              what can this machine do at most?
    opweld operators                            which operators compile
    opweld kernels report                       what do kernels for GPUs need?
    opweld cache                                what compiled models take

    What takes long shows how far it is, on standard error: a bar on a terminal, else a line at times; --quiet: neither.

    \b
    Environment:
      OPWELD_CACHE=FOLDER      compiled models lie there, not in ~/.cache/opweld
      OPWELD_CACHE_LIMIT=SIZE  how much is kept, 20G where not given
      OPWELD_CC=PROGRAM        the C compiler instead of zig
      OPWELD_DUMP=FOLDER       write a numbered file a stage
      OPWELD_DEBUG=1           verify every stage, show tracebacks
    """


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command with these commands of it. Their modules are imported now, and some bring in the whole compiler."""
    app = typer.Typer(
        name="opweld",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_opweld)
    for name in commands:
        command = getattr(import_module(f"opweld.cli.{name}"), _FUNCTIONS.get(name, name))
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command if name in _SHORT else with_quiet(command))
    return app


def main() -> None:
    """Runs the command line; every error that opweld raises on purpose becomes one plain message."""
    debug = False
    try:
        debug = Environment.read().debug
        with printing():
            # The rest of them is imported for the help alone, and for a name that is none.
            named = [name for name in sys.argv[1:2] if name in COMMANDS]
            application(named or COMMANDS)(prog_name="opweld")
    except OpweldError as error:
        if debug:
            raise
        print(f"opweld: {error}", file=sys.stderr)
        if isinstance(error, RunError):
            _hint_at_made_up()
        sys.exit(2 if isinstance(error, OptionError) else 1)


def _hint_at_made_up() -> None:
    """Says which inputs of a run that failed were made up."""
    from opweld.experiments.opened import MADE_UP
    from opweld.ledger import printable
    from opweld.verification.inputs import made_up_hint

    if names := [printable(name) for name in MADE_UP.get()]:
        print(f"opweld: {made_up_hint(names)}, --input {names[0]}=FILE.npy", file=sys.stderr)


if __name__ == "__main__":
    main()
