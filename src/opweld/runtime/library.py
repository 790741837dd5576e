"""The C runtime as Python sees it: prototypes of opweld.h, and one loaded library for each content digest."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from opweld.errors import ArtifactError
from opweld.shortage import check_shortage

MAX_RANK: Final = 8
SOURCE_FOLDER: Final = Path(__file__).parent / "c"

OK: Final = 0
INVALID_INPUT: Final = 1
NO_VARIANT: Final = 2
TOO_LARGE: Final = 3
NO_MEMORY: Final = 4
KERNEL_ERROR: Final = 5
BAD_MODULE: Final = 6
STATE_BUSY: Final = 7
STATE_LOST: Final = 8

MESSAGE_BYTES: Final = 4096


class Tensor(ctypes.Structure):
    """opw_tensor: a dense row-major tensor of at most `MAX_RANK` dimensions."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
    )


def c_sources() -> dict[str, str]:
    """The C files of the runtime by file name: what runtime.so is compiled from."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE_FOLDER.glob("*.c"))}


def c_headers() -> dict[str, str]:
    """The headers of the runtime by file name: what its sources and generated modules include."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE_FOLDER.glob("*.h"))}


def public_headers() -> dict[str, str]:
    """The headers that a caller in C includes: the folder include/ of an artifact."""
    return {name: text for name, text in c_headers().items() if name in ("opweld.h", "opweld_abi.h")}


def module_headers() -> dict[str, str]:
    """The headers that generated modules include: beside them in the folder source/ of an artifact, for debuggers."""
    return {name: text for name, text in c_headers().items() if name not in ("opweld.h", "runtime.h")}


_POINTER = ctypes.c_void_p
_MESSAGE = (ctypes.c_char_p, ctypes.c_size_t)
_PROTOTYPES: Final = {
    "opw_version": (ctypes.c_char_p, ()),
    "opw_open": (_POINTER, (ctypes.c_char_p, *_MESSAGE)),
    "opw_close": (None, (_POINTER,)),
    "opw_input_count": (ctypes.c_int32, (_POINTER,)),
    "opw_input_name": (ctypes.c_char_p, (_POINTER, ctypes.c_int32)),
    "opw_input_dtype": (ctypes.c_int32, (_POINTER, ctypes.c_int32)),
    "opw_input_rank": (ctypes.c_int32, (_POINTER, ctypes.c_int32)),
    "opw_input_by_value": (ctypes.c_int32, (_POINTER, ctypes.c_int32)),
    "opw_output_count": (ctypes.c_int32, (_POINTER,)),
    "opw_output_name": (ctypes.c_char_p, (_POINTER, ctypes.c_int32)),
    "opw_bind": (ctypes.c_int32, (_POINTER, _POINTER, ctypes.c_int32, _POINTER, *_MESSAGE)),
    "opw_plan_release": (None, (_POINTER,)),
    "opw_plan_output": (None, (_POINTER, ctypes.c_int32, _POINTER)),
    "opw_plan_arena": (ctypes.c_int64, (_POINTER,)),
    "opw_plan_sum": (ctypes.c_int64, (_POINTER,)),
    "opw_plan_step_bytes": (ctypes.c_int64, (_POINTER, ctypes.c_int32)),
    "opw_plan_step_flops": (ctypes.c_int64, (_POINTER, ctypes.c_int32)),
    "opw_plan_step_work": (ctypes.c_int64, (_POINTER, ctypes.c_int32)),
    "opw_plan_live": (ctypes.c_int64, (_POINTER,)),
    "opw_plan_scratch": (ctypes.c_int64, (_POINTER,)),
    "opw_plan_threads": (ctypes.c_int32, (_POINTER,)),
    "opw_plan_variant": (ctypes.c_int32, (_POINTER,)),
    "opw_plan_variant_name": (ctypes.c_char_p, (_POINTER,)),
    "opw_plan_steps": (ctypes.c_int32, (_POINTER,)),
    "opw_plan_step_name": (ctypes.c_char_p, (_POINTER, ctypes.c_int32)),
    "opw_plan_step_origin": (ctypes.c_char_p, (_POINTER, ctypes.c_int32)),
    "opw_plan_step_phase": (ctypes.c_int32, (_POINTER, ctypes.c_int32)),
    "opw_plan_step_threads": (ctypes.c_int32, (_POINTER, ctypes.c_int32)),
    "opw_run": (ctypes.c_int32, (_POINTER, _POINTER, _POINTER, _POINTER, *_MESSAGE)),
    "opw_run_timed": (ctypes.c_int32, (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, *_MESSAGE)),
    "opw_segments": (ctypes.c_int32, (_POINTER,)),
    "opw_call": (ctypes.c_int32, (_POINTER, _POINTER, ctypes.c_int32, _POINTER, *_MESSAGE)),
    "opw_call_with": (
        ctypes.c_int32,
        (_POINTER, _POINTER, ctypes.c_int32, _POINTER, _POINTER, _POINTER, *_MESSAGE),
    ),
    "opw_result_output": (None, (_POINTER, ctypes.c_int32, _POINTER)),
    "opw_result_free": (None, (_POINTER,)),
    "opw_state_make": (ctypes.c_int32, (_POINTER, _POINTER, _POINTER, *_MESSAGE)),
    "opw_state_free": (None, (_POINTER,)),
    "opw_state_reset": (ctypes.c_int32, (_POINTER, *_MESSAGE)),
    "opw_state_tensor": (None, (_POINTER, ctypes.c_int32, _POINTER)),
    "opw_state_length": (ctypes.c_int64, (_POINTER, ctypes.c_int32)),
    "opw_state_set_length": (ctypes.c_int32, (_POINTER, ctypes.c_int32, ctypes.c_int64, *_MESSAGE)),
    "opw_state_plans": (ctypes.c_int32, (_POINTER,)),
    "opw_state_begin": (ctypes.c_int32, (_POINTER, _POINTER, ctypes.c_int32, _POINTER, *_MESSAGE)),
    "opw_state_run": (ctypes.c_int32, (_POINTER, _POINTER, _POINTER, *_MESSAGE)),
    "opw_state_run_timed": (ctypes.c_int32, (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, *_MESSAGE)),
    "opw_state_cancel": (None, (_POINTER,)),
    "opw_arena_plan": (ctypes.c_int32, (ctypes.c_int32, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER)),
}

