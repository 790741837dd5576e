"""Compiles kernels for the tests and calls them on NumPy arrays."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import mmap
import os
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from opweld.build.toolchain import BASE_FLAGS, Compiler, Objects, gcc_flags
from opweld.codegen.c.render import render_kernel
from opweld.target import Target
from opweld.tensor.dim import Atom, Symbol
from opweld.tile.loops import Decide, as_wanted, tune_loops
from opweld.tile.tile import Kernel

HEADERS = Path(__file__).parents[3] / "src/opweld/runtime/c"


def headers() -> dict[str, str]:
    """The headers that generated text includes, by name."""
    return {path.name: path.read_text() for path in sorted(HEADERS.glob("opweld_*.h"))}


def machine(lanes: int) -> Target:
    """A machine whose vectors have as many float32."""
    return next(t for t in map(Target.of, ("aarch64", "x86-64-v3", "x86-64-v4")) if t.vector_lanes_f32 == lanes)


def source(kernel: Kernel, lanes: int, decide: Decide = as_wanted) -> str:
    """A whole C file, the kernel's loops written as they are best, or as decided."""
    kernel = tune_loops(kernel, machine(lanes), decide)
    export = '__attribute__((visibility("default"))) '
    return _head(lanes) + render_kernel(kernel, lanes, "kernel").replace("void kernel(", export + "void kernel(")


def _head(lanes: int) -> str:
    return f'#define OPW_LANES {lanes}\n#include "opweld_kernel.h"\n\n'


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="opweld-kernels-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)


def compile_text(text: str) -> ctypes.CDLL:
    """The shared object of one C text."""
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _folder() / f"{name}.so"
    if not path.exists():
        common = next((head for head in map(_head, (16, 8, 4)) if text.startswith(head)), "")
        with Objects(target=Target.native(), headers=headers(), common=common) as objects:
            objects.link({f"k{name}.c": text}, path)
    return ctypes.CDLL(str(path))


def assembly(text: str, target: Target | None = None) -> str:
    """The assembly that the compiler makes of a C text."""
    compiler = Compiler.find()
    command = [*compiler.command, *compiler.flags(target or Target.native()), "-S", "kernel.c", "-o", "kernel.s"]
    with _written(text) as folder:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ)
        return (folder / "kernel.s").read_text()


def with_gcc(text: str) -> ctypes.CDLL:
    """The shared object that gcc makes of a C text."""
    flags = [flag for flag in BASE_FLAGS if not flag.startswith("-fno-sanitize")]
    command = ["gcc", *flags, "-ffp-contract=fast", *gcc_flags(Target.native()), "-shared", "kernel.c", "-o", "k.so"]
    with _written(text) as folder:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return ctypes.CDLL(str(folder / "k.so"))  # what is loaded does not need its file


@contextmanager
def _written(text: str) -> Generator[Path]:
    """A folder with a C text, kernel.c, and the headers that it includes."""
    with tempfile.TemporaryDirectory(prefix="opweld-kernel-") as name:
        folder = Path(name)
        for header, content in headers().items():
            (folder / header).write_text(content)
        (folder / "kernel.c").write_text(text)
        yield folder


class Runner:
    """A compiled kernel, called on arrays."""

    def __init__(self, kernel: Kernel, lanes: int, library: ctypes.CDLL | None = None) -> None:
        self.kernel = kernel
        self._function = (library or compile_text(source(kernel, lanes))).kernel
        self._function.restype = None
        self.error = ctypes.c_int64(0)

    def __call__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        sizes: Mapping[Symbol, int] | None = None,
        parts: Sequence[float] = (0.0, 1.0),
    ) -> int:
        """Runs the grid in ranges ending at these fractions; returns the error word."""
        call, iterations = self.prepare(arrays, sizes)
        for low, high in pairwise(parts):
            call(int(low * iterations), int(high * iterations))
        return int(self.error.value)

    def prepare(self, arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[Symbol, int] | None = None) -> Any:
        """(call(begin, end), number of grid iterations)"""
        values: dict[Atom, int] = {}
        for symbol, size in (sizes or {}).items():
            values[symbol] = size
        pointers = [arrays[buffer.name].ctypes.data for buffer in self.kernel.buffers]
        for buffer in self.kernel.buffers:
            array = arrays[buffer.name]
            assert array.dtype == buffer.dtype.numpy, (buffer, array.dtype)
            assert array.flags.c_contiguous
        buffers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        p = (ctypes.c_int64 * max(1, len(self.kernel.sizes)))(*[values[s] for s in self.kernel.sizes])
        need = self.kernel.scratch_bytes.evaluate(values)
        room = np.zeros(need + 64, np.uint8)
        scratch = ctypes.c_void_p(room.ctypes.data + (-room.ctypes.data) % 64)
        self.error.value = 0

        def call(begin: int, end: int) -> None:
            error = ctypes.byref(self.error)
            self._function(buffers, p, ctypes.c_int64(begin), ctypes.c_int64(end), scratch, error)

        call.keep = (arrays, room)  # type: ignore[attr-defined]
        return call, self.kernel.iterations.evaluate(values)


def aligned(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """An array at a 64-byte boundary."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    start = (-room.ctypes.data) % 64
    return room[start : start + size].view(dtype).reshape(shape)


def fenced(array: np.ndarray[Any, Any], at_end: bool) -> np.ndarray[Any, Any]:
    """A flat copy in pages of its own that touches an inaccessible page: after its end, or before its start."""
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page)
    room = mmap.mmap(-1, (pages + 2) * page)
    base = np.frombuffer(room, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for place in (0, (pages + 1) * page):
        assert protect(base.ctypes.data + place, page, 0) == 0
    start = (pages + 1) * page - array.nbytes if at_end else page
    copy = base[start : start + array.nbytes].view(array.dtype)
    copy[...] = array.reshape(-1)
    return copy
