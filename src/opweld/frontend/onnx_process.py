"""The process that `isolated.py` starts, as a script: calls one function of onnx's C++ library on a model.

It imports neither opweld nor onnx: loading the library alone takes 20 ms, onnx with its Python takes 170.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from typing import Any, cast

LIBRARY = "onnx.onnx_cpp2py_export"


def main() -> None:
    """Arguments: one JSON object. The model comes from standard input; the answer, a byte of status and what the
    function returned or why it did not, goes to standard output."""
    # What the library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task = json.loads(sys.argv[1])
    for kind, limit in ((resource.RLIMIT_AS, task["bytes"]), (resource.RLIMIT_CPU, task["seconds"])):
        _limit(kind, limit)
    _limit(resource.RLIMIT_CORE, 0)
    module, _, name = task["function"].partition(".")
    arguments = [_with_pairs(argument) for argument in task["arguments"]]
    try:
        answer = b"\0" + getattr(getattr(_library(task["path"]), module), name)(sys.stdin.buffer.read(), *arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent tells
        answer = b"\1" + (str(error) or type(error).__name__).encode(errors="replace")
    answers.write(answer)
    answers.close()


def _limit(kind: int, limit: int) -> None:
    """Lowers a limit of the process; one that is lower already stays."""
    hard = resource.getrlimit(kind)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    # Beyond the soft limit of processor time a signal says why; at the hard one none does.
    resource.setrlimit(kind, (limit, hard))


def _with_pairs(argument: Any) -> Any:
    """JSON has no tuples; the library wants pairs of names as such."""
    return [tuple(item) for item in cast(list[Any], argument)] if isinstance(argument, list) else argument


def _library(path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(LIBRARY, path)
    spec = importlib.util.spec_from_loader(LIBRARY, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
