"""Counters of the processor, through the system call perf_event_open: cycles, instructions and cache misses of a run.

They count every thread that the process has when counting begins, including the pool's workers, in user mode. Waiting
threads spin for a while, and those cycles count too. See perf_event_open(2)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_TASKS: Final = Path("/proc/self/task")

_CALLS: Final = {"x86_64": 298, "aarch64": 241}
"""The number of the system call, by machine."""

_HARDWARE: Final = 0
EVENTS: Final = {
    "cycles": 0,
    "instructions": 1,
    "cache_references": 2,
    "cache_misses": 3,
    "branches": 4,
    "branch_misses": 5,
}
"""Events of the type PERF_TYPE_HARDWARE, by their names here."""

_ATTRIBUTES: Final = struct.Struct("=IIQQQQQ72x")
"""struct perf_event_attr up to PERF_ATTR_SIZE_VER5: type, size, config, period, sample type, read format, flags."""

_TIMES: Final = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: with fewer counters than events, events are multiplexed."""

_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE = 0x2400, 0x2401


@dataclass(frozen=True)
class Counters:
    """Counter values per run.

    Attributes:
        available: whether any event was counted. reason: why not, and the remedy.
        values: by event; `instructions_per_cycle` and `cache_miss_rate` if both of their events were counted.
    """

    available: bool
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict[str, float])


NONE: Final = Counters(False, "not requested")


def count(run: Callable[[], object], runs: int) -> Counters:
    """Counts `runs` runs. If the system does not support it, returns the reason; never an error."""
    number = _CALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return Counters(False, f"opweld reads counters on Linux on {' and '.join(_CALLS)} only")
    with contextlib.ExitStack() as stack:
        opened, refusals = _open(number, stack)
        if "cycles" not in opened and "instructions" not in opened:
            return Counters(False, _reason(refusals))
        files = [file for own in opened.values() for file in own]
        for file in files:
            fcntl.ioctl(file, _ENABLE, 0)
        for _ in range(runs):
            run()
        for file in files:
            fcntl.ioctl(file, _DISABLE, 0)
        found = {name: sum(map(_read, own)) / runs for name, own in opened.items()}
    return Counters(True, "", _with_rates(found))


def _open(number: int, stack: contextlib.ExitStack) -> tuple[dict[str, list[int]], list[int]]:
    """The files of each event, one for each thread, which `stack` closes; and the errors of those that failed."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    threads = sorted(int(path.name) for path in _TASKS.iterdir())
    opened: dict[str, list[int]] = {}
    refusals: list[int] = []
    for name, config in EVENTS.items():
        flags = _DISABLED | _NO_KERNEL | _NO_HYPERVISOR
        attributes = _ATTRIBUTES.pack(_HARDWARE, _ATTRIBUTES.size, config, 0, 0, _TIMES, flags)
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        for thread in threads:
            words = (ctypes.c_long(value) for value in (thread, -1, -1, 0))
            file = call(ctypes.c_long(number), buffer, *words)
            if file >= 0:
                stack.callback(os.close, file)
                opened.setdefault(name, []).append(file)
            elif ctypes.get_errno() != errno.ESRCH:  # a thread that has ended since counts nothing
                refusals.append(ctypes.get_errno())
                opened.pop(name, None)  # an incomplete set of threads is not meaningful
                break
    return opened, refusals


def _read(file: int) -> float:
    """The value of a counter, scaled for the time in which it was not running."""
    value, enabled, running = struct.unpack("=QQQ", os.read(file, 24))
    return value * (enabled / running) if running else 0.0


def _with_rates(found: Mapping[str, float]) -> dict[str, float]:
    values = dict(found)
    for name, above, below in (
        ("instructions_per_cycle", "instructions", "cycles"),
        ("cache_miss_rate", "cache_misses", "cache_references"),
    ):
        if found.get(below) and above in found:
            values[name] = found[above] / found[below]
    return values


def _reason(refusals: list[int]) -> str:
    code = refusals[0] if refusals else errno.ENOENT
    if code in (errno.EACCES, errno.EPERM):
        level = _PARANOID.read_text().strip() if _PARANOID.exists() else "unknown"
        return (
            f"the kernel refuses counters to this user (perf_event_paranoid is {level}): "
            "`sysctl kernel.perf_event_paranoid=2` as root allows them, as does the capability CAP_PERFMON; "
            "a container may also forbid the system call perf_event_open in its seccomp profile"
        )
    if code in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return (
            "this machine offers no hardware counters, as is usual in a virtual machine: "
            "give the machine a virtual PMU (for KVM, a CPU model with pmu=on), or run on the hardware itself"
        )
    if code == errno.ENOSYS:
        return "this kernel was built without perf events, or a sandbox hides the system call perf_event_open"
    if code == errno.EMFILE:
        return "too many open files: raise the limit (`ulimit -n`), a file is needed for each thread and event"
    return f"perf_event_open failed: {os.strerror(code)}"