_NEWER: Final = frozenset({"opw_state_run_timed"})
"""Functions that runtimes of older artifacts do not have, which are as good for all else."""

_loaded: dict[str, ctypes.CDLL] = {}
_loading = threading.Lock()


def load(path: Path) -> ctypes.CDLL:
    """The library at `path`, ready to call. Files of equal content are loaded once, so that all models of a process
    share one pool of threads. Calls release the GIL. Raises ArtifactError when it is missing or not a runtime."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        check_shortage(error)
        raise ArtifactError(f"cannot read {path}: {error.strerror}; compile the model again") from error
    with _loading:
        if digest not in _loaded:
            _loaded[digest] = _open(path)
        return _loaded[digest]


def _open(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path.absolute()))
        for name, (result, arguments) in _PROTOTYPES.items():
            if name in _NEWER and not hasattr(library, name):
                continue
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError):
            check_shortage(error)
        raise ArtifactError(
            f"{path} is no opweld runtime for this machine ({error}); compile the model again, on or for this machine"
        ) from error
    return library


@dataclass(frozen=True)
class ArenaPlan:
    """The layout of an arena.

    Attributes:
        offsets: bytes from the start of the arena, a multiple of 64, one for each buffer.
        peak, total, live: bytes of the arena, of all buffers, of the largest set alive together; of sizes rounded up
            to 64.
    """

    offsets: tuple[int, ...]
    peak: int
    total: int
    live: int


def plan_arena(library: ctypes.CDLL, buffers: list[tuple[int, int, int]]) -> ArenaPlan | None:
    """Places buffers (bytes, first phase, last phase inclusive); None if sizes overflow or lifetimes are invalid."""
    n = len(buffers)
    sizes, first, last = zip(*buffers, strict=True) if buffers else ((), (), ())
    offsets = (ctypes.c_int64 * n)()
    totals = (ctypes.c_int64 * 3)()
    status = library.opw_arena_plan(
        n, (ctypes.c_int64 * n)(*sizes), (ctypes.c_int32 * n)(*first), (ctypes.c_int32 * n)(*last), offsets, totals
    )
    return ArenaPlan(tuple(offsets), *totals) if status == OK else None


# ---- addresses ----


def _slow_address(array: npt.NDArray[np.generic]) -> int:
    return array.ctypes.data


_DATA_FIELD: Final = object.__basicsize__
_field = ctypes.c_void_p.from_address


def _fast_address(array: npt.NDArray[np.generic]) -> int:
    # An array object starts with a pointer to its data: numpy's stable binary interface. `array.ctypes.data` builds
    # two objects and takes 0.7 us, this 0.1; a run has an address for every input and output.
    return _field(id(array) + _DATA_FIELD).value or 0


def _choose_address() -> bool:
    probes = [np.zeros(4), np.zeros(9, np.int8)[1:], np.zeros((), np.int32), np.zeros((2, 0))]
    return all(_fast_address(probe) == _slow_address(probe) for probe in probes)


address = _fast_address if _choose_address() else _slow_address
"""The address of an array's first element. Only for numpy arrays that the caller keeps alive."""
