"""`opweld run`: run a model once and show its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opweld.cli import arguments, show
from opweld.cli.table import Column, of_names, of_words
from opweld.errors import OptionError
from opweld.ledger import printable


def run(
    model: arguments.AnyModelArgument,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write each output there as a .npy file.")
    ] = None,
    level: arguments.LevelOption = "all",
    threads: arguments.ThreadsOption = None,
    disable: arguments.DisableOption = None,
    pin: arguments.PinOption = None,
    dim_hint: arguments.HintOption = None,
    schedules: arguments.SchedulesOption = None,
    tune: arguments.TuneOption = "off",
    denormals: arguments.DenormalsOption = "keep",
    length: arguments.LengthOption = None,
    constant: arguments.ConstantOption = None,
    seed: arguments.SeedOption = 0,
    verify_files: arguments.VerifyFilesOption = False,
    json: arguments.JsonOption = None,
) -> None:
    """Run a model on inputs from files, or on random ones.

    \b
    opweld run model.onnx --input x=photo.npy --output results
    opweld run model.opweld                               random inputs of usual sizes
    opweld run model.opweld --dim seq=200                 of this size, where the model names its dims
    opweld run vad.onnx --input sr=16000 --input input=1x576

    The table gives each output's shape, range and number of NaNs.
    """
    import numpy as np

    from opweld.cli.open import open_model

    options = arguments.options(
        level=level,
        threads=threads,
        disable=disable,
        pin=pin,
        dim_hint=dim_hint,
        schedules=schedules,
        tune=tune,
        denormals=denormals,
        length=length,
        constant=constant,
    )
    opened = open_model(model, options, verify=verify_files)
    feeds = opened.feeds(arguments.pairs(values, "--input"), arguments.sizes(dim), seed)
    outputs = opened.run(feeds)
    files: dict[str, str] = {}
    if output is not None:
        for index, name in enumerate(outputs):
            files[name] = str(output / f"{index}-{file_name(name)}.npy")
        try:
            output.mkdir(parents=True, exist_ok=True)
            for name, array in outputs.items():
                np.save(files[name], array, allow_pickle=False)
        except OSError as error:
            raise OptionError(f"--output {output}: cannot write there: {error.strerror}") from error
    summaries = [_summary(name, array) | ({"file": files[name]} if files else {}) for name, array in outputs.items()]
    if json is not None:
        show.write_json({"model": str(model), "outputs": summaries}, json)
        if str(json) == "-":
            return
    columns = (
        of_names("output"),
        of_words("dtype", 3),
        of_words("shape"),
        Column("least", 1),
        Column("mean", 2),
        Column("largest", 1),
        Column("NaN"),
    )
    rows = [
        (
            printable(s["name"]),
            s["dtype"],
            "x".join(map(str, s["shape"])) or "scalar",
            *(f"{s[key]:.6g}" if s[key] is not None else "-" for key in ("least", "mean", "largest")),
            str(s["nan"]),
        )
        for s in summaries
    ]
    show.table("", columns, rows, [f"wrote {file}" for file in files.values()])


def file_name(name: str) -> str:
    """An output's name as part of a file name: letters, digits, dot, dash and underscore, at most 80 of them."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:80]


def _summary(name: str, array: Any) -> dict[str, Any]:
    import numpy as np

    values = array.astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    least, mean, largest = (finite.min(), finite.mean(), finite.max()) if finite.size else (None, None, None)
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "least": None if least is None else float(least),
        "mean": None if mean is None else float(mean),
        "largest": None if largest is None else float(largest),
        "nan": int(np.isnan(values).sum()),
    }
