"""The vector headers, compiled by each compiler at hand for each kind of vector that this machine has; dot products
also for each set of instructions that they are written for."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.build.toolchain import build_shared
from opweld.target import Target

HEADERS = Path(__file__).parents[3] / "src/opweld/runtime/c"

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
}
"""The NumPy type of every dtype whose registers hold what its memory holds."""

INTEGERS = [name for name in DTYPES if not name.startswith("f")]

_BUILDS = {
    "zig-v4": ("zig", "x86-64-v4", None),
    "zig-v3": ("zig", "x86-64-v3", None),
    "zig-4-lanes": ("zig", "x86-64-v3", 4),
    "gcc-v4": ("gcc", "x86-64-v4", None),
    "gcc-v3": ("gcc", "x86-64-v3", None),
}

_DOT_BUILDS = _BUILDS | {
    "zig-v4-vnni": ("zig", "x86-64-v4 avx512vnni", None),
    "zig-v4-bf16": ("zig", "x86-64-v4 avx512bf16", None),
    "zig-v3-vnni": ("zig", "x86-64-v3 avxvnni", None),
}


@dataclass(frozen=True)
class Kernels:
    """A shared object of kernels.c, or of dots.c."""

    library: ctypes.CDLL
    lanes: int

    def call(self, name: str, *arguments: NDArray | int) -> None:
        """Calls an exported function: arrays become pointers, integers int64."""
        function = getattr(self.library, name)
        function.restype = None
        function(*(ctypes.c_int64(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in arguments))

    def unary(self, name: str, x: NDArray) -> NDArray:
        """A function of one array, element by element."""
        x = np.ascontiguousarray(x)
        y = np.empty_like(x)
        self.call(name, y, x, x.size)
        return y

    def binary(self, name: str, x: NDArray, y: NDArray, dtype: type | None = None) -> NDArray:
        """A function of two arrays of one shape."""
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        z = np.empty(x.shape, dtype or x.dtype)
        self.call(name, z, x, y, x.size)
        return z


@pytest.fixture(scope="session", params=list(_BUILDS))
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return _built("kernels.c", *_BUILDS[request.param], tmp_path_factory.mktemp("vector"))


@pytest.fixture(scope="session", params=list(_DOT_BUILDS))
def dots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return _built("dots.c", *_DOT_BUILDS[request.param], tmp_path_factory.mktemp("vector"))


def _built(file: str, compiler: str, target_name: str, lanes: int | None, folder: Path) -> Kernels:
    if Target.native().architecture != "x86_64":
        pytest.skip(f"this processor cannot run {target_name}")
    target_name, _, extra = target_name.partition(" ")
    if extra and extra not in Target.native().features:
        pytest.skip(f"this processor has no {extra}; what it would do is tested without")
    target, wanted = Target.of(target_name), Target.of(target_name)
    if extra:
        target = replace(target, features=(*target.features, extra))
    if not set(target.features) <= set(Target.native().features):
        # Its vectors are those of the machine that it is for; the compiler makes them of shorter ones.
        target, lanes = Target.of("x86-64-v3"), lanes or wanted.vector_lanes_f32
    if compiler == "gcc" and shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    out = folder / "vector.so"
    flags = ["-Wall", "-Wextra", "-Werror"]
    flags += [] if lanes is None else [f"-DOPW_LANES={lanes}"]
    flags += ["-Wno-psabi"] if compiler == "gcc" else []
    headers = {path.name: path.read_text() for path in HEADERS.glob("opweld_*.h")}
    with pytest.MonkeyPatch.context() as patch:
        if compiler == "gcc":
            patch.setenv("OPWELD_CC", str(shutil.which("gcc")))
        else:
            patch.delenv("OPWELD_CC", raising=False)
        source = (Path(__file__).parent / file).read_text()
        build_shared({file: source}, out, target=target, headers=headers, flags=flags)
    library = ctypes.CDLL(str(out))
    count = np.zeros(1, np.int64)
    Kernels(library, 0).call("lanes", count)
    assert count[0] == (lanes or wanted.vector_lanes_f32)
    return Kernels(library, int(count[0]))
