"""What control groups allow, of both versions and nested, under a made-up root."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from opweld.analysis.sets import room
from opweld.groups import group_memory, group_processors
from opweld.options import available_cores
from opweld.runtime.library import c_headers, c_sources
from opweld.target import MIB, Target

NONE = (1 << 63) - 1
UNIFIED = "40 30 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTROLLERS = """\
22 1 0:21 / /proc rw - proc proc rw
32 31 0:29 {0} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
33 31 0:30 {0} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu
34 31 0:31 {0} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
GROUPS = "9:cpuset:/\n8:cpu,cpuacct:{0}\n4:memory:{0}\n1:name=systemd:/\n0::/\n"
CPU, MEMORY = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"

Limits = Callable[[dict[str, str]], tuple[int, int]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    place = tmp_path_factory.mktemp("groups")
    for name, text in (c_headers() | {"groups.c": c_sources()["groups.c"]}).items():
        (place / name).write_text(text)
    source = Path(__file__).with_name("limits_of_groups.c")
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Werror", "-Wno-format-truncation", f"-I{place}"]
    subprocess.run([gcc, str(source), *flags, "-o", str(place / "groups")], check=True)
    return place / "groups"


@pytest.fixture
def limits(program: Path, tmp_path: Path) -> Limits:
    """Processors and bytes under a root with these files, as the runtime and the compiler find them."""

    def ask(files: dict[str, str]) -> tuple[int, int]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        answer = subprocess.run([program, tmp_path], capture_output=True, text=True, check=True)
        processors, memory = map(int, answer.stdout.split())
        assert (group_processors(tmp_path) or NONE, group_memory(tmp_path) or NONE) == (processors, memory)
        return processors, memory

    return ask


def unified(group: str, **files: str) -> dict[str, str]:
    """Version 2; `cpu_a_b` is cpu.max of /a/b, likewise `memory`."""
    named = {"cpu": "cpu.max", "memory": "memory.max"}
    made = {"proc/self/mountinfo": UNIFIED, "proc/self/cgroup": f"0::{group}\n"}
    for name, text in files.items():
        kind, *folders = name.split("_")
        made["/".join(["sys/fs/cgroup", *folders, named[kind]])] = text
    return made


def test_a_machine_without_groups(limits: Limits) -> None:
    assert limits({}) == (NONE, NONE)


def test_the_least_of_nested_groups(limits: Limits) -> None:
    files = unified("/a/b/c", cpu_a_b_c="max 100000\n", cpu_a_b="250000 100000\n", cpu_a="800000 100000\n")
    assert limits(files | unified("/a/b/c", memory_a_b_c="9000\n", memory_a="7000\n")) == (3, 7000)


def test_the_own_group_may_be_the_least(limits: Limits) -> None:
    assert limits(unified("/a/b", cpu_a_b="100000 100000\n", cpu_a="200000 100000\n")) == (1, NONE)


def test_what_lies_beside_does_not_count(limits: Limits) -> None:
    assert limits(unified("/a", cpu_b="100000 100000\n", cpu_a_c="100000 100000\n")) == (NONE, NONE)


def test_a_container_sees_its_own_group_as_the_top(limits: Limits) -> None:
    """In a namespace of its own, and, without one, where its group alone is mounted."""
    assert limits(unified("/", cpu="400000 100000\n", memory="5000\n")) == (4, 5000)
    files = unified("/docker/1234/inner", cpu_inner="300000 100000\n", cpu="200000 100000\n")
    files["proc/self/mountinfo"] = UNIFIED.replace(" / ", " /docker/1234 ", 1)
    assert limits(files) == (2, 5000)


def test_a_group_outside_of_what_is_mounted(limits: Limits) -> None:
    files = unified("/../../elsewhere", cpu="200000 100000\n")
    assert limits(files) == (2, NONE)


def test_version_1(limits: Limits) -> None:
    files = {
        "proc/self/mountinfo": CONTROLLERS.format("/"),
        "proc/self/cgroup": GROUPS.format("/batch/job"),
        f"{CPU}/batch/job/cpu.cfs_quota_us": "-1\n",
        f"{CPU}/batch/job/cpu.cfs_period_us": "100000\n",
        f"{CPU}/batch/cpu.cfs_quota_us": "150000\n",
        f"{CPU}/batch/cpu.cfs_period_us": "50000\n",
        f"{MEMORY}/batch/job/memory.limit_in_bytes": "123456\n",
        f"{MEMORY}/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert limits(files) == (3, 123456)


def test_version_1_in_a_container(limits: Limits) -> None:
    """Docker mounts the container's group alone, and tells the path from the top of the machine."""
    files = {
        "proc/self/mountinfo": CONTROLLERS.format("/docker/1234"),
        "proc/self/cgroup": GROUPS.format("/docker/1234"),
        f"{CPU}/cpu.cfs_quota_us": "50000\n",
        f"{CPU}/cpu.cfs_period_us": "100000\n",
        f"{MEMORY}/memory.limit_in_bytes": "4096\n",
    }
    assert limits(files) == (1, 4096)


@pytest.mark.parametrize("text", ["", "\n", "max", "max 100000", "0 0", "-5 -5", "100000", "x y"])
def test_files_that_say_nothing(limits: Limits, text: str) -> None:
    assert limits(unified("/", cpu=text)) == (NONE, NONE)


def test_the_compiler_plans_for_the_time_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    for quota, cores in ((None, 8), (3, 3), (20, 8)):
        monkeypatch.setattr("opweld.options.group_processors", lambda quota=quota: quota)
        assert available_cores() == cores


def test_the_memory_of_a_measurement_fits_into_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.of("x86-64-v3")
    monkeypatch.setattr("opweld.groups.group_memory", lambda root: 1 << 28)
    assert room(target, 1) <= max(32 * MIB, 1 << 26)
