"""Arguments that several commands share, and how their texts become values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from opweld.cli.values import DIGITS
from opweld.cli.values import pairs as pairs
from opweld.cli.values import sizes as sizes
from opweld.errors import OptionError
from opweld.options import Options

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
AnyModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="An ONNX file, or a folder that `opweld compile` wrote.", show_default=False),
]
TargetOption = Annotated[
    str, typer.Option(metavar="NAME", help="The machine to compile for: native, x86-64-v3, x86-64-v4 or aarch64.")
]
LevelOption = Annotated[str, typer.Option(metavar="LEVEL", help="How much to optimise: none, basic, extended or all.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="At most so many threads; all processors where not given.", show_default=False),
]
DisableOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="Keep a decision, rule or stage at its baseline; repeat for more.", show_default=False
    ),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID=ALTERNATIVE", help="Take this alternative of a decision; repeat for more.", show_default=False
    ),
]
HintOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="The usual size of a symbolic dim: kernels are chosen for it, and right for any; repeat for more.",
        show_default=False,
    ),
]
SchedulesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Compute kernels as this file says: the schedules.txt of an artifact, or an edited one.",
        show_default=False,
    ),
]
TuneOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Try other schedules on this machine and keep what is faster: off, quick (seconds) or full (minutes).",
    ),
]
DenormalsOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Numbers below the smallest normal one: keep them, or take them for zero, which is faster on some"
        " processors and changes answers.",
    ),
]
FixedDimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="Make a symbolic dim a constant; repeat for more.", show_default=False
    ),
]
LengthOption = Annotated[
    list[str] | None,
    typer.Option(
        "--length",
        metavar="NAME=N",
        help="How many tensors a sequence holds; 0 or 1, or none, for an optional; repeat for more.",
        show_default=False,
    ),
]
RankOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rank",
        metavar="NAME=N",
        help="How many dims an input has that does not declare them; repeat for more.",
        show_default=False,
    ),
]
ConstantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="NAME=VALUE",
        help="Make an input a constant: a number, or a list as [1,2]; repeat for more.",
        show_default=False,
    ),
]
InputDimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="Size of a symbolic dim of made-up inputs; of the model too where it does not compile without.",
        show_default=False,
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=VALUE",
        help="A .npy file, a number, or a shape such as 1x3x640x640 to fill at random; repeat for more.",
        show_default=False,
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the table as JSON too; - for stdout alone.", show_default=False),
]
VerifyFilesOption = Annotated[
    bool, typer.Option("--verify-files", help="Compare the files of an artifact with their digests before they run.")
]
RtolOption = Annotated[
    float | None, typer.Option(metavar="X", help="Tolerance as a part of each output's scale.", show_default=False)
]
AtolOption = Annotated[
    float | None, typer.Option(metavar="X", help="Tolerance of the difference itself.", show_default=False)
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Seed of made-up inputs.")]


def distinct(model: Path, **files: Path | None) -> None:
    """Raises OptionError where two files that are to be written are one, or one is the model."""
    taken: dict[str, str] = {}
    for name, file in files.items():
        if file is None:
            continue
        place = "-" if str(file) == "-" else str(file.resolve())
        if place in taken:
            raise OptionError(f"--{name} and --{taken[place]} are the same: {file}")
        if place == str(model.resolve()):
            raise OptionError(f"--{name} {file} is the model itself; give it another name")
        taken[place] = name


def lengths(texts: list[str] | None) -> dict[str, int | None]:
    """The `--length NAME=N` texts as numbers, None for `none`. Raises OptionError on what is neither."""
    found: dict[str, int | None] = {}
    for name, value in pairs(texts, "--length").items():
        if value != "none" and not (value.isascii() and value.isdigit() and len(value) <= DIGITS):
            raise OptionError(f"--length {name}={value[:40]}: expected a whole number, or none")
        found[name] = None if value == "none" else int(value)
    return found


def ranks(texts: list[str] | None) -> dict[str, int]:
    """The `--rank NAME=N` texts as numbers. Raises OptionError on one that is none."""
    found: dict[str, int] = {}
    for name, value in pairs(texts, "--rank").items():
        if not (value.isascii() and value.isdigit() and len(value) <= DIGITS):
            raise OptionError(f"--rank {name}={value[:40]}: expected a whole number")
        found[name] = int(value)
    return found


def constants(texts: list[str] | None) -> dict[str, Any]:
    """The `--constant NAME=VALUE` texts as numbers and lists. Raises OptionError on what is neither."""
    found: dict[str, Any] = {}
    for name, value in pairs(texts, "--constant").items():
        try:
            found[name] = json.loads(value)
        except ValueError as error:
            raise OptionError(f"--constant {name}={value}: expected a number, or a list as [1,2]") from error
    return found


def options(
    *,
    target: str = "native",
    level: str = "all",
    threads: int | None = None,
    dims: dict[str, int] | None = None,
    disable: list[str] | None = None,
    pin: list[str] | None = None,
    dim_hint: list[str] | None = None,
    schedules: Path | None = None,
    length: list[str] | None = None,
    rank: list[str] | None = None,
    constant: list[str] | None = None,
    tune: str = "off",
    denormals: str = "keep",
) -> Options:
    """Checked options from what the command line gave."""
    return Options(
        target=target,
        level=level,
        threads=threads or 0,
        dims=dims or {},
        disable=tuple(disable or ()),
        pins=pairs(pin, "--pin"),
        dim_hints=sizes(dim_hint, "--dim-hint"),
        schedules=schedules,
        lengths=lengths(length),
        ranks=ranks(rank),
        constants=constants(constant),
        tune=tune,
        denormals=denormals,
    )
