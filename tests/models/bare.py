"""Runs an artifact where nothing but opweld and NumPy can be imported, and no program can be started.

    python bare.py ARTIFACT FEEDS OUTPUTS

FEEDS holds a .npz an example. OUTPUTS receives, for each and for one and two threads, NAME-THREADS.npz with the outputs
by position. Prints JSON: what was refused, what was imported.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

FORBIDDEN = ("onnx", "onnxruntime", "onnx_ir", "torch", "ziglang", "rich", "typer", "ml_dtypes")
STARTS_A_PROGRAM = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
THREADS = (1, 2)


class Forbid(importlib.abc.MetaPathFinder):
    """Makes the compiler's dependencies impossible to import: with an error, or as if they were `missing`."""

    def __init__(self, missing: bool = False) -> None:
        self._error = ModuleNotFoundError if missing else ImportError

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuses forbidden packages, leaves others to the next finder."""
        if fullname.partition(".")[0] in FORBIDDEN:
            raise self._error(f"running an artifact must not import {fullname}", name=fullname)
        return None


def _refuse_programs(event: str, _: tuple[object, ...]) -> None:
    if event in STARTS_A_PROGRAM:
        raise RuntimeError(f"running an artifact must not start a program: {event}")


def main(artifact: Path, feeds: Path, outputs: Path) -> None:
    """Runs every example with every number of threads, in one session for each number."""
    at_start = {*sys.modules, *sys.stdlib_module_names}
    sys.meta_path.insert(0, Forbid())
    sys.addaudithook(_refuse_programs)

    import numpy as np

    import opweld

    refused: dict[str, dict[str, str]] = {}
    variants: dict[str, str] = {}
    for threads in THREADS:
        model = opweld.load(artifact, threads=threads)
        for path in sorted(feeds.glob("*.npz")):
            with np.load(path) as arrays:
                feed = dict(arrays)
            try:
                answers = model.run(feed)
            except opweld.OpweldError as error:
                refused[path.stem] = {"kind": type(error).__name__, "text": str(error)}
                continue
            variants[path.stem] = model.session.plan(feed).variant
            target = outputs / f"{path.stem}-{threads}.npz"
            np.savez(target, allow_pickle=False, **{str(i): answer for i, answer in enumerate(answers.values())})
    packages = sorted({name.partition(".")[0] for name in sys.modules} - at_start)
    json.dump({"refused": refused, "variants": variants, "packages": packages}, sys.stdout)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
