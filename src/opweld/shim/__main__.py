"""`python -m opweld.shim PROGRAM [ARGUMENTS]`: runs a script, or a module after -m, with opweld for onnxruntime."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from opweld.shim import SITE

USAGE = """usage: python -m opweld.shim SCRIPT [ARGUMENTS]
       python -m opweld.shim -m MODULE [ARGUMENTS]
       python -m opweld.shim --path"""


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
