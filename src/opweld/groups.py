"""The limits of this process's control groups, of version 2 and of version 1, whose controllers are mounted one by one;
and what memory they and the system leave.

runtime/c/groups.c reads the same for running artifacts; one test compares both. A group is limited by all groups
around it: limits are read from the process's own group up to the topmost mounted one, in a container the
container's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

UNIFIED, CPU, MEMORY = "", "cpu", "memory"
"""The tree of version 2, and those of two controllers of version 1."""

ROOT = Path("/")


def group_processors(root: Path = ROOT) -> int | None:
    """The processors' worth of time that the process may take, rounded up; None where there is no limit. `root` is
    another one in tests."""
    return _least(root, CPU, _processors_of)


def group_memory(root: Path = ROOT) -> int | None:
    """The bytes that the process may take, of those that its groups limit; None where there is no limit."""
    return _least(root, MEMORY, _memory_of)


def free_memory(root: Path = ROOT) -> int:
    """The bytes that the system can give without swapping, and the groups allow; a large number where nobody knows."""
    found = 1 << 40
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    return min(found, group_memory(root) or found)


def _least(root: Path, controller: str, limit_of: Callable[[str, Path], int | None]) -> int | None:
    found = (limit_of(tree, folder) for tree in (UNIFIED, controller) for folder in _folders(root, tree))
    return min((limit for limit in found if limit is not None), default=None)


def _processors_of(tree: str, folder: Path) -> int | None:
    if tree == UNIFIED:
        numbers = _numbers(folder / "cpu.max")  # microseconds of processor time, per period
    else:
        numbers = _numbers(folder / "cpu.cfs_quota_us")[:1] + _numbers(folder / "cpu.cfs_period_us")[:1]
    if len(numbers) < 2 or numbers[0] <= 0 or numbers[1] <= 0:
        return None
    return -(-numbers[0] // numbers[1])


def _memory_of(tree: str, folder: Path) -> int | None:
    numbers = _numbers(folder / ("memory.max" if tree == UNIFIED else "memory.limit_in_bytes"))
    return numbers[0] if numbers and numbers[0] > 0 else None


def _numbers(file: Path) -> list[int]:
    """The numbers that a file begins with; "max" is none."""
    made: list[int] = []
    for word in _text(file).split()[:2]:
        try:
            made.append(int(word))
        except ValueError:
            break
    return made


def _folders(root: Path, tree: str) -> Iterator[Path]:
    """The folder of the own group in a tree, and those above it, as far as they are mounted."""
    path = _own_path(root, tree)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        fields, system = mount.split(), kind.split()
        if path is None or len(fields) < 5 or len(system) < 3 or not _is_mount_of(tree, system[0], system[2]):
            continue
        inside, point = fields[3].rstrip("/"), root / fields[4].lstrip("/")
        below = path.removeprefix(inside) if (path + "/").startswith(inside + "/") and "/.." not in path else ""
        folder = point / below.strip("/")
        yield folder
        while folder != point:
            folder = folder.parent
            yield folder
        return


def _is_mount_of(tree: str, system: str, options: str) -> bool:
    return system == "cgroup2" if tree == UNIFIED else system == "cgroup" and tree in options.split(",")


def _own_path(root: Path, tree: str) -> str | None:
    """The path of the own group in a tree."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and (fields[1] == "" if tree == UNIFIED else tree in fields[1].split(",")):
            return fields[2]
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
