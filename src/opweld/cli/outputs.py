"""The outputs of a run: written to files, and shown. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld import whole
from opweld.cli import show
from opweld.ledger import printable
from opweld.shortage import unwritable
from opweld.table import Column, of_names, of_words

Array = NDArray[Any]


def write_outputs(outputs: Mapping[str, Array], folder: Path) -> dict[str, str]:
    """Writes each output into a folder as a .npy file; the files by name of output. Raises OptionError if it cannot."""
    files = {name: str(folder / f"{index}-{file_name(name)}.npy") for index, name in enumerate(outputs)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, folder, "--output") from error
    for name, array in outputs.items():
        whole.write(Path(files[name]), "--output", partial(np.save, arr=array, allow_pickle=False))
    return files


def file_name(name: str) -> str:
    """An output's name as part of a file name: letters, digits, dot, dash and underscore, at most 80 of them."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:80]


def summaries_of(outputs: Mapping[str, Array], files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each output as JSON types: name, dtype, shape, range, NaNs, and its file where it was written."""
    return [_summary(name, array) | ({"file": files[name]} if files else {}) for name, array in outputs.items()]


def show_outputs(summaries: list[dict[str, Any]], rest: str = "--json") -> None:
    """Prints summaries as a table; `rest` as for `show.table`."""
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
    show.table("", columns, rows, [f"wrote {s['file']}" for s in summaries if "file" in s], rest=rest)


def _summary(name: str, array: Array) -> dict[str, Any]:
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
