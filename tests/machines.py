"""Machines that tests run as: this one, or another of its architecture, as far as this one can run its code.

Code for a processor with wider vectors than this one's is generated as for that one, with its vectors, tiles and
schedules, and compiled for what this one has: the C compiler splits the vectors."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import cache

from opweld.target import Target

VARIABLE = "OPWELD_TESTS_TARGET"
"""Names the target in the processes that tests start from modules of their own."""

TARGETS = ("x86-64-v3", "x86-64-v4")

_native: Callable[[], Target] = Target.native


def can_run(target: Target) -> bool:
    """Whether this machine has the instructions of a target."""
    native = _native()
    return native.architecture == target.architecture and set(target.features) <= set(native.features)


@cache
def runnable(name: str) -> Target:
    """A target of this machine's architecture, with its cores, caches and C library, that this machine can run."""
    native, generic = _native(), Target.of(name)
    same = name == native.name
    made = dataclasses.replace(
        native,
        name=name,
        vector_bytes=generic.vector_bytes,
        vector_registers=generic.vector_registers,
        features=native.features if same else generic.features,
    )
    return made if can_run(made) else dataclasses.replace(made, name=native.name, features=native.features)


def run_as(name: str) -> None:
    """From now on this process takes that target for the machine's own, and tells those that it starts."""
    os.environ[VARIABLE] = name
    Target.native = staticmethod(lambda: runnable(name))  # pyright: ignore[reportAttributeAccessIssue]


def run_as_told() -> None:
    """The same, where the process that started this one says so."""
    if VARIABLE in os.environ:
        run_as(os.environ[VARIABLE])


def other() -> str:
    """The target of this architecture that this machine is not; nothing where there is no other."""
    name = _native().name
    return next((target for target in TARGETS if target != name), "") if name in TARGETS else ""


if __name__ == "__main__":
    print(other())
