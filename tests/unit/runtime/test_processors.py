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
    threads: set[int] = set()
    while threads != {0, 1}:  # a call does not wait for a worker that is late
        profile = session.profile(feeds)
        assert profile.plan.threads == 2
        threads |= {part.thread for part in profile.parts}


@pytest.mark.parametrize("when", ["before the library is loaded", "before the first run"])
def test_workers_roam_over_the_cores_of_the_process(roomy_folder: Path, when: str) -> None:
    """The library is told here that the caller may have many threads, so that it starts workers from a pinned one."""
    script = f"""
        import os, pathlib, time
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
        while sorted(os.sched_getaffinity(worker)) != {CORES}:  # as soon as it has begun
            time.sleep(0.01)
    """
    run_script(script)


def test_a_worker_that_left_a_core_may_come_back(roomy_folder: Path) -> None:
    """Callers on each core in turn: no worker is kept off where one of them was."""
    script = f"""
        import os, pathlib, time
        from opweld.runtime.session import Session
        from tests.unit.runtime.fake_model import check, feeds_of

        session = Session({str(roomy_folder)!r}, threads=8)
        for core in {CORES} * 3:
            os.sched_setaffinity(0, [core])
            check(session.run(feeds_of(4096)), feeds_of(4096))
        os.sched_setaffinity(0, {CORES})
        tasks = [task for task in pathlib.Path("/proc/self/task").iterdir()]
        workers = [int(task.name) for task in tasks if (task / "comm").read_text().startswith("opweld-")]
        assert workers
        while any(sorted(os.sched_getaffinity(worker)) != {CORES} for worker in workers):  # one is on its way
            time.sleep(0.01)
    """
    run_script(script)


def test_the_child_of_a_fork_counts_its_own_processors(folder: Path) -> None:
    script = f"""
        import os
        from opweld.runtime.session import Session
        from tests.unit.runtime.fake_model import check, feeds_of

        session, feeds = Session({str(folder)!r}), feeds_of(200_000)
        assert session.plan(feeds).threads == min(2, {len(CORES)})
        os.sched_setaffinity(0, [{CORES[0]}])
        child = os.fork()
        if not child:
            check(session.run(feeds), feeds)
            os._exit(session.plan(feeds_of(200_002)).threads)  # what is new here: the first plan is remembered
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    """
    run_script(script)


def run_script(script: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
