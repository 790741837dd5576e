"""Programs that import onnxruntime, run by opweld without being changed.

    python -m opweld.shim program.py ARGUMENTS
    python -m opweld.shim -m module ARGUMENTS
    PYTHONPATH=$(python -m opweld.shim --path) program      whatever starts Python

The folder `onnxruntime/site` holds a package named onnxruntime that hands on `opweld.onnxruntime`. It is on nobody's
path until one of these puts it there, before the real one. Parts of the real one that are plain Python (quantization,
transformers, tools) are found behind it where that is installed, and its compiled code is never loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

SITE = Path(__file__).parent / "onnxruntime" / "site"
"""The folder to put on a path."""

USAGE = """usage: python -m opweld.shim SCRIPT [ARGUMENTS]
       python -m opweld.shim -m MODULE [ARGUMENTS]
       python -m opweld.shim --path"""


def install() -> None:
    """Has this process import opweld where it asks for onnxruntime, and processes that multiprocessing starts from it.

    Raises ImportError when the real onnxruntime was imported already."""
    loaded = sys.modules.get("onnxruntime")
    if loaded is not None and not str(loaded.__file__).startswith(str(SITE)):
        raise ImportError("onnxruntime was imported before opweld.shim.install(); call it first", name="onnxruntime")
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))


def main(arguments: Sequence[str]) -> NoReturn:
    """Becomes the program, with the folder of the stand-in first on its path and on that of its children."""
    if arguments == ["--path"]:
        print(SITE)
        sys.exit()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, USAGE, sep="\n\n", file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    if sys.flags.ignore_environment:
        sys.exit("opweld.shim: Python was told to ignore its environment (-E or -I), which the program is told by")
    known = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(entry for entry in (str(SITE), known) if entry)
    os.execve(sys.executable, [sys.executable, *arguments], os.environ | {"PYTHONPATH": path})


if __name__ == "__main__":
    main(sys.argv[1:])
