"""Arguments that several commands share, and how their texts become values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from opweld.cli.values import sizes as sizes
from opweld.errors import OptionError
from opweld.option import Entry, entries
from opweld.option import pairs as pairs
from opweld.options import Options

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
AnyModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="An ONNX file, or a folder that `opweld compile` wrote.", show_default=False),
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
OnnxFileOption = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="The ONNX file to write.", show_default=False)
]
SamplesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Samples: .npy files, or .npz with the inputs' names, one a sample.", show_default=False
    ),
]
HeldOutOption = Annotated[
    Path | None,
    typer.Option(
        "--held-out",
        metavar="FOLDER",
        help="Samples that errors are measured on, instead of every fifth of the data.",
        show_default=False,
    ),
]
RandomSamplesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="N samples of random numbers instead: to try it, not to use it.", show_default=False
    ),
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

RUNNING = ("target", "dims")
"""Options without effect where a model is run here: sizes are those of what it is fed."""


def check_files(model: Path, **files: Path | None) -> None:
    """Refuses files that cannot be written, before there is something to write.

    Raises OptionError where two are one, one is the model or a folder, or lies in a folder that is not there."""
    taken: dict[str, str] = {}
    for name, file in files.items():
        if file is None:
            continue
        place = "-" if str(file) == "-" else str(file.resolve())
        if place in taken:
            raise OptionError(f"--{name} and --{taken[place]} are the same: {file}")
        if place == str(model.resolve()):
            raise OptionError(f"--{name} {file} is the model itself; give it another name")
        if place != "-" and file.is_dir():
            raise OptionError(f"--{name} {file}: cannot write there: it is a folder; name a file")
        if place != "-" and not file.absolute().parent.is_dir():
            raise OptionError(f"--{name} {file}: cannot write there: no such folder")
        taken[place] = name


def with_options(
    *, without: Collection[str] = (), rewriting: bool = False, table: type[Options] = Options
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command that compiles: it gets a flag for each option, and its function `options`, checked.

    Args:
        without: names of options that would have no effect, or that the command gives itself.
        rewriting: those alone that `opweld optimize` takes.
    """
    chosen = [
        entry
        for entry in entries(table)
        if entry.option.flag and entry.name not in without and (entry.option.rewriting or not rewriting)
    ]
    names = {entry.name for entry in chosen}

    def take(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            texts = {name: given.pop(name, None) for name in names}
            command(**given, options=table.of_texts(texts))

        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in own if one.name != "options"]
        parameters += map(_flag, chosen)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        return run

    return take


def _flag(entry: Entry) -> inspect.Parameter:
    """An option as a parameter that typer makes a flag of."""
    told, text = entry.option, entry.option.help[0].upper() + entry.option.help[1:]
    repeated = told.kind.read is not None
    shown = typer.Option(
        told.flag,
        metavar=told.kind.metavar,
        help=f"{text}; repeat for more." if repeated else f"{text}.",
        show_default=isinstance(entry.default, str),
    )
    kind: Any = list[str] if repeated else told.kind.text
    default = entry.default if isinstance(entry.default, str) else None
    return inspect.Parameter(
        entry.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, shown],
    )
