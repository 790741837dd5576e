"""onnx's C++ library, called in a process of its own.

It aborts on models that its authors did not think of (an assertion of the C++ library behind a declared size, a stack
that ends), and it may take any time and memory. A model is data that nobody vouches for, so none of this may reach the
process that compiles it. A call takes 30 ms.
"""

from __future__ import annotations

import json
import signal
import subprocess
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import onnx_cpp2py_export

from opweld.errors import ToolchainError

MAX_SECONDS = 60
"""Processor time of a call."""

MAX_BYTES = 4 << 30
"""Address space of a call, but for what the model itself takes."""

_COPIES = 16
"""How many times a model may be held in memory while it is worked on."""

_SCRIPT = Path(__file__).with_name("onnx_process.py")


class LibraryError(Exception):
    """onnx refused the model, crashed on it, or took too long. `str` is one line that says so."""


def convert_version(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """`onnx.version_converter.convert_version`. Raises LibraryError."""
    return _call("version_converter.convert_version", model, opset)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """`onnx.shape_inference.infer_shapes`. Raises LibraryError."""
    return _call("shape_inference.infer_shapes", model, False, False, False)


def inline_local_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """`onnx.inliner.inline_local_functions`, with conversion of their opsets. Raises LibraryError."""
    return _call("inliner.inline_local_functions", model, True)


def _call(function: str, model: onnx.ModelProto, *arguments: Any) -> onnx.ModelProto:
    data = model.SerializeToString()
    task = {
        "path": onnx_cpp2py_export.__file__,
        "function": function,
        "arguments": arguments,
        "seconds": MAX_SECONDS,
        "bytes": MAX_BYTES + _COPIES * len(data),
    }
    # Neither the user's startup files nor the packages of this process: nothing but the library is needed.
    python = spawn.get_executable()
    command = [python, "-I", "-S", str(_SCRIPT), json.dumps(task)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False)
    except (OSError, TypeError) as error:
        raise ToolchainError(f"cannot start {python!r}, which converts models: {error}") from error
    if done.returncode or not done.stdout:
        raise LibraryError(_crash(done))
    if done.stdout[0]:
        raise LibraryError(_line(done.stdout[1:]))
    result = onnx.ModelProto()
    try:
        result.ParseFromString(done.stdout[1:])
    except (DecodeError, RuntimeError) as error:
        raise LibraryError("onnx answered with what is no model") from error
    return result


def _crash(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == -signal.SIGXCPU:
        return f"onnx found no end within {MAX_SECONDS} s"
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
    return f"onnx crashed on it ({ended}: {_line(done.stderr, last=True)})"


def _line(data: bytes, last: bool = False) -> str:
    lines = data.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
    return lines[-1 if last else 0][:300]
