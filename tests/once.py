"""What the processes of a test run share is made by the first that needs it; the others wait for it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path


def once(place: Path, make: Callable[[], object]) -> None:
    """Calls `make`, which writes into the folder `place`, unless a process has done so; what raised is made again."""
    place.mkdir(parents=True, exist_ok=True)
    done = place / "done"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make()
            done.touch()
