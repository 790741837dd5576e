"""`python -m opweld.run ARTIFACT`: runs an artifact where nothing but NumPy is installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from opweld.build.artifact import MANIFEST
from opweld.cli.outputs import show_outputs, summaries_of, write_outputs
from opweld.cli.show import printing
from opweld.cli.values import sizes
from opweld.errors import OptionError, OpweldError, RunError
from opweld.option import pairs
from opweld.runtime.session import Session
from opweld.verification.expected import expectation_of
from opweld.verification.inputs import fitting_inputs, made_up_hint

_EXAMPLES = """\
examples:
  python -m opweld.run model.opweld                    random inputs
  python -m opweld.run model.opweld --dim seq=200      of this size
  python -m opweld.run model.opweld --input x=photo.npy --output results

`opweld run` takes ONNX files too, and needs what `pip install opweld` brings.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs an artifact once and shows its outputs. Exit status: 1 opweld refuses, 2 a wrong command line."""
    try:
        with printing():
            _run(_parser().parse_args(arguments))
    except OpweldError as error:
        print(f"opweld: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, OptionError) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m opweld.run",
        description="Run an artifact on inputs from files, or on random ones. Needs nothing but NumPy.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("artifact", metavar="ARTIFACT", type=Path, help="A folder that `opweld compile` wrote.")
    add("--input", metavar="NAME=VALUE", action="append", help="A .npy file, a number, or a shape such as 1x3x64x64.")
    add("--dim", metavar="NAME=N", action="append", help="Size of a symbolic dim of made-up inputs.")
    add("-o", "--output", metavar="DIR", type=Path, help="Write each output there as a .npy file.")
    add("--threads", metavar="N", type=int, help="At most so many threads; 0 for all processors.")
    add("--seed", metavar="N", type=int, default=0, help="Seed of made-up inputs.")
    add("--verify-files", action="store_true", help="Compare the files with their digests before they run.")
    return parser


def _run(given: argparse.Namespace) -> None:
    if not (given.artifact / MANIFEST).is_file():
        raise OptionError(f"{str(given.artifact)!r} is no artifact: name a folder that `opweld compile` wrote")
    if given.threads is not None and given.threads < 0:
        raise OptionError(f"--threads {given.threads}: expected 0 or more")
    session = Session(given.artifact, threads=given.threads, verify=given.verify_files)
    declared = session.manifest.inputs
    texts, dims = pairs(given.input, "--input"), sizes(given.dim)
    feeds, _ = fitting_inputs(
        declared, session.check, given=texts, dims=dims, seed=given.seed, expected=expectation_of(session.folder)
    )
    names = [info.name for info in session.manifest.outputs]
    try:
        outputs = dict(zip(names, session.run_tensors(feeds), strict=True))
    except RunError as error:
        made_up = [name for name in feeds if name not in texts]
        raise RunError(f"{error}; {made_up_hint(made_up)}, with --input" if made_up else str(error)) from error
    files = {} if given.output is None else write_outputs(outputs, given.output)
    show_outputs(summaries_of(outputs, files), rest="")


if __name__ == "__main__":
    main()
