"""Pinned callers: each gets threads for its own cores, none confines the pool for the others."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opweld.runtime.session import Session
from tests.patience import PATIENCE_S
from tests.unit.runtime.fake_model import check, feeds_of

CORES = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores to tell one from all")


def test_a_pinned_caller_gets_the_threads_of_its_cores(folder: Path) -> None:
    session, feeds = Session(folder), feeds_of(200_000)

    def pinned() -> set[int]:
        os.sched_setaffinity(0, CORES[:1])  # of this thread
        profile = session.profile(feeds)
        check(profile.outputs, feeds)
        return {part.thread for part in profile.parts}

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pinned).result() == {0}
    profiles = [session.profile(feeds) for _ in range(20)]
    assert {part.thread for profile in profiles for part in profile.parts} == {0, 1}
    assert len({profile.plan.threads for profile in profiles}) == 1


@pytest.mark.parametrize("when", ["before the library is loaded", "before the first run"])
def test_workers_roam_over_the_cores_of_the_process(roomy_folder: Path, when: str) -> None:
    """The library is told here that the caller may have many threads, so that it starts workers from a pinned one."""
    script = f"""
        import os, pathlib
        from concurrent.futures import ThreadPoolExecutor
        from opweld.runtime.session import Session
        from tests.unit.runtime.fake_model import check, feeds_of

        def call():
            before = {when == "before the library is loaded"}
            if before:
                os.sched_setaffinity(0, [{CORES[0]}])
            session = Session({str(roomy_folder)!r}, threads=2)
            os.sched_setaffinity(0, [{CORES[0]}])
            check(session.run(feeds_of(4096)), feeds_of(4096))

        with ThreadPoolExecutor(1) as pool:  # whose thread stays while the tasks are read: none vanishes under the loop
            pool.submit(call).result()
            tasks = pathlib.Path("/proc/self/task").iterdir()
            (worker,) = (int(task.name) for task in tasks if (task / "comm").read_text().startswith("opweld-"))
        assert set(os.sched_getaffinity(worker)) - {{{CORES[0]}}}, os.sched_getaffinity(worker)
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert answer.returncode == 0, answer.stderr
