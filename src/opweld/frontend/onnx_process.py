"""The process that `isolated.py` starts, as a script: calls functions of onnx's C++ library on a model.

It imports neither opweld nor onnx: loading the library alone takes 20 ms, onnx with its Python takes 170.
"""

from __future__ import annotations

import base64
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from typing import Any

LIBRARY = "onnx.onnx_cpp2py_export"


def main() -> None:
    """Arguments: one JSON object. The model comes from standard input; the answer, a byte of status and what the
    function returned or why it did not, goes to standard output."""
    # Output of the library must not be taken for the result.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task = json.loads(sys.argv[1])
    for kind, limit in ((resource.RLIMIT_AS, task["bytes"]), (resource.RLIMIT_CPU, task["seconds"])):
        _limit(kind, limit)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        answer = b"\0" + _answer(_library(task["path"]), task["function"], sys.stdin.buffer.read(), task["arguments"])
    except Exception as error:  # noqa: BLE001 - the parent reports it
        answer = b"\1" + (str(error) or type(error).__name__).encode(errors="replace")
    answers.write(answer)
    answers.close()


def _limit(kind: int, limit: int) -> None:
    """Lowers a limit of the process; a lower one is kept."""
    hard = resource.getrlimit(kind)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    # Beyond the soft limit of processor time a signal tells the cause; at the hard one none does.
    resource.setrlimit(kind, (limit, hard))


def _answer(library: Any, function: str, data: bytes, arguments: list[Any]) -> bytes:
    if function == "definitions":
        return json.dumps([_definition(library, *request) for request in json.loads(data)]).encode()
    module, _, name = function.partition(".")
    return getattr(getattr(library, module), name)(data, *arguments)


def _definition(library: Any, operator: str, version: int, domain: str, node: str, types: list[str]) -> str:
    schema = library.defs.get_schema(operator, version, domain)
    given = [base64.b64decode(text) for text in types]
    return base64.b64encode(schema.get_context_dependent_function(base64.b64decode(node), given)).decode()


def _library(path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(LIBRARY, path)
    spec = importlib.util.spec_from_loader(LIBRARY, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
