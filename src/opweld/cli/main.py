"""The `opweld` command. Exit status: 0 all is well, 1 opweld refuses or a check fails, 2 a wrong command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import opweld
from opweld.cli.analyze import analyze
from opweld.cli.bench import bench
from opweld.cli.bisect import bisect
from opweld.cli.cache import app as cache
from opweld.cli.chat import chat
from opweld.cli.compile import compile_command
from opweld.cli.explain import explain
from opweld.cli.generate import generate
from opweld.cli.kernels import app as kernels
from opweld.cli.lock import lock
from opweld.cli.machine import machine
from opweld.cli.operators import operators
from opweld.cli.optimize import optimize
from opweld.cli.profile import profile
from opweld.cli.quantize import quantize
from opweld.cli.quiet import with_quiet
from opweld.cli.report import report
from opweld.cli.run import run
from opweld.cli.serve import serve
from opweld.cli.show import printing
from opweld.cli.verify import verify
from opweld.errors import OptionError, OpweldError, RunError
from opweld.experiments.opened import MADE_UP
from opweld.ledger import printable
from opweld.options import Environment
from opweld.verification.inputs import made_up_hint

app = typer.Typer(
    name="opweld",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("compile")(with_quiet(compile_command))
app.command("run")(with_quiet(run))
app.command("bench")(with_quiet(bench))
app.command("profile")(with_quiet(profile))
app.command("verify")(with_quiet(verify))
app.command("bisect")(with_quiet(bisect))
app.command("explain")(with_quiet(explain))
app.command("analyze")(with_quiet(analyze))
app.command("report")(with_quiet(report))
app.command("lock")(with_quiet(lock))
app.command("optimize")(with_quiet(optimize))
app.command("quantize")(with_quiet(quantize))
app.command("generate")(with_quiet(generate))
app.command("chat")(with_quiet(chat))
app.command("serve")(with_quiet(serve))
app.command("machine")(with_quiet(machine))
app.command("operators")(operators)
app.add_typer(kernels, name="kernels")
app.add_typer(cache, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"opweld {opweld.__version__}")
        raise typer.Exit


@app.callback()
def opweld_command(
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


def main() -> None:
    """Runs the command line; every error that opweld raises on purpose becomes one plain message."""
    debug = False
    try:
        debug = Environment.read().debug
        with printing():
            app(prog_name="opweld")
    except OpweldError as error:
        if debug:
            raise
        print(f"opweld: {error}", file=sys.stderr)
        if isinstance(error, RunError) and (names := [printable(name) for name in MADE_UP.get()]):
            print(f"opweld: {made_up_hint(names)}, --input {names[0]}=FILE.npy", file=sys.stderr)
        sys.exit(2 if isinstance(error, OptionError) else 1)


if __name__ == "__main__":
    main()
