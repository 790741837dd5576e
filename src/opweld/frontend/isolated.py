"""onnx's C++ library, called in a process of its own.

It may abort on malformed models (an assertion on a declared size, a stack overflow), and may take unlimited time and
memory. A model is untrusted data, so none of this may affect the process that compiles it. A call takes 30 ms.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any, TypeVar

import onnx
from google.protobuf.message import DecodeError
from onnx import onnx_cpp2py_export

from opweld.errors import ToolchainError
from opweld.shortage import check_shortage

MAX_SECONDS = 60
"""The limit of processor time of a call, in seconds."""

MAX_BYTES = 4 << 30
"""The limit of address space of a call in bytes, in addition to the model's size."""

_COPIES = 16
"""How many copies of a model may be in memory during a call."""

_SCRIPT = Path(__file__).with_name("onnx_process.py")


_Message = TypeVar("_Message", onnx.ModelProto, onnx.FunctionProto)


class LibraryError(Exception):
    """onnx refused the model, crashed on it, or took too long. `str` is a line of explanation."""


def convert_version(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """`onnx.version_converter.convert_version`. Raises LibraryError."""
    return _call("version_converter.convert_version", model, opset)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """`onnx.shape_inference.infer_shapes`. Raises LibraryError."""
    return _call("shape_inference.infer_shapes", model, False, False, False)


def inline_local_functions(model: onnx.ModelProto, convert: bool) -> onnx.ModelProto:
    """`onnx.inliner.inline_local_functions`, with or without conversion to the opset of the model, for which the
    library needs the types of all values. Raises LibraryError."""
    return _call("inliner.inline_local_functions", model, convert)


@dataclass(frozen=True)
class Definition:
    """A request for the definition of an operator, by name, version and domain, for a node with these input types.

    `place` is for the caller."""

    place: int
    operator: str
    version: int
    domain: str
    node: onnx.NodeProto
    types: Sequence[onnx.TypeProto]


def definitions(requests: Sequence[Definition]) -> list[onnx.FunctionProto]:
    """`OpSchema.get_context_dependent_function` of each request, in one call. Raises LibraryError."""
    if not requests:
        return []
    tasks = [
        (
            r.operator,
            r.version,
            r.domain,
            _text(r.node.SerializeToString()),
            [_text(t.SerializeToString()) for t in r.types],
        )
        for r in requests
    ]
    answer = json.loads(_ask("definitions", json.dumps(tasks).encode()))
    return [_parsed(onnx.FunctionProto(), base64.b64decode(body)) for body in answer]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _call(function: str, model: onnx.ModelProto, *arguments: Any) -> onnx.ModelProto:
    return _parsed(onnx.ModelProto(), _ask(function, model.SerializeToString(), *arguments))


def _parsed(message: _Message, data: bytes) -> _Message:
    try:
        message.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        raise LibraryError("onnx returned an invalid model") from error
    return message


def _ask(function: str, data: bytes, *arguments: Any) -> bytes:
    task = {
        "path": onnx_cpp2py_export.__file__,
        "function": function,
        "arguments": arguments,
        "seconds": MAX_SECONDS,
        "bytes": MAX_BYTES + _COPIES * len(data),
    }
    # Without the user's startup files and the packages of this process: only the library is needed.
    python = spawn.get_executable()
    command = [python, "-I", "-S", str(_SCRIPT), json.dumps(task)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False)
    except (OSError, TypeError) as error:
        if isinstance(error, OSError):
            check_shortage(error)
        raise ToolchainError(f"cannot start {python!r}, which converts models: {error}") from error
    if done.returncode or not done.stdout:
        raise LibraryError(_crash(done))
    if done.stdout[0]:
        raise LibraryError(_line(done.stdout[1:]))
    return done.stdout[1:]


def _crash(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == -signal.SIGXCPU:
        return f"onnx did not finish within {MAX_SECONDS} s"
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
    return f"onnx crashed on it ({ended}: {_line(done.stderr, last=True)})"


def _line(data: bytes, last: bool = False) -> str:
    lines = data.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
    return lines[-1 if last else 0][:300]
